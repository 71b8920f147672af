"""Histories of users, given by ids, as rows of a matrix over a model's items.

Ids that the model does not know are left out and counted.
"""

import logging
from collections.abc import Mapping, Sequence
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
from recfusion.inference.request import Entry, errors_about, parse_history
from recfusion.models.abilities import check_rating_values

log = logging.getLogger(__name__)
YOU = "you"  # the user of a history without a user id
_SHOWN = 5  # unknown ids that a message names


@dataclass(frozen=True)
class Histories:
    """Histories of some users as columns of a model."""

    matrix: Csr  # (users, items)
    extra: Extra | None = None  # ratings, times, dislikes and user features, for a model trained with them
    users: pl.Series | None = None  # ids
    unknown_rows: int = 0  # rows with an item that the model does not know
    unknown_ids: tuple[str, ...] = ()  # some of those ids, for a message
    disliked: int = 0  # rows rated below the like threshold

    @property
    def n_empty(self) -> int:
        """The number of users without an item that the model knows."""
        return int(np.count_nonzero(np.diff(self.matrix.indptr) == 0))

    def rows(self, part: slice) -> "Histories":
        """Return the histories of some of the users, without the counts."""
        if part == slice(0, self.matrix.shape[0]):
            return self
        extra = None if self.extra is None else self.extra.rows(part)
        return Histories(self.matrix[part], extra, None if self.users is None else self.users[part])


def parse_histories(bundle: Bundle, given: Any, users: pl.DataFrame | None = None) -> Histories:
    """Return histories given as users with their items, one sequence of items, or a frame of users and items.

    An item is an id, or a mapping with `item` and, for a model that was trained with them, `rating` and `time`.
    `users` is a table with the column `user` and their features.
    """
    if isinstance(given, ArrowStream) and hasattr(given, "columns"):  # a series has no columns
        found = read_histories(bundle, _read_frame(given, bundle.protocol))
    else:
        named = given if isinstance(given, Mapping) else {YOU: given}
        if not named:
            raise InputError("Expected at least one user to recommend for, got none.", "history")
        histories = [parse_history(items) for items in named.values()]
        for number, history in enumerate(histories, 1):
            # An id may be somebody's address, so a message has the user's number.
            check_history(bundle, history, f" of user number {number:,}" if len(histories) > 1 else "")
        found, _ = histories_from_entries(bundle, histories)
        found = replace(found, users=pl.Series("user", list(named), strict=False))
    return found if users is None else with_user_features(bundle, found, users)


def histories_from_entries(bundle: Bundle, histories: Sequence[Sequence[Entry]]) -> tuple[Histories, list[list[str]]]:
    """Return histories of checked entries, and each user's ids that the model does not know."""
    entries = [entry for history in histories for entry in history]
    ids = [entry if isinstance(entry, str) else entry.item for entry in entries]
    columns = bundle.columns_of(ids)
    rows = np.repeat(np.arange(len(histories)), [len(history) for history in histories])
    ratings: FloatArray | None = None
    times: NDArray[np.int64] | None = None
    if reads_entries(bundle.protocol):
        values = [None if isinstance(entry, str) else entry.rating for entry in entries]
        ratings = np.array([np.nan if value is None else value for value in values], np.float32)
        # Entries without times are numbered in their order.
        when = [
            place if isinstance(entry, str) or entry.time is None else int(entry.time)
            for history in histories
            for place, entry in enumerate(history)
        ]
        times = np.array(when, np.int64)
    unknown: list[list[str]] = [[] for _ in histories]
    missing = np.flatnonzero(columns < 0).tolist()
    if missing:
        for place in missing:
            unknown[rows[place]].append(ids[place])
        known = columns >= 0
        rows, columns = rows[known], columns[known]
        ratings, times = None if ratings is None else ratings[known], None if times is None else times[known]
    matrix, extra, disliked = _encode(bundle, rows, columns, ratings, times, len(histories))
    some = tuple(dict.fromkeys(ids[place] for place in missing))[:_SHOWN]
    return Histories(matrix, extra, None, len(missing), some, disliked), unknown


def read_histories(bundle: Bundle, rows: pl.DataFrame) -> Histories:
    """Return the histories in `rows` (columns `user`, `item`; a null item makes a user without history).

    For a model of graded signals, an item with a `rating` below the like threshold is disliked; an item without a
    rating is liked. For a model of timed signals, the rows of a user without any time are in order, oldest first. The
    last of several rows of one user and item counts.
    """
    users = rows["user"].unique(maintain_order=True)
    numbers = users.to_frame().with_columns(row=pl.int_range(len(users)))
    row = rows.join(numbers, on="user", how="left", nulls_equal=True, maintain_order="left")["row"].to_numpy()
    column = to_columns(bundle.items["item"], rows["item"])
    unknown = (column < 0) & rows["item"].is_not_null().to_numpy()
    some = rows["item"].filter(pl.Series(unknown)).unique(maintain_order=True).head(_SHOWN).cast(pl.String)
    known = np.flatnonzero(column >= 0)
    ratings = times = None
    if reads_entries(bundle.protocol):
        given = rows["rating"] if "rating" in rows.columns else pl.Series([None] * len(rows), dtype=pl.Float32)
        every = given.cast(pl.Float32).fill_null(np.nan).to_numpy()
        _check_ratings(bundle, every[~np.isnan(every)])
        ratings, times = every[known], _row_times(rows, row)[known]
    matrix, extra, disliked = _encode(bundle, row[known], column[known], ratings, times, len(users))
    return Histories(matrix, extra, users, int(unknown.sum()), tuple(some), disliked)


