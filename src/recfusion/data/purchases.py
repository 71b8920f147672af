"""Repeat purchases: how often and when a user bought an item. Purchases of one day (UTC) count once, as one basket."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from recfusion.core.arrays import IntArray, row_numbers

if TYPE_CHECKING:
    from recfusion.data.interactions import Interactions
    from recfusion.data.rows import Rows

DAY = 86400  # seconds
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Purchases:
    """Single purchases in no particular order; a time is NaN if it is unknown."""

    user: IntArray
    item: IntArray
    time: Numbers  # seconds since 1970

    def where(self, keep: NDArray[np.bool_]) -> "Purchases":
        """Return some of the purchases."""
        return Purchases(self.user[keep], self.item[keep], self.time[keep])


@dataclass(frozen=True)
class Pairs:
    """Users with the items that they bought, sorted by user and item; times are NaN if they are unknown."""

    user: IntArray
    item: IntArray
    count: Numbers  # baskets with the item
    first: Numbers  # seconds since 1970
    last: Numbers
    baskets: Numbers  # of the user, with any item; NaN without times

    @classmethod
    def of(cls, bought: Purchases) -> "Pairs":
        """Return the pairs of these purchases; purchases without times are baskets of their own."""
        order = np.lexsort((bought.time, bought.item, bought.user))
        user, item, time = bought.user[order], bought.item[order], bought.time[order]
        new = np.append(True, (np.diff(user) != 0) | (np.diff(item) != 0))[: len(user)]
        day = time // DAY
        start = np.flatnonzero(new)
        count = np.add.reduceat(new | (day != np.roll(day, 1)), start, dtype=np.float64) if len(start) else np.zeros(0)
        last = time[np.append(start[1:], len(time)) - 1] if len(start) else time
        known = ~np.isnan(time)
        days = np.unique(np.stack([user[known], day[known]]), axis=1)[0].astype(np.int64)
        baskets = np.bincount(days, minlength=int(user.max(initial=-1)) + 1).astype(np.float64)
        return cls(
            user[start], item[start], count, time[start], last, np.where(np.isnan(last), np.nan, baskets[user[start]])
        )

    def where(self, keep: NDArray[np.bool_] | slice) -> "Pairs":
        """Return some of the pairs."""
        return Pairs(**{name: values[keep] for name, values in vars(self).items()})


def repeated_rows(rows: "Rows") -> Purchases:
    """Return the purchases in sorted rows that share a user and item with another row, without returns."""
    same = (rows.user[1:] == rows.user[:-1]) & (rows.item[1:] == rows.item[:-1])
    several = np.append(False, same) | np.append(same, False)
    if rows.rating is not None:
        several &= rows.rating > 0
    assert rows.time is not None
    user, item = rows.user[several].astype(np.int64), rows.item[several].astype(np.int64)
    return Purchases(user, item, rows.time[several].astype(np.float64))


def earlier_purchases(repeated: Purchases, rows: "Rows") -> tuple[IntArray, IntArray]:
    """Return the row of each purchase on an earlier day than the row's own time, and its time, both sorted."""
    assert rows.time is not None
    keys = rows.user.astype(np.int64) * rows.n_items + rows.item
    place = np.minimum(np.searchsorted(keys, own := repeated.user * rows.n_items + repeated.item), len(keys) - 1)
    keep = (keys[place] == own) & (repeated.time // DAY < rows.time[place] // DAY)
    return np.unique(np.stack([place[keep], repeated.time[keep].astype(np.int64)]), axis=1)  # type: ignore[return-value]


def all_purchases(data: "Interactions") -> Purchases | None:
    """Return all purchases in prepared data; None if the times of repeat purchases are unknown."""
    if data.times is None or data.earlier is None:
        return None
    entry = np.concatenate([np.arange(data.n_interactions), data.earlier[0]])
    time = np.concatenate([data.times, data.earlier[1]]).astype(np.float64)
    return Purchases(
        row_numbers(data.matrix).astype(np.int64)[entry], data.matrix.indices.astype(np.int64)[entry], time
    )
