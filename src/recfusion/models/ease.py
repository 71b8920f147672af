"""EASE: the linear autoencoder with a zero diagonal, in closed form (Steck, 2019)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from recfusion.core.arrays import Csr, FloatArray
from recfusion.core.rng import RngLike, make_rng
from recfusion.data.split import Fold
from recfusion.models.base import Recommender
from recfusion.models.gram import gram, item_weights, require_gram_memory
from recfusion.models.selftune import MOST_ITEMS, Judged, ndcg, searched_items, searches, settle, trials_setting
from recfusion.models.settings import learned, self_tuned


@dataclass
class EASE(Recommender):
    """Item-item weights B that minimise |X - XB|^2 + l2 |B|^2 with diag(B) = 0.

    With P = (X'X + l2 I)^-1 the solution is B_ij = -P_ij / P_jj off the diagonal.
    """

    l2: float | None = self_tuned(500.0, "weight of the squared penalty", at_least=1e-6, search=(1, 1e4), log=True)
    tune_trials: int = trials_setting()
    l2_: float = learned()
    weights_: FloatArray = learned()  # (items, items)

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        copied = searches(self, valid) and train.shape[1] <= MOST_ITEMS
        require_gram_memory(train.shape[1], "EASE", n_matrices=2.1 if copied else 1.1)
        small, seen = searched_items(train, valid)
        g = gram(small)

        def objective(values: Mapping[str, Any], seen: Fold) -> list[Judged]:
            weights = item_weights(g.copy(order="F"), values["l2"])
            return [Judged({}, ndcg(lambda history: history @ weights, seen)[0])]

        self.trials_ = 0
        settle(self, objective, seen, make_rng(rng), searched=("l2",), trials=self.tune_trials)
        self.weights_ = item_weights(g if small is train else gram(train), self.l2_)
        return self

    def score(self, history: Csr) -> FloatArray:
        return np.asarray(history @ self.weights_)
