"""EASE: the linear autoencoder with a zero diagonal, in closed form (Steck, 2019)."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from recfusion.core.arrays import Csr, FloatArray
from recfusion.core.rng import RngLike
from recfusion.data.split import Fold
from recfusion.models.base import Recommender, learned, setting
from recfusion.models.gram import gram, invert_in_place, require_gram_memory


@dataclass
class EASE(Recommender):
    """Item-item weights B that minimise |X - XB|^2 + l2 |B|^2 with diag(B) = 0.

    With P = (X'X + l2 I)^-1 the solution is B_ij = -P_ij / P_jj off the diagonal.
    """

    l2: float = setting(500.0, "weight of the squared penalty", at_least=1e-6, search=(1.0, 10_000.0), log=True)
    weights_: FloatArray = learned()  # (items, items)

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        n_items = train.shape[1]
        require_gram_memory(n_items, "EASE", n_matrices=1.1)
        g = gram(train)
        g[np.diag_indices(n_items)] += np.float32(self.l2)
        weights = invert_in_place(g).T  # P is symmetric: its transpose is P itself, in the order that scoring wants
        weights /= -np.diag(weights).copy()  # column j by -P_jj
        np.fill_diagonal(weights, 0)
        self.weights_ = weights
        return self

    def score(self, history: Csr) -> FloatArray:
        return np.asarray(history @ self.weights_)
