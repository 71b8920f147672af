"""What is known of users, in their own ids, as rows of a matrix over a model's items.

Ids that the model does not know are left out and counted.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recfusion.core.arrays import Csr, FloatArray, IntArray, binary_csr
from recfusion.core.errors import InputError
from recfusion.data.interactions import Features, to_columns
from recfusion.data.options import Source
from recfusion.data.protocol import Protocol
from recfusion.data.rating_scale import adds_up
from recfusion.data.reading.formats import ArrowStream, as_frame
from recfusion.data.reading.reader import read_table
from recfusion.data.signals import Extra, valued
from recfusion.inference.bundle import Bundle
from recfusion.inference.ids import id_texts
from recfusion.models.abilities import check_rating_values

log = logging.getLogger(__name__)
YOU = "you"  # the user of a history that comes without one
_ENTRY = {"item", "rating", "grade", "time"}  # what a history may say of an item; a grade is a rating


@dataclass(frozen=True)
class Histories:
    """What is known of some users, as columns of a model."""

    users: pl.Series
    matrix: Csr  # (users, items)
    unknown_rows: int  # rows whose item the model does not know
    unknown_ids: tuple[str, ...]  # some of those ids, for a message
    extra: Extra | None = None  # grades, times and dislikes, for a model that was trained with them
    disliked: int = 0  # rows rated below what counts as liked

    @property
    def n_empty(self) -> int:
        """How many users have nothing that the model knows."""
        return int(np.count_nonzero(np.diff(self.matrix.indptr) == 0))


def histories_of(bundle: Bundle, given: Any, about: pl.DataFrame | None = None) -> Histories:
    """Return histories of any form: users with their items, one sequence of items, or a frame of users and items.

    An item is an id, or a mapping with `item` and, for a model that was trained with them, `rating` and `time`.
    """
    found = read_histories(bundle, _rows(given, bundle.protocol))
    return found if about is None else with_users(bundle, found, about)


def with_users(bundle: Bundle, histories: Histories, about: pl.DataFrame) -> Histories:
    """Return the histories with features of their users, from a table with the column `user` and others."""
    recipe = bundle.recipes.users
    if recipe is None:
        raise InputError("This model knows no features of users: train one with --users-file and --signals features.")
    if absent := [column.name for column in recipe.columns if column.name not in about.columns]:
        known = ", ".join(column.name for column in recipe.columns)
        lacks = (
            f"Expected columns of users that the model was trained on ({known}), got no {', no '.join(absent)} among "
            f"{', '.join(name for name in about.columns if name != 'user') or 'none'}: name them alike"
        )
        if len(absent) == len(recipe.columns):
            raise InputError(f"{lacks}.")
        log.warning("%s; they are taken for missing.", lacks)
    places = to_columns(about["user"], histories.users)
    rows = about[np.maximum(places, 0).tolist()].with_columns(
        pl.when(pl.Series(places >= 0)).then(pl.col(name)).alias(name) for name in about.columns
    )
    for sentence in recipe.unseen(rows):
        log.warning(sentence)
    features = Features(recipe.encode(rows).matrix, recipe.names, recipe)
    return replace(histories, extra=replace(histories.extra or Extra(), user_features=features))


def read_histories(bundle: Bundle, rows: pl.DataFrame) -> Histories:
    """Return the histories in `rows` (columns `user`, `item`; a null item makes a user without history).

    For a model of graded signals, what a column `rating` has below the model's threshold is seen and not liked; an item
    without a rating is liked. For one of timed signals, the rows of a user without any time are in order, oldest first.
    Of several rows of one user and item the last one counts.
    """
    users = rows["user"].unique(maintain_order=True)
    places = users.to_frame().with_columns(row=pl.int_range(len(users)))
    row = rows.join(places, on="user", how="left", nulls_equal=True, maintain_order="left")["row"].to_numpy()
    column = to_columns(bundle.items["item"], rows["item"])
    unknown = (column < 0) & rows["item"].is_not_null().to_numpy()
    names = rows["item"].filter(pl.Series(unknown)).unique(maintain_order=True).head(5).cast(pl.String)
    n_items = len(bundle.items)
    entries = np.flatnonzero(column >= 0)
    if not bundle.protocol.signals.used:
        matrix = _entries(np.unique(row[entries] * n_items + column[entries]), len(users), n_items)
        return Histories(users, matrix, int(unknown.sum()), tuple(names))
    given = rows["rating"] if "rating" in rows.columns else pl.Series([None] * len(rows), dtype=pl.Float32)
    grades = given.cast(pl.Float32).fill_null(np.nan).to_numpy()
    check_rating_values(bundle.model, grades[~np.isnan(grades)], "the history")
    known = (row[entries], column[entries], grades[entries], _times(rows, row)[entries])
    matrix, extra, disliked = with_signals(bundle.protocol, *known, (len(users), n_items))
    return Histories(users, matrix, int(unknown.sum()), tuple(names), extra, disliked)


def with_signals(
    protocol: Protocol,
    rows: IntArray,
    columns: IntArray,
    grades: FloatArray,
    times: NDArray[np.int64],
    shape: tuple[int, int],
) -> tuple[Csr, Extra | None, int]:
    """Return histories of this shape, what else a model with this protocol gets of them, and how many dislikes.

    Of several entries of one user and item the last counts, with the sum of them all where the data had counts. An
    entry without a grade, which is NaN, is liked as little as counts.
    """
    used = protocol.signals.used
    keys, last, whose = np.unique((rows * shape[1] + columns)[::-1], return_index=True, return_inverse=True)
    last = len(rows) - 1 - last  # np.unique finds the first of equal keys: turned around, that is the last one
    grades = np.where(np.isnan(grades), np.float32(least_liked(protocol)), grades)
    if adds_up(protocol.read.columns.get("rating"), 0.0):
        chosen = np.bincount(whose, grades[::-1], minlength=len(keys)).astype(np.float32)
    else:
        chosen = grades[last]
    liked = is_liked(chosen, protocol) if "grades" in used else np.ones(len(keys), bool)
    when = times[last]
    matrix, below = (_entries(keys[part], *shape) for part in (liked, ~liked))
    extra = Extra(
        grades=valued(matrix, chosen[liked]),
        times=valued(matrix, when[liked]),
        disliked=valued(below, chosen[~liked]),
        disliked_times=valued(below, when[~liked]),
    ).only(used)
    return matrix, extra, below.nnz


def check_read(protocol: Protocol, *, graded: bool, timed: bool) -> None:
    """Raise where a history says more than its model reads."""
    for said, signal, name in ((graded, "grades", "graded"), (timed, "times", "timed")):
        if said and signal not in protocol.signals.used:
            raise InputError(
                f"Expected items without {signal}, which this model does not read: leave them out, or train one with "
                f"--signals {name}."
            )


def added_up(rows: pl.DataFrame, protocol: Protocol) -> pl.DataFrame:
    """Return the rows with counts added up per user and item, returns taken off, where the model's data had counts."""
    if "rating" not in rows.columns or not adds_up(protocol.read.columns.get("rating"), 0.0):
        return rows
    last = [pl.col("time").filter(pl.col("rating") > 0).max().alias("time")] if "time" in rows.columns else []
    total = (
        pl.when(pl.col("rating").count() > 0).then(pl.col("rating").sum()).alias("rating")
    )  # none where none is given
    found = rows.group_by("user", "item", maintain_order=True).agg(total, *last)
    return found.with_columns(pl.col("time").fill_null(pl.col("time").min())) if last else found


