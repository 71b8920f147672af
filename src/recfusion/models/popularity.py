"""The most popular items for everybody."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from recfusion.core.arrays import Csr, FloatArray, column_counts
from recfusion.core.rng import RngLike
from recfusion.data.split import Fold
from recfusion.models.base import Recommender
from recfusion.models.settings import learned


@dataclass
class Popularity(Recommender):
    """Scores count / max count, the same for every user."""

    popularity_: FloatArray = learned()  # (items,)

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        counts = column_counts(train)
        self.popularity_ = (counts / max(1, counts.max())).astype(np.float32)
        return self

    def score(self, history: Csr) -> FloatArray:
        return np.tile(self.popularity_, (history.shape[0], 1))
