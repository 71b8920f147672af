"""Models with the interface of scikit-learn, for its searches and cross-validation; scikit-learn is not needed here."""

from dataclasses import replace
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, IntArray, binary_csr, keep_entries
from recfusion.core.errors import InputError, choices
from recfusion.core.rng import make_rng
from recfusion.data.options import SplitPlan
from recfusion.data.split import Fold, rank_in_row
from recfusion.evaluation.evaluate import batches, evaluate
from recfusion.evaluation.metrics import MAIN_METRIC
from recfusion.evaluation.topk import top_k
from recfusion.models.base import Recommender
from recfusion.models.settings import settings_of


class Estimator:
    """A model as a scikit-learn estimator of a 0/1 matrix (users, items), for `GridSearchCV(Estimator(EASE()), ...)`.

    `predict` returns the columns of each user's `k` best unseen items, -1 after the end of a list. `score` hides a
    share of each user's items and returns the mean of `metric` on them, so that new users are the folds of a
    cross-validation. Settings of the model are the parameters model__NAME.
    """

    def __init__(self, model: Recommender, k: int = 10, metric: str = MAIN_METRIC, seed: int = 0) -> None:
        self.model, self.k, self.metric, self.seed = model, k, metric, seed

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, with `deep` also the settings of the model."""
        own = {"model": self.model, "k": self.k, "metric": self.metric, "seed": self.seed}
        inner = {f"model__{name}": getattr(self.model, name) for name in settings_of(type(self.model))}
        return own | (inner if deep else {})

    def set_params(self, **params: Any) -> Self:
        """Set some parameters and return the estimator."""
        for name in params:
            if name not in (known := self.get_params()):
                raise choices("parameter", name, known, name)
        for name in sorted(params, key=lambda name: "__" in name):  # a new model comes before its settings
            if "__" in name:
                self.model = replace(self.model, **{name.removeprefix("model__"): params[name]})
            else:
                setattr(self, name, params[name])
        return self

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803
        """Fit a fresh copy of the model, `model_`; `y` is ignored."""
        self.model_ = replace(self.model).fit(_as_matrix(X), rng=self.seed)
        return self

    def predict(self, X: Any) -> IntArray:  # noqa: N803
        """Return the columns of the best unseen items of each user, (users, k)."""
        history = _as_matrix(X)
        parts = [history[rows] for rows in batches(*history.shape)]
        return np.concatenate([top_k(self.model_.score(part), part, self.k)[0] for part in parts])

    def score(self, X: Any, y: Any = None) -> float:  # noqa: N803
        """Return the mean of the metric over the users with two items or more."""
        matrix = _as_matrix(X)
        lengths = np.diff(matrix.indptr)
        n_shown = np.clip(np.rint(SplitPlan().fold_in * lengths), 1, np.maximum(lengths - 1, 1))
        shown = rank_in_row(matrix, make_rng(self.seed), None) < np.repeat(n_shown, lengths)
        fold = Fold(np.arange(len(lengths)), keep_entries(matrix, shown), keep_entries(matrix, ~shown)).scorable()
        if not len(fold.users):
            raise InputError("Expected users with at least 2 items to score on, got none: bring more data.", "X")
        return evaluate(self.model_, fold, matrix, [self.metric]).mean()[self.metric]

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn asks about an estimator; only scikit-learn calls it."""
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False), input_tags=InputTags(sparse=True))


def _as_matrix(values: Any) -> Csr:
    """Return a matrix or array of any kind as a 0/1 matrix."""
    found = csr_array(values)
    found.sum_duplicates()
    found.eliminate_zeros()
    if found.ndim != 2 or not np.all(found.data > 0):
        raise InputError("Expected a matrix (users, items) without negative and missing values: use 0 and 1.", "X")
    return binary_csr(found.indptr, found.indices, found.shape[1])