def liked_rows(rows: pl.DataFrame, protocol: Protocol) -> tuple[pl.DataFrame, int]:
    """Return the rows as a model that reads no grades takes them: what is not liked blanked, so that no user is lost.

    Also returns how many rows that are. A model that reads grades takes the rows as they are.
    """
    threshold = protocol.preparation.min_rating
    if "grades" in protocol.signals.used or "rating" not in rows.columns or not isinstance(threshold, float):
        return rows, 0
    liked = pl.col("rating") >= threshold
    blanked = rows.with_columns(pl.when(liked).then("item").alias("item"))
    return blanked, int(rows.select((~liked).sum()).item())


def _entries(keys: IntArray, n_users: int, n_items: int) -> Csr:
    """Return the 0/1 matrix with ones at the sorted keys user * items + item."""
    indptr = np.concatenate([[0], np.cumsum(np.bincount(keys // n_items, minlength=n_users))])
    return binary_csr(indptr, keys % n_items, n_items)


def least_liked(protocol: Protocol) -> float:
    """Return the least rating or count that is liked."""
    threshold = protocol.preparation.min_rating
    return float(threshold) if isinstance(threshold, int | float) else 1.0


def is_liked(grades: FloatArray, protocol: Protocol) -> NDArray[np.bool_]:
    """Return which ratings or counts the data of a model counted as ones."""
    if protocol.preparation.min_rating is not None:
        return grades >= np.float32(least_liked(protocol))
    return (grades > 0) | ~np.bool_(adds_up(protocol.read.columns.get("rating"), 0.0))


def check_times(timed: int, entries: int, whose: str = "") -> None:
    """Raise where some entries of a history have times and others have none: nothing says where these belong."""
    if 0 < timed < entries:
        raise InputError(
            f"Expected a time for each item of a history or for none, got times for {timed:,} of {entries:,}{whose}: "
            "add the others, or leave out all."
        )


def _times(rows: pl.DataFrame, user: IntArray) -> NDArray[np.int64]:
    """Return each row's time; of a user who has none, the rows' places among the user's, which order them as well.

    Each user is looked at alone, so that no list depends on who else is asked for. `user` is the number of each row's.
    """
    places = rows.select(pl.int_range(pl.len()).over("user")).to_series().to_numpy()
    if "time" not in rows.columns:
        return places
    entries, given = rows["item"].is_not_null().to_numpy(), rows["time"].is_not_null().to_numpy()
    n_users = int(user.max(initial=-1)) + 1
    of_all, timed = (np.bincount(user[part], minlength=n_users) for part in (entries, entries & given))
    for half in np.flatnonzero((timed > 0) & (timed < of_all))[:1]:
        whose = f" of user number {half + 1:,}" if n_users > 1 else ""  # an id may be somebody's address
        check_times(int(timed[half]), int(of_all[half]), whose)
    return np.where(given, rows["time"].fill_null(0).cast(pl.Int64).to_numpy(), places)


def _rows(given: Any, protocol: Protocol) -> pl.DataFrame:
    """Return histories as rows of user and item, and what else is used; a user without items has a row with a null."""
    used = protocol.signals.used
    if isinstance(given, ArrowStream) and hasattr(given, "columns"):  # a series has none
        counts = adds_up(protocol.read.columns.get("rating"), 0.0)
        rating = None if "grades" in used or counts else "none"
        time = None if "times" in used else "none"
        source = Source(data="frame", rating=rating, time=time)
        read = read_table(as_frame(given), source, lone_users=True)
        if bad := read.report.missing + read.report.unparsable:
            log.warning("%d rows without a value or with one that cannot be parsed are left out.", bad)
        rows = added_up(read.rows, protocol)
        if "grades" in used or "rating" not in rows.columns:
            return rows
        return rows.with_columns(pl.when(pl.col("rating") > 0).then("item").alias("item"))
    named = given if isinstance(given, Mapping) else {YOU: given}
    if not named:
        raise InputError("Expected at least one user to recommend for, got none.")
    users, items, ratings, times = [], [], [], []
    for user, own in named.items():
        entries = _described(own)
        ids = id_texts([one["item"] for one in entries] if entries else own)
        users += [user] * max(1, len(ids))
        items += ids or [None]
        ratings += [one.get("rating", one.get("grade")) for one in entries or [{}] * max(1, len(ids))]
        times += [one.get("time") for one in entries or [{}] * max(1, len(ids))]
    said = {"graded": any(one is not None for one in ratings), "timed": any(one is not None for one in times)}
    check_read(protocol, **said)
    frame = pl.DataFrame({"user": pl.Series(users, strict=False), "item": pl.Series(items, dtype=pl.String)})
    try:
        more = [pl.Series("rating", ratings, dtype=pl.Float32), pl.Series("time", times, dtype=pl.Int64)]
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        raise InputError("Expected numbers as ratings, and whole seconds since 1970 as times.") from None
    return frame.with_columns(column for column in more if column.count())


def _described(own: Any) -> list[Mapping[str, Any]]:
    """Return the items of a history in which some are mappings; none where it is a sequence of ids."""
    if not isinstance(own, list | tuple) or not any(isinstance(one, Mapping) for one in own):
        return []
    entries = [one if isinstance(one, Mapping) else {"item": one} for one in own]
    wrong = next((one for one in entries if not _ENTRY.issuperset(one) or "item" not in one), None)
    if wrong is not None:
        raise InputError(f"Expected an item as an id or as {{item, rating, time}}, got {wrong!r}.")
    return entries
