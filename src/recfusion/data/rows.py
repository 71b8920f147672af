"""Rows under preparation as plain arrays: ids as places, in order, one row per user and item.

No step makes a second copy of more than one column: rows may take up half of the memory there is.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.sparse import csc_array

from recfusion.core.arrays import IntArray
from recfusion.core.compiled import compiled
from recfusion.core.errors import InputError
from recfusion.data.interactions import PreparationStep

Codes: TypeAlias = NDArray[np.int32]  # places among the sorted ids
_MANY = 1 << 24  # rows from which on the compiler's seconds are worth the memory
MOST_ROWS = 2**31  # places of entries in a matrix are numbers of 32 bits


def check_rows(count: int, name: str) -> None:
    """Raise where there are more rows than a matrix on one machine has places for."""
    if count >= MOST_ROWS:
        raise InputError(
            f"Expected fewer than {MOST_ROWS:,} rows on one machine, got {count:,} in '{name}': prepare them with "
            "`recfusion spark prepare`."
        )


@dataclass
class Rows:
    """The rows under preparation as parallel arrays; once they are `ordered`, by user and item."""

    user: Codes
    item: Codes
    rating: NDArray[np.float32] | None
    time: NDArray[np.int64] | None
    n_users: int  # that there are places for
    n_items: int

    @cached_property
    def per_user(self) -> IntArray:
        """How many rows each user has."""
        return counts(self.user, self.n_users)

    @cached_property
    def per_item(self) -> IntArray:
        """How many rows each item has."""
        return counts(self.item, self.n_items)

    def keep(self, where: NDArray[np.bool_]) -> None:
        """Leave out the other rows."""
        if not where.all():
            self._take(where)
            for counted in ("per_user", "per_item"):
                self.__dict__.pop(counted, None)

    def keep_users(self, wanted: NDArray[np.bool_]) -> None:
        """Leave out the rows of the other users."""
        if not wanted[self.per_user > 0].all():
            self.keep(wanted[self.user])

    def keep_items(self, wanted: NDArray[np.bool_]) -> None:
        """Leave out the rows of the other items."""
        if not wanted[self.per_item > 0].all():
            self.keep(wanted[self.item])

    def part(self, where: NDArray[np.bool_]) -> "Rows":
        """Return some of the rows, apart."""
        found = replace(self)
        found.keep(where)
        return found

    def order(self) -> None:
        """Put the rows in the order of users and, of each, of items: by two stable sorts that count, items first."""
        if not self._is_ordered():
            by_item = _counted_sort(self.item, np.arange(len(self.item), dtype=np.int32), self.per_item)
            places = _counted_sort(self.user, by_item, self.per_user)
            del by_item
            self._take(places)

    def _is_ordered(self) -> bool:
        for part in _slices(len(self.user)):
            wider = slice(part.start, part.stop + 1)  # with the row after it
            user, item = np.diff(self.user[wider]), np.diff(self.item[wider])
            if not np.all((user > 0) | ((user == 0) & (item >= 0))):
                return False
        return True

    def _take(self, where: NDArray[np.bool_] | Codes) -> None:
        """Take some rows, or all of them in another order; column by column, so that one at a time is there twice."""
        self.user = self.user[where]
        self.item = self.item[where]
        self.rating = None if self.rating is None else self.rating[where]
        self.time = None if self.time is None else self.time[where]

    def step(self, name: str) -> PreparationStep:
        users, items = (int(np.count_nonzero(counted)) for counted in (self.per_user, self.per_item))
        return PreparationStep(name, users, items, len(self.user))


def id_codes(ids: pl.Series) -> tuple[Codes, pl.Series]:
    """Return each id's place among the sorted distinct ids, and those ids.

    Sorted order does not depend on the order of the rows, so equal data gives equal matrices.
    """
    if not ids.dtype.is_integer():
        texts = ids.unique().cast(pl.String).sort()
        return ids.cast(pl.Enum(texts)).to_physical().to_numpy().astype(np.int32), texts
    low, high = cast(int, ids.min()), cast(int, ids.max())
    if high - low >= 4 * len(ids) + 1024:
        distinct, found = np.unique(ids.cast(pl.Int64).to_numpy(), return_inverse=True)
        return found.astype(np.int32), pl.Series(distinct)
    present = np.zeros(high - low + 1, bool)  # a table of the range is far cheaper than a sort
    codes = np.empty(len(ids), np.int32)
    for part in _slices(len(ids)):
        present[ids[part].cast(pl.Int64).to_numpy() - low] = True
    places = np.cumsum(present, dtype=np.int32) - np.int32(1)
    for part in _slices(len(ids)):
        codes[part] = places[ids[part].cast(pl.Int64).to_numpy() - low]
    return codes, pl.Series(np.flatnonzero(present) + low)


def known_codes(places: pl.Series, ids: pl.Series) -> tuple[Codes, pl.Series]:
    """Return places in sorted ids as places among those of them that occur, and these."""
    codes = places.to_numpy().view(np.int32)
    present = counts(codes, len(ids)) > 0
    return places_among(present, codes), ids if present.all() else ids.filter(pl.Series(present))


def _counted_sort(codes: Codes, places: Codes, per_code: IntArray) -> Codes:
    """Return the places in the order of their codes, those of equal codes in their own."""
    if len(codes) < _MANY:
        # That is what turning a matrix of one column from columns to rows comes to.
        column = csc_array((places, codes[places], [0, len(codes)]), shape=(len(per_code), 1))
        return np.asarray(column.tocsr().data)
    found = np.empty_like(places)
    compiled(_place)(codes, places, np.cumsum(per_code) - per_code, found)
    return found


def _place(codes: Codes, places: Codes, starts: IntArray, found: Codes) -> None:
    """Put each place where the next one of its code belongs; `starts` are moved."""
    for place in places:
        code = codes[place]
        found[starts[code]] = place
        starts[code] += 1


def drop_duplicates(rows: Rows, *, added: bool) -> None:
    """Keep one row per user and item of ordered rows: the latest, among equals the one with the highest rating.

    Where numbers are `added` up, it has their sum, returns taken off, and the time of the last that is no return.
    """
    repeats = (rows.user[1:] == rows.user[:-1]) & (rows.item[1:] == rows.item[:-1])
    if not repeats.any():
        return
    again, more = np.append(False, repeats), np.append(repeats, False)  # the row before is the same pair, or the next
    several = np.flatnonzero(again | more)  # most pairs have one row, and nothing to decide
    pair = np.cumsum(~again[several])
    tie_breakers: list[NDArray[Any]] = [values[several] for values in (rows.rating, rows.time) if values is not None]
    if added and rows.rating is not None:  # a return does not make a purchase younger
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


def places_among(present: NDArray[np.bool_], codes: Codes) -> Codes:
    """Return codes of which some occur as places among these."""
    return codes if present.all() else (np.cumsum(present, dtype=np.int32) - np.int32(1))[codes]


def counts(codes: Codes, n_codes: int = 0) -> IntArray:
    """Return how often each code occurs."""
    found = np.zeros(max(n_codes, int(codes.max(initial=-1)) + 1), np.int64)
    for part in _slices(len(codes)):  # bincount makes numbers of 64 bits of what it counts
        some = np.bincount(codes[part])
        found[: len(some)] += some
    return found


def _slices(count: int, step: int = 1 << 22) -> Iterator[slice]:
    return (slice(start, start + step) for start in range(0, count, step))