def _encode(
    bundle: Bundle,
    rows: IntArray,
    columns: IntArray,
    ratings: FloatArray | None,
    times: NDArray[np.int64] | None,
    n_users: int,
) -> tuple[Csr, Extra | None, int]:
    """Return known entries as a matrix (users, items), the signals that the model reads, and the number of dislikes.

    The last of several entries of one user and item counts, with the sum of them all if the data had counts. An entry
    without a rating, which is NaN, has the lowest liked rating.
    """
    protocol, n_items = bundle.protocol, len(bundle.items)
    keys = rows * n_items + columns
    if ratings is None or times is None:
        return _binary_rows(np.unique(keys), n_users, n_items), None, 0
    # np.unique returns the first of equal keys: of the reversed keys that is the last one.
    keys, last, group = np.unique(keys[::-1], return_index=True, return_inverse=True)
    last = len(rows) - 1 - last
    ratings = np.where(np.isnan(ratings), np.float32(lowest_liked(protocol)), ratings)
    if adds_up(protocol.read.columns.get("rating"), 0.0):
        chosen = np.bincount(group, ratings[::-1], minlength=len(keys)).astype(np.float32)
    else:
        chosen = ratings[last]
    liked = is_liked(chosen, protocol) if "grades" in protocol.signals.used else np.ones(len(keys), bool)
    when = times[last]
    matrix, below = (_binary_rows(keys[part], n_users, n_items) for part in (liked, ~liked))
    extra = Extra(
        grades=valued(matrix, chosen[liked]),
        times=valued(matrix, when[liked]),
        disliked=valued(below, chosen[~liked]),
        disliked_times=valued(below, when[~liked]),
    ).only(protocol.signals.used)
    return matrix, extra, below.nnz


