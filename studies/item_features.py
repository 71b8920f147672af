"""Baselines with item features, which can also recommend new items.

Load them as `studies/item_features.py:CategoryPopularity` and `studies/item_features.py:CollectiveEASE`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray, column_counts
from recfusion.core.rng import RngLike, make_rng
from recfusion.data.interactions import Signal
from recfusion.data.signals import Extra
from recfusion.data.split import Fold
from recfusion.models import self_tuning as selftune
from recfusion.models.base import Recommender, Shape
from recfusion.models.baselines.content import item_matrix
from recfusion.models.baselines.popularity import counting_bytes
from recfusion.models.linear.gram import gram, gram_bytes, require_gram_memory, solve_items
from recfusion.models.settings import learned, self_tuned

_MATRICES = 4.1  # items x items matrices held at the peak
_FEATURES: frozenset[Signal] = frozenset({"item_features"})


@dataclass
class CategoryPopularity(Recommender):
    """Scores popularity times the mean share of the item's features in the history.

    An item without users has the mean popularity of the items with its features. For an empty history all features
    have equal shares.
    """

    reads: ClassVar[frozenset[Signal]] = _FEATURES
    features_: Csr = learned()  # (items, features): rows with sum 1
    popularity_: FloatArray = learned()  # (items,)

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None, extra: Extra | None = None) -> Self:
        given = item_matrix(extra, train.shape[1])
        shares = np.repeat(1 / np.maximum(np.diff(given.indptr), 1), np.diff(given.indptr)).astype(np.float32)
        self.features_ = csr_array((shares, given.indices, given.indptr), shape=given.shape)
        counts = column_counts(train).astype(np.float32)
        known = counts > 0
        there = (self.features_.T @ known.astype(np.float32)).clip(1e-6)
        typical = self.features_ @ ((self.features_.T @ counts) / there)
        self.popularity_ = np.where(known, counts, typical).astype(np.float32)
        self.popularity_ /= max(1.0, float(self.popularity_.max(initial=0)))
        return self

    def fit_bytes(self, shape: Shape) -> int:
        return counting_bytes(shape)  # features take little compared with interactions

    def score(self, history: Csr, *, extra: Extra | None = None) -> FloatArray:
        taste = (history @ self.features_).toarray()
        taste /= np.maximum(taste.sum(axis=1, keepdims=True), 1e-6)
        taste[np.diff(history.indptr) == 0] = 1
        if not taste.shape[1]:
            return np.tile(self.popularity_, (history.shape[0], 1))
        return np.ascontiguousarray((self.features_ @ taste.T).T * self.popularity_, np.float32)


@dataclass
class CollectiveEASE(Recommender):
    """EASE on users and features together: each feature acts as a user with its items (Jeunen et al., 2020).

    G = X'X + weight F F'. Features connect an item without users to the others.
    """

    reads: ClassVar[frozenset[Signal]] = _FEATURES
    l2: float | None = self_tuned(500.0, "weight of the squared penalty", at_least=1e-6, search=(1, 1e4), log=True)
    weight: float | None = self_tuned(100.0, "weight of a feature, in users", at_least=0, search=(1, 1e4), log=True)
    tune_trials: int = selftune.trials_setting()
    l2_: float = learned()
    weight_: float = learned()
    weights_: FloatArray = learned()  # (items, items)

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None, extra: Extra | None = None) -> Self:
        require_gram_memory(train.shape[1], "Collective EASE", n_matrices=_MATRICES)
        features = item_matrix(extra, train.shape[1])
        jury = selftune.validation_jury(train, valid)
        g, alike = gram(train), (features @ features.T).toarray()

        def solved(l2: float, weight: float) -> FloatArray:
            return solve_items(np.asfortranarray(g + np.float32(weight) * alike), l2)[0]

        def objective(values: Mapping[str, Any], jury: selftune.Jury) -> list[selftune.Judged]:
            weights = solved(values["l2"], values["weight"])
            return [selftune.Judged({}, selftune.ndcg(lambda history: history @ weights, jury.valid))]

        self.trials_ = 0
        selftune.settle(self, objective, jury, make_rng(rng), searched=("l2", "weight"), trials=self.tune_trials)
        self.weights_ = solved(self.l2_, self.weight_)
        return self

    def fit_bytes(self, shape: Shape) -> int:
        return gram_bytes(shape.items, _MATRICES, shape.interactions)

    def score(self, history: Csr, *, extra: Extra | None = None) -> FloatArray:
        return np.asarray(history @ self.weights_)
