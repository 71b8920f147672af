"""The simplest baselines: random items, and the most popular items."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from recfusion.core.arrays import Csr, FloatArray, column_counts, row_numbers
from recfusion.core.rng import RngLike, make_rng
from recfusion.data.split import Fold
from recfusion.models.base import Recommender, Shape
from recfusion.models.settings import learned


@dataclass
class Random(Recommender):
    """Uniformly random scores of the items seen in training; other items are never recommended.

    Scores are a hash of seed, history and item, so they do not depend on the batch or the order of the users.
    """

    key_: NDArray[np.int64] = learned()  # (1,)
    seen_: NDArray[np.bool_] = learned()  # (items,)

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        self.key_ = make_rng(rng).integers(0, 2**63 - 1, 1)
        self.seen_ = column_counts(train) > 0
        return self

    def fit_bytes(self, shape: Shape) -> int:
        return counting_bytes(shape)

    def score(self, history: Csr) -> FloatArray:
        n_users, n_items = history.shape
        per_item = _mix(np.arange(n_items, dtype=np.uint64) + self.key_.astype(np.uint64))
        per_user = np.zeros(n_users, np.uint64)
        np.add.at(per_user, row_numbers(history), per_item[history.indices])
        bits = _mix(_mix(per_user)[:, None] ^ per_item)  # (users, items)
        scores = (bits >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)
        scores[:, ~self.seen_] = -np.inf
        return scores


@dataclass
class Popularity(Recommender):
    """Scores count / max count, the same for every user."""

    popularity_: FloatArray = learned()  # (items,)

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        counts = column_counts(train)
        self.popularity_ = (counts / max(1, counts.max())).astype(np.float32)
        return self

    def fit_bytes(self, shape: Shape) -> int:
        return counting_bytes(shape)

    def score(self, history: Csr) -> FloatArray:
        return np.tile(self.popularity_, (history.shape[0], 1))


def counting_bytes(shape: Shape) -> int:
    """Return the bytes for counting the users of each item; numpy converts the items to 64 bits."""
    return 8 * shape.interactions + 32 * shape.items


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return well-mixed bits of each number (the finaliser of SplitMix64, after Steele, Lea and Flood 2014)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
