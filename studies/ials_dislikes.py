"""iALS with known dislikes in the loss. Load it as `studies/ials_dislikes.py:IALSDislikes`."""

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray
from recfusion.core.rng import RngLike
from recfusion.data.interactions import Signal
from recfusion.data.signals import Extra
from recfusion.data.split import Fold
from recfusion.models.factors.ials import IALS
from recfusion.models.settings import setting


@dataclass
class IALSDislikes(IALS):
    """iALS with one more term in the loss: dislike * sum over known dislikes of (w_u.v_i)^2.

    iALS is fitted on the likes; a few passes with the dislikes follow.
    """

    reads: ClassVar[frozenset[Signal]] = frozenset({"grades"})
    dislike: float = setting(0.3, "weight of a known dislike, beside alpha0", at_least=0, search=(0.03, 3.0), log=True)
    passes: int = setting(3, "passes over users and items with the dislikes", at_least=0, at_most=10_000)

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None, extra: Extra | None = None) -> Self:
        super().fit(train, valid, rng=rng)
        if extra is None or extra.disliked is None:
            return self
        by_item, disliked_by = train.T.tocsr(), csr_array(extra.disliked.T.tocsr())
        for _ in range(self.passes):
            users = self._with_dislikes(train, extra.disliked, self.items_)
            self.items_ = self._with_dislikes(by_item, disliked_by, users)
        return self

    def score(self, history: Csr, *, extra: Extra | None = None) -> FloatArray:
        if extra is None or extra.disliked is None:
            return super().score(history)
        return np.asarray(self._with_dislikes(history, extra.disliked, self.items_) @ self.items_.T)

    def _with_dislikes(self, rows: Csr, disliked: Csr, fixed: FloatArray) -> FloatArray:
        return half_step(rows, disliked, fixed, self.alpha0_, self._penalties(rows), self.dislike)


def half_step(rows: Csr, disliked: Csr, fixed: FloatArray, alpha0: float, l2: FloatArray, weight: float) -> FloatArray:
    """Return the factors (rows, d) that minimise the loss for fixed factors V of the columns.

    Row r solves (alpha0 V'V + sum over its ones of v v' + weight * sum over its dislikes of v v' + l2_r I) w = sum over
    its ones of v.
    """
    base = alpha0 * fixed.T @ fixed
    eye = np.eye(fixed.shape[1], dtype=np.float32)
    solved = np.zeros((rows.shape[0], fixed.shape[1]), np.float32)
    for row in range(rows.shape[0]):
        own = fixed[rows.indices[rows.indptr[row] : rows.indptr[row + 1]]]
        if len(own):
            known = fixed[disliked.indices[disliked.indptr[row] : disliked.indptr[row + 1]]]
            a = base + own.T @ own + np.float32(weight) * known.T @ known + l2[row] * eye
            solved[row] = np.linalg.solve(a, own.sum(axis=0))
    return solved
