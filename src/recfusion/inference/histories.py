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
from recfusion.data.purchases import Numbers, Pairs, Purchases
from recfusion.data.rating_scale import adds_up
from recfusion.data.reading.formats import ArrowStream, as_frame
from recfusion.data.reading.reader import read_table
from recfusion.data.signals import Extra, valued
from recfusion.inference.bundle import Bundle
from recfusion.inference.request import Entry, errors_about, parse_history
from recfusion.inference.training_source import source_as_trained
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
    returned: Csr | None = None  # (users, items): returned or disliked items, which no list has
    purchases: Pairs | None = None  # of the stored entries, if the model knows how often items are bought again

    @property
    def n_empty(self) -> int:
        """The number of users without an item that the model knows."""
        return int(np.count_nonzero(np.diff(self.matrix.indptr) == 0))

    def rows(self, part: slice) -> "Histories":
        """Return the histories of some of the users, without the counts."""
        if part == slice(0, self.matrix.shape[0]):
            return self
        extra = None if self.extra is None else self.extra.rows(part)
        returned = None if self.returned is None else self.returned[part]
        bought = self.purchases
        if bought is not None:
            start, stop, _ = part.indices(self.matrix.shape[0])
            bought = bought.where(slice(self.matrix.indptr[start], self.matrix.indptr[stop]))
            bought = replace(bought, user=bought.user - start)
        users = None if self.users is None else self.users[part]
        return Histories(self.matrix[part], extra, users, returned=returned, purchases=bought)


def parse_histories(bundle: Bundle, given: Any, users: pl.DataFrame | None = None) -> Histories:
    """Return histories given as users with their items, one sequence of items, or a frame of users and items.

    An item is an id, or a mapping with `item` and, for a model that was trained with them, `rating` and `time`.
    `users` is a table with the column `user` and their features.
    """
    if isinstance(given, ArrowStream) and hasattr(given, "columns"):  # a series has no columns
        found = read_histories(bundle, _read_frame(given, bundle))
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
    ratings = times = None
    if reads_entries(bundle):
        given = [(None, None) if isinstance(entry, str) else (entry.rating, entry.time) for entry in entries]
        ratings = np.array([rating for rating, _ in given], np.float64)  # NaN for None
        times = np.array([time for _, time in given], np.float64)
    unknown: list[list[str]] = [[] for _ in histories]
    missing = np.flatnonzero(columns < 0).tolist()
    if missing:
        for place in missing:
            unknown[rows[place]].append(ids[place])
        known = columns >= 0
        rows, columns = rows[known], columns[known]
        ratings, times = None if ratings is None else ratings[known], None if times is None else times[known]
    some = tuple(dict.fromkeys(ids[place] for place in missing))[:_SHOWN]
    found = _encode(bundle, rows, columns, ratings, times, len(histories))
    return replace(found, unknown_rows=len(missing), unknown_ids=some), unknown


def read_histories(bundle: Bundle, rows: pl.DataFrame) -> Histories:
    """Return the histories in `rows` (columns `user`, `item`; a null item makes a user without history).

    For a model of graded signals, an item with a `rating` below the like threshold is disliked; an item without a
    rating is liked. For a model of timed signals, the rows of a user without any time are in order, oldest first.
    """
    users = rows["user"].unique(maintain_order=True)
    numbers = users.to_frame().with_columns(row=pl.int_range(len(users)))
    row = rows.join(numbers, on="user", how="left", nulls_equal=True, maintain_order="left")["row"].to_numpy()
    column = to_columns(bundle.items["item"], rows["item"])
    unknown = (column < 0) & rows["item"].is_not_null().to_numpy()
    some = rows["item"].filter(pl.Series(unknown)).unique(maintain_order=True).head(_SHOWN).cast(pl.String)
    known = np.flatnonzero(column >= 0)
    ratings = times = None
    if "rating" in rows.columns:
        if "grades" in bundle.protocol.signals.used:
            _check_ratings(bundle, rows["rating"].drop_nulls().cast(pl.Float32).to_numpy())
        ratings = rows["rating"].cast(pl.Float64).fill_null(np.nan).to_numpy()[known]
    if "time" in rows.columns:
        _check_half_timed(rows, row)
        times = rows["time"].cast(pl.Float64).fill_null(np.nan).to_numpy()[known]
    found = _encode(bundle, row[known], column[known], ratings, times, len(users))
    return replace(found, users=users, unknown_rows=int(unknown.sum()), unknown_ids=tuple(some))


