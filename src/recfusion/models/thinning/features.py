"""The linear denoiser with features of items as further columns, and with columns for new items."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from recfusion.core.arrays import Csr, FloatArray, IntArray, column_counts
from recfusion.core.rng import RngLike, make_rng
from recfusion.data.interactions import Features, Signal
from recfusion.data.signals import Extra
from recfusion.data.split import Fold
from recfusion.models import self_tuning as selftune
from recfusion.models.base import Shape
from recfusion.models.baselines.content import item_matrix
from recfusion.models.leave_one_out import nobody
from recfusion.models.linear.gram import FLOPS, Grams, gram_bytes, require_gram_memory
from recfusion.models.reasons import Reasons
from recfusion.models.settings import learned, self_tuned, setting
from recfusion.models.thinning.linear import RidgeRecommender, fit_linear, penalty
from recfusion.models.thinning.new_items import (
    Hidden,
    Solved,
    as_new,
    fair_lift,
    judged_settings,
    solve_with_features,
)

_TRIED = (3e2, 3e3, 3e4)  # penalties of features that a search tries after its start


@dataclass
class ThinningFeatures(RidgeRecommender):
    """Weights from items and features of items to items, and from features alone to new items.

    A history x has the features x F: columns that are never recommended. One inverse solves them with the items, and
    each target is predicted without its own share of them. Without features this is `thinning-linear`. An item that no
    training user has, or that is added later, gets the column T f of its features f, where T is the ridge regression of
    the columns of the known items on their features. A user without history gets the regression of the training rows
    on user features. The derivations are in docs/explanation/signals.md.
    """

    reads: ClassVar[frozenset[Signal]] = frozenset({"item_features", "user_features"})
    feature_l2: float | None = self_tuned(1e5, "penalty of a known feature", at_least=1e-6, search=(100, 1e7), log=True)
    new_l2: float | None = self_tuned(1.0, "penalty of the map to columns", at_least=1e-6, search=(0.01, 100), log=True)
    own: float | None = self_tuned(0.4, "weight of an item for a new item with its features", at_least=0, search=(0, 1))
    lift: float | None = self_tuned(1.0, "factor of new items' scores, for a fair share", at_least=0, search=(0.5, 3))
    user_l2: float = setting(10.0, "penalty of a user feature", at_least=1e-6)
    tune_trials: int = selftune.trials_setting()
    feature_l2_: float = learned()
    new_l2_: float = learned()
    own_: float = learned()
    lift_: float = learned()
    weights_: FloatArray = learned()  # (items, items)
    shared_: FloatArray = learned()  # (features, items): weights of the history's features; they make new items' rows
    map_: FloatArray = learned()  # (items, features): T
    links_: FloatArray = learned()  # (features, features): from a new item of the history to a new item
    new_: NDArray[np.bool_] = learned()  # (items,): no training user has the item
    features_: Csr = learned()  # (items, features) of new items, for explanations, then of added items
    people_: FloatArray = learned()  # (1 + user features, items)
    added_columns_: FloatArray = learned()  # (items, added)
    added_rows_: FloatArray = learned()  # (added, items + added)

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None, extra: Extra | None = None) -> Self:
        features = item_matrix(extra, train.shape[1])
        matrices = 1.1 + 4 * features.shape[1] / train.shape[1]
        require_gram_memory(train.shape[1], "A linear thinning model with features", matrices)
        fit_linear(self, train, valid, rng)
        known, counts = column_counts(train) > 0, column_counts(train).astype(np.float32)
        mean, grams = train.nnz / max(1, int(known.sum())), Grams(train)
        scale = np.where(known, selftune.relative(counts, mean) ** np.float32(-self.c_), 1).astype(np.float32)

        def solved(g: FloatArray, feature_l2: float) -> Solved:
            n = np.diag(g).copy()
            item_l2 = penalty(n, l2=self.l2_, nu=self.nu_, mean=mean)
            return solve_with_features(g, item_l2, np.float32(self.kappa_) * n, features, feature_l2)

        def objective(values: Mapping[str, Any], jury: selftune.Jury) -> list[selftune.Judged]:
            weights = solved(grams.copy(self.b_), values["feature_l2"]).weights * scale
            return [selftune.Judged({}, selftune.ndcg(lambda history: history @ weights, jury.valid))]

        few = features.nnz and train.shape[1] <= selftune.MOST_ITEMS
        jury = selftune.validation_jury(train, valid) if few else None
        trials, first = min(self.tune_trials, 1 + len(_TRIED)), [{"feature_l2": value} for value in _TRIED]
        selftune.settle(self, objective, jury, make_rng(rng), searched=("feature_l2",), trials=trials, first=first)
        last = solved(grams.last(self.b_), self.feature_l2_)
        self._choose_new(valid, features, last.weights, scale, known, make_rng(rng))
        self._learn_new(valid, features, last, scale, known)
        self._learn_people(train, None if extra is None else extra.user_features)
        return self

    def _choose_new(
        self,
        valid: Fold | None,
        features: Csr,
        weights: FloatArray,
        scale: FloatArray,
        known: NDArray[np.bool_],
        rng: np.random.Generator,
    ) -> None:
        """Choose the settings of new items, by known items that are hidden from validation users."""
        hidden = None if valid is None or not features.nnz else Hidden.of(valid, known, rng)
        jury = None if hidden is None else selftune.Jury(nobody(hidden.fold.history), hidden.fold)

        def objective(_values: Mapping[str, Any], _jury: selftune.Jury) -> list[selftune.Judged]:
            assert hidden is not None
            assert valid is not None
            asked = {"new_l2": self.new_l2, "own": self.own, "lift": self.lift}
            return judged_settings(hidden, valid, features, known, weights, scale, **asked)

        trials = min(1, self.tune_trials)
        selftune.settle(self, objective, jury, rng, searched=(), free=("new_l2", "own"), trials=trials)

    def _learn_new(
        self, valid: Fold | None, features: Csr, solved: Solved, scale: FloatArray, known: NDArray[np.bool_]
    ) -> None:
        """Scale the columns by popularity, and make the columns of new items from their features."""
        new = as_new(features, known, self.new_l2_)
        self.lift_ = 1.0 if self.lift is None else self.lift
        if self.lift is None and valid is not None and valid.history.shape[0] >= selftune.LEAST_USERS:
            self.lift_ = fair_lift(valid.history, solved.weights, scale, [self.own_], new)[0]
        scaled = new.map * (np.float32(self.lift_) * scale)[:, None]
        self.map_ = np.asarray(solved.weights @ scaled + np.float32(self.own_) * scaled, np.float32)
        self.links_ = solved.shared @ scaled
        self.weights_ = solved.weights
        self.weights_ *= scale
        self.shared_ = solved.shared * scale
        self.new_ = ~known & (np.diff(features.indptr) > 0)
        self.weights_[:, self.new_] = self.map_ @ features[self.new_].T.toarray()
        self.shared_[:, self.new_] = self.links_ @ features[self.new_].T.toarray()
        self.features_ = csr_array(features.multiply(self.new_[:, None]))
        self.features_.eliminate_zeros()
        self.added_columns_ = np.zeros((len(known), 0), np.float32)
        self.added_rows_ = np.zeros((0, len(known)), np.float32)

    def _learn_people(self, train: Csr, users: Features | None) -> None:
        """Regress the rows on user features, for users without known items."""
        if users is None:
            self.people_ = np.zeros((0, train.shape[1]), np.float32)
            return
        known = users.matrix.toarray().astype(np.float64)
        about = np.hstack([np.ones((len(known), 1)), known])  # (users, 1 + features)
        ridge = np.r_[1e-6, np.full(known.shape[1], self.user_l2)]
        found = np.linalg.solve(about.T @ about + np.diag(ridge), (train.T @ about).T)
        self.people_ = found.astype(np.float32)

    def score(self, history: Csr, *, extra: Extra | None = None) -> FloatArray:
        n_items = self.weights_.shape[0]
        old = history if history.shape[1] == n_items else history[:, :n_items]
        scores = np.asarray(old @ self.weights_)
        if extra is not None and extra.user_features is not None:
            lone = self.placed_by_features(history, extra)
            scores[lone] = self.people_[:1] + extra.user_features.matrix[lone] @ self.people_[1:]
        if not len(self.added_rows_):
            return scores
        scores = np.hstack([scores, old @ self.added_columns_])
        return scores + history[:, n_items:] @ self.added_rows_

    @property
    def n_known(self) -> int:
        """How many items the fit had."""
        return len(self.new_)

    @property
    def is_new(self) -> NDArray[np.bool_]:
        """Whether an item's scores come from its features alone, (items + added,)."""
        return np.concatenate([self.new_, np.ones(len(self.added_rows_), bool)])

    def placed_by_features(self, history: Csr, extra: Extra | None) -> IntArray:
        """Return the rows of users whose scores come from their own features, since they have no history."""
        users = None if extra is None else extra.user_features
        if users is None or not len(self.people_):
            return np.zeros(0, np.int64)
        return np.flatnonzero((np.diff(history.indptr) == 0) & (np.diff(users.matrix.indptr) > 0))

    def reasons(self, history: Csr, items: IntArray) -> Reasons:
        """Return the contributions of the history's items, or, for new items, of their own features."""
        n_items = self.weights_.shape[0]
        sources = [(int(item),) for item in history.indices]
        by_item = self._rows(history.indices)[:, items].T  # (items asked for, sources)
        old, later = history[:, :n_items], history[:, n_items:]
        by_feature = np.asarray(old @ self.map_ + later @ (self.features_[n_items:] @ self.links_))[0]
        own = self.features_[items].toarray() * by_feature  # (items asked for, features)
        new = self.is_new[items]
        by_item[new] = 0
        own[~new] = 0
        used = np.flatnonzero(np.any(own != 0, axis=0))
        named = [(len(self.new_) + len(self.added_rows_) + int(feature),) for feature in used]
        parts = np.hstack([by_item, own[:, used]]).astype(np.float32)
        return Reasons("exact", (*sources, *named), np.ascontiguousarray(parts))

    def seconds(self, shape: Shape) -> float:
        """Return about how many seconds a fit takes: each trial has an inverse, n^3, and products, 6 n^2 f."""
        n, f = float(min(shape.items, selftune.MOST_ITEMS)), float(shape.item_features)
        with_features = min(self.tune_trials, 1 + len(_TRIED)) * (n**3 + 6 * n**2 * f)
        last = float(shape.items) ** 3 + 10 * float(shape.items) ** 2 * f
        return (self.tune_trials * n**3 + with_features + last) / FLOPS

    def fit_bytes(self, shape: Shape) -> int:
        beside = 32 * shape.items * shape.item_features + 16 * shape.item_features**2  # float64 blocks of features
        return gram_bytes(shape.items, 2.1, shape.interactions) + beside

    def _rows(self, items: IntArray) -> FloatArray:
        """Return the rows of weights of these items, (items asked for, items + added)."""
        n_items = self.weights_.shape[0]
        rows = np.zeros((len(items), n_items + len(self.added_rows_)), np.float32)
        old = items < n_items
        rows[old, :n_items] = self.weights_[items[old]]
        rows[old, n_items:] = self.added_columns_[items[old]]
        rows[~old] = self.added_rows_[items[~old] - n_items]
        return rows

    @classmethod
    def with_added(
        cls, saved: Callable[[str], NDArray[Any]], features: Csr, kept: Csr
    ) -> dict[str, NDArray[Any] | Csr]:
        """Return the learned arrays that change when items with these `features` are added, without a fit.

        `saved` reads one array of a saved model; `kept` are its `features_`, with items that were added before.
        """
        mapped, n_items = saved("map_"), len(saved("new_"))
        known = vstack([kept, features]).tocsr().astype(np.float32)
        added = known[n_items:]
        rows = np.hstack([added @ saved("shared_"), (added @ saved("links_")) @ added.T.toarray()])
        within = np.arange(added.shape[0])
        rows[within, n_items + within] = 0
        columns = np.ascontiguousarray((added @ mapped.T).T)
        return {"features_": known, "added_columns_": columns, "added_rows_": rows.astype(np.float32)}
