"""The rows of a preparation as parallel arrays with encoded ids: sorting, filtering, removing duplicates.

Rows may take half of the memory, so no step copies more than one column at a time.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.sparse import csc_array

from recfusion.core.arrays import IntArray
from recfusion.core.compiled import compiled
from recfusion.core.errors import InputError
from recfusion.core.extras import is_installed
from recfusion.data.interactions import PreparationStep
from recfusion.data.reading.id_codes import Codes, encode_ids

_MANY_ROWS = 1 << 24  # from here on, saving memory is worth the time to compile the sort
MAX_ROWS = 2**31  # matrices index their entries with 32 bits


def check_row_count(count: int, name: str) -> None:
    """Raise if there are more rows than a matrix on one machine can index."""
    if count >= MAX_ROWS:
        raise InputError(
            f"Expected fewer than {MAX_ROWS:,} rows on one machine, got {count:,} in '{name}': prepare them with "
            "`recfusion spark prepare`."
        )


@dataclass
class Rows:
    """Parallel arrays, one entry per row; sorted by user and item after `order`."""

    user: Codes
    item: Codes
    rating: NDArray[np.float32] | None
    time: NDArray[np.int64] | None
    n_users: int  # number of codes
    n_items: int
    part: NDArray[np.int8] | None = None  # of a given split

    @cached_property
    def per_user(self) -> IntArray:
        """How many rows each user has."""
        return count_codes(self.user, self.n_users)

    @cached_property
    def per_item(self) -> IntArray:
        """How many rows each item has."""
        return count_codes(self.item, self.n_items)

    def keep(self, where: NDArray[np.bool_]) -> None:
        """Drop the other rows."""
        if not where.all():
            self._take(where)
            for counted in ("per_user", "per_item"):
                self.__dict__.pop(counted, None)

    def keep_users(self, wanted: NDArray[np.bool_]) -> None:
        """Drop the rows of the other users."""
        if not wanted[self.per_user > 0].all():
            self.keep(wanted[self.user])

    def keep_items(self, wanted: NDArray[np.bool_]) -> None:
        """Drop the rows of the other items."""
        if not wanted[self.per_item > 0].all():
            self.keep(wanted[self.item])

    def subset(self, where: NDArray[np.bool_]) -> "Rows":
        """Return some of the rows as a copy."""
        found = replace(self)
        found.keep(where)
        return found

    def order(self) -> None:
        """Sort the rows by user, then by item: two stable counting sorts, items first."""
        if not self._is_ordered():
            by_item = _counting_sort(self.item, np.arange(len(self.item), dtype=np.int32), self.per_item)
            order = _counting_sort(self.user, by_item, self.per_user)
            del by_item
            self._take(order)

    def _is_ordered(self) -> bool:
        for part in _slices(len(self.user)):
            wider = slice(part.start, part.stop + 1)  # with the row after it
            user, item = np.diff(self.user[wider]), np.diff(self.item[wider])
            if not np.all((user > 0) | ((user == 0) & (item >= 0))):
                return False
        return True

    def _take(self, where: NDArray[np.bool_] | Codes) -> None:
        """Select or reorder rows, one column at a time to save memory."""
        self.user = self.user[where]
        self.item = self.item[where]
        self.rating = None if self.rating is None else self.rating[where]
        self.time = None if self.time is None else self.time[where]
        self.part = None if self.part is None else self.part[where]

    def step(self, name: str) -> PreparationStep:
        """Return the counts of these rows as a step of the preparation."""
        users, items = (int(np.count_nonzero(counted)) for counted in (self.per_user, self.per_item))
        return PreparationStep(name, users, items, len(self.user))


def encode_rows(frame: pl.DataFrame, ids: Mapping[str, pl.Series]) -> tuple[Rows, pl.Series, pl.Series]:
    """Return the rows with encoded ids, and the sorted ids of users and items; roles in `ids` are encoded already."""
    (user, users), (item, items) = (
        (frame[role].to_numpy(), ids[role]) if role in ids else encode_ids(frame[role]) for role in ("user", "item")
    )
    kinds: tuple[tuple[str, Any], ...] = (("rating", np.float32), ("time", np.int64), ("part", np.int8))
    rating, time, part = (
        frame[name].to_numpy().astype(kind, copy=False) if name in frame.columns else None for name, kind in kinds
    )
    return Rows(user, item, rating, time, len(users), len(items), part), users, items


def _counting_sort(codes: Codes, rows: Codes, per_code: IntArray) -> Codes:
    """Return the row numbers `rows` sorted by code, stable."""
    if len(codes) < _MANY_ROWS or not is_installed("numba"):
        # Converting a matrix of one column from CSC to CSR is a counting sort.
        column = csc_array((rows, codes[rows], [0, len(codes)]), shape=(len(per_code), 1))
        return np.asarray(column.tocsr().data)
    found = np.empty_like(rows)
    compiled(_fill_sorted)(codes, rows, np.cumsum(per_code) - per_code, found)
    return found


def _fill_sorted(codes: Codes, rows: Codes, starts: IntArray, found: Codes) -> None:
    """Write each row number to the next free position of its code; advances `starts`."""
    for row in rows:
        code = codes[row]
        found[starts[code]] = row
        starts[code] += 1


def drop_duplicates(rows: Rows, *, added: bool) -> None:
    """Keep one row per user and item of sorted rows: the latest; if several are latest, the highest rating.

    If numbers are `added` up, the row has their sum, minus returns, and the time of the last purchase.
    """
    repeats = (rows.user[1:] == rows.user[:-1]) & (rows.item[1:] == rows.item[:-1])
    if not repeats.any():
        return
    again, more = (np.append(False, repeats), np.append(repeats, False))  # same pair as the row before, or after
    several = np.flatnonzero(again | more)  # most pairs have a single row
    pair = np.cumsum(~again[several])
    tie_breakers: list[NDArray[Any]] = [values[several] for values in (rows.rating, rows.time) if values is not None]
    if added and rows.rating is not None:  # a return must not change the time of a purchase
        tie_breakers.append(rows.rating[several] > 0)
    order = np.lexsort((*tie_breakers, pair))
    chosen = several[order[~more[several]]]  # the last of each pair
    if added and rows.rating is not None:
        first = np.flatnonzero(~again[several])
        rows.rating = rows.rating.copy()
        rows.rating[chosen] = np.add.reduceat(rows.rating[several].astype(np.float64), first)
    keep = ~(again | more)
    keep[chosen] = True
    rows.keep(keep)


def count_codes(codes: Codes, n_codes: int = 0) -> IntArray:
    """Return how often each code occurs."""
    found = np.zeros(max(n_codes, int(codes.max(initial=-1)) + 1), np.int64)
    for part in _slices(len(codes)):  # bincount converts its input to 64 bits
        some = np.bincount(codes[part])
        found[: len(some)] += some
    return found


def _slices(count: int, step: int = 1 << 22) -> Iterator[slice]:
    return (slice(start, start + step) for start in range(0, count, step))