def _encode(
    bundle: Bundle, rows: IntArray, columns: IntArray, ratings: Numbers | None, times: Numbers | None, n_users: int
) -> Histories:
    """Return known entries as histories, with the signals that the model reads; NaN is an unknown rating or time.

    The last of several entries of one user and item counts. If the data had counts they are added up, minus returns,
    with the time of the last purchase. An entry without a rating has the lowest liked rating. Entries of a user
    without times are numbered in their order.
    """
    protocol, n_items = bundle.protocol, len(bundle.items)
    keys = rows * n_items + columns
    if ratings is None and times is None and not reads_entries(bundle):
        return Histories(_binary_rows(np.unique(keys), n_users, n_items))
    numbers = np.full(len(keys), np.nan) if ratings is None else ratings
    when = np.full(len(keys), np.nan) if times is None else times
    numbers = np.where(np.isnan(numbers), lowest_liked(protocol), numbers).astype(np.float32)
    counts, graded = adds_up(protocol.read.columns.get("rating"), 0.0), "grades" in protocol.signals.used
    bought = numbers > 0 if counts else np.ones(len(keys), bool)
    order = np.where(np.isnan(when), _places(rows), when).astype(np.int64)
    if counts:
        by = np.lexsort((order, bought, keys))
    else:  # a model without ratings knows whether an item was ever liked
        by = np.lexsort((np.zeros(len(keys)) if graded else is_liked(numbers, protocol), keys))
    last = by[np.append(np.diff(keys[by]) != 0, True)[: len(by)]]  # of each key
    keys, group = keys[last], np.searchsorted(keys[last], keys)
    chosen = (np.bincount(group, numbers, len(last)) if counts else numbers[last]).astype(np.float32)
    liked = is_liked(chosen, protocol)
    matrix, below = (_binary_rows(keys[part], n_users, n_items) for part in (liked, ~liked))
    extra = Extra(
        grades=valued(matrix, chosen[liked]),
        times=valued(matrix, order[last][liked]),
        disliked=valued(below, chosen[~liked]),
        disliked_times=valued(below, order[last][~liked]),
    ).only(protocol.signals.used)
    purchases = None
    if bundle.rates is not None:
        keep = bought & liked[group]
        purchases = Pairs.of(Purchases(rows[keep], columns[keep], when[keep]))
    disliked = below.nnz if counts or graded else int(np.count_nonzero(~is_liked(numbers, protocol)))
    return Histories(matrix, extra, None, disliked=disliked, returned=below, purchases=purchases)


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
        if present and signal not in bundle.protocol.signals.used and not (signal == "times" and bundle.reads_times):
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


def lowest_liked(protocol: Protocol) -> float:
    """Return the lowest rating or count that is liked."""
    threshold = protocol.preparation.min_rating
    return float(threshold) if isinstance(threshold, int | float) else 1.0


def is_liked(ratings: FloatArray, protocol: Protocol) -> NDArray[np.bool_]:
    """Return which ratings or counts became interactions in the model's data."""
    if protocol.preparation.min_rating is not None:
        return ratings >= np.float32(lowest_liked(protocol))
    return (ratings > 0) | ~np.bool_(adds_up(protocol.read.columns.get("rating"), 0.0))


def reads_entries(bundle: Bundle) -> bool:
    """Return whether ratings or times of a history's entries matter: to the model, or for purchases again."""
    return bundle.reads_times or "grades" in bundle.protocol.signals.used


def _check_half_timed(rows: pl.DataFrame, user: IntArray) -> None:
    """Raise if only some rows of a user have times; `user` is the number of each row's."""
    entries, given = rows["item"].is_not_null().to_numpy(), rows["time"].is_not_null().to_numpy()
    n_users = int(user.max(initial=-1)) + 1
    of_all, timed = (np.bincount(user[part], minlength=n_users) for part in (entries, entries & given))
    for half in np.flatnonzero((timed > 0) & (timed < of_all))[:1]:
        whose = f" of user number {half + 1:,}" if n_users > 1 else ""  # an id may be somebody's address
        _check_timed(int(timed[half]), int(of_all[half]), whose)


def _places(rows: IntArray) -> IntArray:
    """Return the number of each entry among those of its row, in their order."""
    order, places = np.argsort(rows, kind="stable"), np.empty(len(rows), np.int64)
    places[order] = np.arange(len(rows)) - np.searchsorted(rows[order], rows[order])
    return places


def _read_frame(frame: ArrowStream, bundle: Bundle) -> pl.DataFrame:
    """Return a frame as rows of user and item, with rating and time if they matter."""
    used = bundle.protocol.signals.used
    counts = adds_up(bundle.protocol.read.columns.get("rating"), 0.0)
    rating = None if "grades" in used or counts else "none"
    table, asked = as_frame(frame), Source(data="frame", rating=rating, time=None if bundle.reads_times else "none")
    read = read_table(table, source_as_trained(bundle, table, asked), lone_users=True)
    if bad := read.report.missing + read.report.unparsable:
        log.warning("%d rows without a value or with one that cannot be parsed are left out.", bad)
    return read.rows
