"""The baseline of item features, which can also recommend new items."""

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray
from recfusion.core.rng import RngLike
from recfusion.data.interactions import Signal
from recfusion.data.signals import Extra
from recfusion.data.split import Fold
from recfusion.models.base import Recommender, Shape
from recfusion.models.baselines.popularity import counting_bytes
from recfusion.models.settings import learned

_MATRICES = 4.1  # items x items matrices held at the peak
_FEATURES: frozenset[Signal] = frozenset({"item_features"})


@dataclass
class ContentNeighbours(Recommender):
    """Scores sum_i x_i cos(f_i, f_j): the similarity of an item's features to those of the history."""

    reads: ClassVar[frozenset[Signal]] = _FEATURES
    features_: Csr = learned()  # (items, features), rows of norm 1

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None, extra: Extra | None = None) -> Self:
        self.features_ = item_matrix(extra, train.shape[1])
        return self

    def fit_bytes(self, shape: Shape) -> int:
        return counting_bytes(shape)  # features take little compared with interactions

    def score(self, history: Csr, *, extra: Extra | None = None) -> FloatArray:
        taste = (history @ self.features_).toarray()  # (users, features)
        return np.ascontiguousarray((self.features_ @ taste.T).T, np.float32)


def item_matrix(extra: Extra | None, n_items: int) -> Csr:
    """Return the features of items, (items, features); no columns if there are none."""
    if extra is None or extra.item_features is None:
        return csr_array((n_items, 0), dtype=np.float32)
    return extra.item_features.matrix.astype(np.float32)