def _binary_rows(keys: IntArray, n_users: int, n_items: int) -> Csr:
    """Return the 0/1 matrix with ones at the sorted keys user * items + item."""
    if n_users == 1:  # without four array operations, which matter for a single list
        return binary_csr(np.array([0, len(keys)]), keys, n_items)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(keys // n_items, minlength=n_users))])
    return binary_csr(indptr, keys % n_items, n_items)


def with_user_features(bundle: Bundle, histories: Histories, table: pl.DataFrame) -> Histories:
    """Return the histories with features of their users, from a table with the column `user` and others."""
    recipe = bundle.recipes.users
    if recipe is None:
        raise InputError(
            "This model reads no features of users: train one with --users-file and --signals features.", "users"
        )
    if absent := [column.name for column in recipe.columns if column.name not in table.columns]:
        known = ", ".join(column.name for column in recipe.columns)
        problem = (
            f"Expected columns of users that the model was trained on ({known}), got no {', no '.join(absent)} among "
            f"{', '.join(name for name in table.columns if name != 'user') or 'none'}: give them the same names"
        )
        if len(absent) == len(recipe.columns):
            raise InputError(f"{problem}.", "users")
        log.warning("%s; they are treated as missing.", problem)
    assert histories.users is not None
    places = to_columns(table["user"], histories.users)
    rows = table[np.maximum(places, 0).tolist()].with_columns(
        pl.when(pl.Series(places >= 0)).then(pl.col(name)).alias(name) for name in table.columns
    )
    for sentence in recipe.unseen(rows):
        log.warning(sentence)
    features = Features(recipe.encode(rows).matrix, recipe.names, recipe)
    return replace(histories, extra=replace(histories.extra or Extra(), user_features=features))


def check_history(bundle: Bundle, history: Sequence[Entry], whose: str = "") -> None:
    """Raise if entries have ratings or times that the model does not read or support, or if only some have times."""
    entries = [entry for entry in history if not isinstance(entry, str)]
    if not entries:
        return
    ratings = [entry.rating for entry in entries if entry.rating is not None]
    timed = any(entry.time is not None for entry in entries)
    for present, signal, name in ((bool(ratings), "grades", "graded"), (timed, "times", "timed")):
        if present and signal not in bundle.protocol.signals.used:
            raise InputError(
                f"Expected items without {signal}, which this model does not read: leave them out, or train one with "
                f"--signals {name}.",
                "history",
            )
    _check_ratings(bundle, np.array(ratings, np.float32))
    check_times(history, whose)


def _check_ratings(bundle: Bundle, ratings: FloatArray) -> None:
    with errors_about("history"):
        check_rating_values(bundle.model, ratings, "the history")


def check_times(history: Sequence[Entry], whose: str = "") -> None:
    """Raise if some entries of a history have times and others have none, since their order is then unknown."""
    _check_timed(sum(not isinstance(entry, str) and entry.time is not None for entry in history), len(history), whose)


def _check_timed(timed: int, entries: int, whose: str) -> None:
    if 0 < timed < entries:
        raise InputError(
            f"Expected a time for each item of a history or for none, got times for {timed:,} of {entries:,}{whose}: "
            "add the others, or leave out all.",
            "history",
        )


def sum_counts(rows: pl.DataFrame, protocol: Protocol) -> pl.DataFrame:
    """Return the rows with counts added up per user and item, minus returns, if the model's data had counts."""
    if "rating" not in rows.columns or not adds_up(protocol.read.columns.get("rating"), 0.0):
        return rows
    last = [pl.col("time").filter(pl.col("rating") > 0).max().alias("time")] if "time" in rows.columns else []
    total = pl.when(pl.col("rating").count() > 0).then(pl.col("rating").sum()).alias("rating")  # null if all are null
    found = rows.group_by("user", "item", maintain_order=True).agg(total, *last)
    return found.with_columns(pl.col("time").fill_null(pl.col("time").min())) if last else found


def liked_rows(rows: pl.DataFrame, protocol: Protocol) -> tuple[pl.DataFrame, int]:
    """Return the rows for a model that reads no ratings, with null as each disliked item, and the number of these.

    The rows stay, so that no user is lost. A model that reads ratings gets the rows unchanged.
    """
    threshold = protocol.preparation.min_rating
    if "grades" in protocol.signals.used or "rating" not in rows.columns or not isinstance(threshold, float):
        return rows, 0
    liked = pl.col("rating") >= threshold
    blanked = rows.with_columns(pl.when(liked).then("item").alias("item"))
    return blanked, int(rows.select((~liked).sum()).item())


def lowest_liked(protocol: Protocol) -> float:
    """Return the lowest rating or count that is liked."""
    threshold = protocol.preparation.min_rating
    return float(threshold) if isinstance(threshold, int | float) else 1.0


def is_liked(ratings: FloatArray, protocol: Protocol) -> NDArray[np.bool_]:
    """Return which ratings or counts became interactions in the model's data."""
    if protocol.preparation.min_rating is not None:
        return ratings >= np.float32(lowest_liked(protocol))
    return (ratings > 0) | ~np.bool_(adds_up(protocol.read.columns.get("rating"), 0.0))


def reads_entries(protocol: Protocol) -> bool:
    """Return whether a model with this protocol was trained with ratings or times."""
    return bool({"grades", "times"} & set(protocol.signals.used))


def _row_times(rows: pl.DataFrame, user: IntArray) -> NDArray[np.int64]:
    """Return each row's time; the rows of a user without times are numbered in their order.

    Each user is treated alone, so that a list does not depend on the other users. `user` is the number of each row's.
    """
    places = rows.select(pl.int_range(pl.len()).over("user")).to_series().to_numpy()
    if "time" not in rows.columns:
        return places
    entries, given = rows["item"].is_not_null().to_numpy(), rows["time"].is_not_null().to_numpy()
    n_users = int(user.max(initial=-1)) + 1
    of_all, timed = (np.bincount(user[part], minlength=n_users) for part in (entries, entries & given))
    for half in np.flatnonzero((timed > 0) & (timed < of_all))[:1]:
        whose = f" of user number {half + 1:,}" if n_users > 1 else ""  # an id may be somebody's address
        _check_timed(int(timed[half]), int(of_all[half]), whose)
    return np.where(given, rows["time"].fill_null(0).cast(pl.Int64).to_numpy(), places)


def _read_frame(frame: ArrowStream, protocol: Protocol) -> pl.DataFrame:
    """Return a frame as rows of user and item, with rating and time if the model reads them."""
    used = protocol.signals.used
    counts = adds_up(protocol.read.columns.get("rating"), 0.0)
    rating = None if "grades" in used or counts else "none"
    source = Source(data="frame", rating=rating, time=None if "times" in used else "none")
    read = read_table(as_frame(frame), source, lone_users=True)
    if bad := read.report.missing + read.report.unparsable:
        log.warning("%d rows without a value or with one that cannot be parsed are left out.", bad)
    rows = sum_counts(read.rows, protocol)
    if "grades" in used or "rating" not in rows.columns:
        return rows
    return rows.with_columns(pl.when(pl.col("rating") > 0).then("item").alias("item"))
