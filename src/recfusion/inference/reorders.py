"""Re-orders: how likely a user buys an item again, on the same scale as items that are new to the user.

A logistic regression on five numbers of a user and an item gives the probability that the user's next purchases contain
the item; a second one gives that of an unseen item, by its rank in the model's list. `experiments/reorders.py` fits
both. A bought item gets the score of the unseen items that are as likely as it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recfusion.core.arrays import Csr, FloatArray
from recfusion.data.purchases import DAY, Numbers, Pairs, Purchases

_STRENGTH = 2  # gaps that the mean of the level above counts for
_HALF_LIFE = 14 * DAY  # of a re-order in an item's rate
_TOP = 10  # ranks that define the unit of scores above the best unseen item


@dataclass(frozen=True)
class Rates:
    """How items are bought again, for a user's purchases up to a moment.

    The logit of a re-order is again . (features - means), with 0 for a feature that is unknown; that of the unseen item
    at rank r is new . (1, log r, log of the user's baskets).
    """

    intervals: FloatArray  # (items,): usual days between two purchases of the item
    reorders: FloatArray  # (items,): log(1 + recent re-orders)
    means: FloatArray  # (features,)
    again: FloatArray  # (1 + features,): the constant first
    new: FloatArray  # (3,)
    until: float  # the newest time of the training data, seconds since 1970

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all numbers as arrays, for a file."""
        return {name: np.atleast_1d(np.asarray(value)) for name, value in vars(self).items()}

    @classmethod
    def of_arrays(cls, arrays: dict[str, NDArray[Any]]) -> "Rates":
        """Return the rates in a file; other arrays than expected raise a ValueError."""
        sizes = {"means": 5, "again": 6, "new": 3, "until": 1}
        wrong = [name for name, size in sizes.items() if arrays[name].shape != (size,)]
        intervals, reorders = arrays["intervals"], arrays["reorders"]
        if wrong or intervals.ndim != 1 or intervals.shape != reorders.shape or not (intervals > 0).all():
            raise ValueError("its rates of re-orders do not fit together")
        parts: dict[str, Any] = arrays | {"until": float(arrays["until"][0])}
        return cls(**parts)

    def logits(self, pairs: Pairs) -> Numbers:
        """Return the logit of a re-order of each pair, at the newest time that the model or the user's history has."""
        return self.again[0] + _centred(self.features(pairs), self.means) @ self.again[1:]

    def texts(self, pairs: Pairs) -> list[str]:
        """Return sentences such as "bought 3 times, usually every 28 days, last 30 days ago"."""
        age, own = _ages(pairs, self.until) / DAY, self._own_intervals(pairs)
        return [_text(*numbers) for numbers in zip(pairs.count.tolist(), own.tolist(), age.tolist(), strict=True)]

    def scores(self, pairs: Pairs, unseen: FloatArray) -> FloatArray:
        """Return one user's scores of bought items, by the scores of the unseen items, best first.

        A bought item is as likely as the unseen item at some rank r, and gets the score at r. Ranks are interpolated by
        their logarithms; beyond both ends the scores continue with the mean slope of the best ten. Different logits
        never become equal scores.
        """
        logits = self.logits(pairs)
        order = np.argsort(-logits, kind="stable")
        first = self.new[0] + self.new[2] * _centred(np.log(pairs.baskets[:1]), self.means[1]).sum()
        rank = (first - logits[order]) / -self.new[1]  # log r
        values = unseen.astype(np.float64) if len(unseen) else np.zeros(1)
        ranks = np.log(np.arange(1, len(values) + 1))
        top = min(_TOP, len(values)) - 1
        slope = max((values[0] - values[top]) / max(ranks[top], 1.0), 1e-6 * max(1.0, np.abs(values).max()))
        beyond = np.minimum(rank, 0.0) + np.maximum(rank - ranks[-1], 0.0)
        found = (np.interp(rank, ranks, values) - slope * beyond).astype(np.float32)
        for place in range(1, len(found)):
            if found[place] >= found[place - 1] and rank[place] > rank[place - 1]:
                found[place] = np.nextafter(found[place - 1], np.float32(-np.inf))
        scores = np.empty_like(found)
        scores[order] = found
        return scores

    def features(self, pairs: Pairs) -> Numbers:
        """Return log count, log baskets, log age, log of age by interval, and re-orders of the item; (pairs, 5)."""
        age = _ages(pairs, self.until) / DAY
        due = np.log(age / self._own_intervals(pairs) + 0.1)
        known = self.reorders[np.minimum(pairs.item, len(self.reorders) - 1)]
        reorders = np.where(pairs.item < len(self.reorders), known, np.nan)
        return np.stack([np.log(pairs.count), np.log(pairs.baskets), np.log1p(age), due, reorders], axis=1)

    def _own_intervals(self, pairs: Pairs) -> Numbers:
        """Return the days between purchases of each pair: the mean of its gaps, shrunk towards the item's interval."""
        known = self.intervals[np.minimum(pairs.item, len(self.intervals) - 1)]
        usual = np.where(pairs.item < len(self.intervals), known, self.intervals.mean())
        return shrunk((pairs.last - pairs.first) / DAY, pairs.count - 1, usual)


def shrunk(total: Numbers, count: Numbers, prior: NDArray[np.floating] | float) -> Numbers:
    """Return means of gaps, given their sums and numbers, shrunk towards a prior that counts for two gaps."""
    return (total + _STRENGTH * prior) / (count + _STRENGTH)


def item_intervals(pairs: Pairs, n_items: int, chances: Csr | None = None) -> Numbers:
    """Return the usual days between two purchases of each item, (items,).

    The mean gap of an item is shrunk towards that of its category, and this towards the mean of all items. `chances`
    (items, categories) are p(category | item).
    """
    total = np.bincount(pairs.item, (pairs.last - pairs.first) / DAY, n_items).astype(np.float64)
    count = np.bincount(pairs.item, pairs.count - 1, n_items).astype(np.float64)
    mean = total.sum() / max(count.sum(), 1)
    prior: Numbers | float = mean
    if chances is not None:
        of_category = shrunk(np.asarray(chances.T @ total, np.float64), np.asarray(chances.T @ count, np.float64), mean)
        prior = np.where(np.diff(chances.indptr) > 0, chances @ of_category, mean)
    return shrunk(total, count, prior)


def describe_items(bought: Purchases, pairs: Pairs, n_items: int, now: float, chances: Csr | None) -> Rates:
    """Return the items' part of the rates: intervals and recent re-orders at a moment."""
    order = np.lexsort((bought.time, bought.item, bought.user))
    same = (np.diff(bought.user[order]) == 0) & (np.diff(bought.item[order]) == 0)
    later = order[1:][same]
    recent = np.bincount(bought.item[later], 0.5 ** ((now - bought.time[later]) / _HALF_LIFE), n_items)
    nothing = np.zeros(0, np.float32)
    intervals = item_intervals(pairs, n_items, chances).astype(np.float32)
    return Rates(intervals, np.log1p(recent).astype(np.float32), nothing, nothing, nothing, now)


def _ages(pairs: Pairs, until: float) -> Numbers:
    """Return the seconds since each last purchase, up to `until` or the user's own newest purchase if that is later."""
    newest = np.full(int(pairs.user.max(initial=-1)) + 1, until)
    np.fmax.at(newest, pairs.user, pairs.last)
    return newest[pairs.user] - pairs.last


def _centred(features: Numbers, means: NDArray[np.floating] | np.floating) -> Numbers:
    """Return features minus their means; 0 for an unknown one."""
    return np.nan_to_num(features - means)


def _text(count: float, interval: float, age: float) -> str:
    times = "once" if count == 1 else "twice" if count == 2 else f"{count:.0f} times"
    usual = f", usually every {max(1, round(interval)):,} days" if count > 1 and not np.isnan(interval) else ""
    days = "" if np.isnan(age) else ", last today" if age < 1 else f", last {age:,.0f} days ago"
    return f"bought {times}{usual}{days}"
