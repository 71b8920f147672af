"""Order and age of interactions: weights of history entries, recent popularity; the model `recent-popularity`."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from recfusion.core.arrays import Csr, FloatArray, IntArray, column_counts, row_numbers
from recfusion.core.rng import RngLike
from recfusion.data.interactions import Signal
from recfusion.data.signals import Extra, valued
from recfusion.data.split import Fold
from recfusion.models.base import Recommender, Shape
from recfusion.models.settings import learned, setting

DAY = 86_400.0
_WEEK = 7 * DAY
_LOWEST = 1e-3  # of a rating: an entry of weight 0 would be none
Powers = tuple[float, float]  # of recency and of ratings, in the weights of history entries
UNWEIGHTED: Powers = (0.0, 0.0)


def recency(times: Csr, power: float, by: Literal["rank", "age"] = "rank") -> FloatArray:
    """Return the weight (1 + r)^-power of each stored entry, scaled to a mean of 1 in each row.

    r is the number of newer entries in the row ("rank"), or the age in weeks relative to the row's newest entry
    ("age"). Entries with equal times, such as those of one invoice, have equal weights.
    """
    r = newer(times) if by == "rank" else (newest(times)[row_numbers(times)] - times.data) / _WEEK
    return _mean_one(times, (1.0 + r) ** -power)


def weighted_entries(history: Csr, extra: Extra | None, powers: Powers) -> Csr:
    """Return histories with the entry weights (1 + r)^-p g^q, scaled to a mean of 1 in each row, for p, q = powers.

    r is the number of newer entries, g the rating or count, at least 0; a signal that is not known weights nothing.
    """
    p, q = powers
    times, grades = (None, None) if extra is None else (extra.times if p else None, extra.grades if q else None)
    if times is None and grades is None:
        return history
    weights = np.ones(history.nnz) if times is None else (1.0 + newer(times)) ** -p
    if grades is not None:
        weights = weights * np.maximum(grades.data, _LOWEST) ** q
    return valued(history, _mean_one(history, weights))


def _mean_one(rows: Csr, weights: NDArray[Any]) -> FloatArray:
    """Return weights of the stored entries, scaled to a mean of 1 in each row."""
    lengths = np.diff(rows.indptr)
    sums = np.bincount(row_numbers(rows), weights, rows.shape[0])
    return (weights * np.repeat(lengths / np.maximum(sums, 1e-12), lengths)).astype(np.float32)


def in_order(history: Csr, extra: Extra | None) -> Csr:
    """Return histories with values that increase with time; entries with equal times have equal values.

    The newest entry has 0, and one with r newer entries has -r. Without times all values are 0.
    """
    times = None if extra is None else extra.times
    order = np.zeros(history.nnz) if times is None else -newer(times)
    return valued(history, order.astype(np.float32))


def fades(times: Csr, days: float) -> FloatArray:
    """Return sqrt(1 / (1 + age / days)) of each stored entry, scaled to a mean square of 1."""
    age = (times.data.max(initial=0) - times.data) / (days * DAY)
    weights = 1 / (1 + age)
    return np.sqrt(weights / max(float(weights.mean()) if len(weights) else 1.0, 1e-12)).astype(np.float32)


def newer(times: Csr) -> IntArray:
    """Return, for each stored entry, the number of entries of its row with a later time."""
    rows = row_numbers(times)
    order = np.lexsort((-times.data, rows))
    of_row, when = rows[order], times.data[order]
    begins = np.ones(times.nnz, bool)
    begins[1:] = (of_row[1:] != of_row[:-1]) | (when[1:] != when[:-1])
    first = np.maximum.accumulate(np.where(begins, np.arange(times.nnz), 0))  # first entry with that time
    found = np.empty(times.nnz, np.int64)
    found[order] = first - times.indptr[:-1][of_row]
    return found


def newest(times: Csr) -> NDArray[np.int64]:
    """Return the latest time of each row, (users,)."""
    found = np.full(times.shape[0], np.iinfo(np.int64).min)
    np.maximum.at(found, row_numbers(times), times.data)
    return found


def recent_counts(times: Csr, days: float = 30.0) -> NDArray[np.float64]:
    """Return the number of users of each item, each weighted 1 / (1 + age / days)."""
    age = (times.data.max(initial=0) - times.data) / (days * DAY)
    return np.bincount(times.indices, 1 / (1 + age), times.shape[1]).astype(np.float64)


@dataclass
class RecentPopularity(Recommender):
    """Scores by the number of recent users, the same for everybody; without times, by the number of users."""

    reads: ClassVar[frozenset[Signal]] = frozenset({"times"})
    days: float = setting(30.0, "age in days of an interaction of weight 1/2", at_least=1e-3, search=(1, 365), log=True)
    popularity_: FloatArray = learned()  # (items,)

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None, extra: Extra | None = None) -> Self:
        times = None if extra is None else extra.times
        counts = column_counts(train).astype(np.float64) if times is None else recent_counts(times, self.days)
        self.popularity_ = (counts / max(float(counts.max(initial=0)), 1e-12)).astype(np.float32)
        return self

    def fit_bytes(self, shape: Shape) -> int:
        return 32 * shape.interactions + 32 * shape.items

    def score(self, history: Csr, *, extra: Extra | None = None) -> FloatArray:
        return np.tile(self.popularity_, (history.shape[0], 1))
