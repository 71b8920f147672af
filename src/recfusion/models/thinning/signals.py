"""The linear denoiser with dislikes, ratings or counts, timestamps, and features of items and users, in closed form."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray, IntArray, column_counts
from recfusion.core.memory import require_memory
from recfusion.core.rng import RngLike, make_rng
from recfusion.data.interactions import Signal
from recfusion.data.signals import Extra, valued
from recfusion.data.split import Fold
from recfusion.evaluation.scoring import read_by
from recfusion.models import self_tuning as selftune
from recfusion.models.base import Recommender, Shape
from recfusion.models.baselines.content import item_matrix
from recfusion.models.linear.gram import FLOPS, gram, gram_bytes, require_gram_memory, user_weights
from recfusion.models.reasons import Reasons, exact
from recfusion.models.sequence.recency import fades, recency
from recfusion.models.settings import learned, self_tuned, setting
from recfusion.models.thinning import blocks
from recfusion.models.thinning import new_items as new
from recfusion.models.thinning.linear import RIDGE, RidgeRecommender, ThinningLinear, fit_linear, penalty
from recfusion.models.thinning.local import ThinningLocal
from recfusion.models.thinning.parts import name_part, part_name
from recfusion.models.thinning.plan import EXACT_ITEMS

Uses = Literal["history", "features", "all"]
_READS: Mapping[Uses, tuple[Signal, ...]] = {
    "history": ("grades", "times"),
    "features": ("item_features", "user_features"),
}
_IDLE: Mapping[Uses, tuple[str, ...]] = {
    "history": ("feature_l2", "new_l2", "own", "lift", "user_l2"),
    "features": ("dislikes", "values", "recency", "recency_by", "trend", "fading"),
}
_POWERS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of recency: all are scored with one fit
_TRENDS = (0.0, 0.5, 1.0)
_TRIED = (3e2, 3e3, 3e4)  # penalties of features that a search tries after its start
_NEIGHBOURS = 50  # of an item, with more than EXACT_ITEMS items
_USES_DOC = "signals to use: ratings and times of the history, features of items and users, or all"
_DISLIKES_DOC = "use of known dislikes; they are never recommended either way"
_VALUES_DOC = "weight of a like of n stars or plays: 1, n units that are thinned, log(1 + n), n / (n + median)"


@dataclass
class ThinningSignals(RidgeRecommender):
    """`ThinningLinear` with the signals that `uses` names; without signals it gives the same scores.

    A row has a block of likes, each with the value of its rating, and a second block of dislikes if they are known:

        z = [v_u, d_u],   B_.j minimises |y_j - Z b|^2 + b' diag(Lambda) b, with 0 for item j's own features,

    and at scoring the r-th newest like weighs (1 + r)^-recency: score_j = (z B)_j n_j^-c t_j^trend, with t_j the recent
    popularity of item j over its whole popularity. Lambda is that of `ThinningLinear` with the counts of each block;
    if ratings are units, the noise is that of units that survive. `ThinningLinear` chooses the ridge on likes alone (an
    inverse of one block takes an eighth of that of two); c, recency and trend are chosen on the validation users with
    the final weights, without further fits.

    A history x has the item features x F: columns that are never recommended. One inverse solves them with the items,
    and each target is predicted without its own share of them. An item that no training user has, or that is added
    later, gets the column T f of its features f, where T is the ridge regression of the columns of the known items on
    their features. A user without history gets the regression of the training rows on user features. With features
    alone and more than EXACT_ITEMS items, neighbourhoods as in `ThinningLocal` replace the inverse, and features place
    new items and users without history only. The derivations are in docs/explanation/signals.md.
    """

    same_as_linear: ClassVar[tuple[str, ...]] = ("l2", "nu", "kappa", "b")
    uses: Uses = setting("history", _USES_DOC)
    dislikes: Literal["features", "ignored"] = setting("features", _DISLIKES_DOC, search="all")
    values: blocks.Transform = setting("binary", _VALUES_DOC)
    recency: float | None = self_tuned(0.5, "power p of (1 + r)^-p, if times are known", search=(0.0, 1.0))
    recency_by: Literal["rank", "age"] = setting("rank", "r: newer entries in the history, or weeks before its newest")
    trend: float | None = self_tuned(0.0, "power of recent over whole popularity, if times are known", search=(0, 1))
    fading: float = setting(0.0, "half-life of a like in the fit, in days; 0: all count alike", at_least=0)
    feature_l2: float | None = self_tuned(1e5, "penalty of a known feature", at_least=1e-6, search=(100, 1e7), log=True)
    new_l2: float | None = self_tuned(1.0, "penalty of the map to columns", at_least=1e-6, search=(0.01, 100), log=True)
    own: float | None = self_tuned(0.4, "weight of an item for a new item with its features", at_least=0, search=(0, 1))
    lift: float | None = self_tuned(1.0, "factor of new items' scores, for a fair share", at_least=0, search=(0.5, 3))
    user_l2: float = setting(10.0, "penalty of a user feature", at_least=1e-6)
    tune_trials: int = selftune.trials_setting()
    recency_: float | None = learned()
    trend_: float | None = learned()
    feature_l2_: float | None = learned()
    new_l2_: float | None = learned()
    own_: float | None = learned()
    lift_: float | None = learned()
    weights_: FloatArray | Csr = learned()  # (items in blocks, items)
    typical_: FloatArray = learned()  # (2,): the median grade, and the root of the mean square of a value
    shared_: FloatArray = learned()  # (features, items): weights of the history's features; they make new items' rows
    map_: FloatArray = learned()  # (items, features): T
    links_: FloatArray = learned()  # (features, features): from a new item of the history to a new item
    new_: NDArray[np.bool_] = learned()  # (items,): no training user has the item
    features_: Csr = learned()  # (items, features) of new items, for explanations, then of added items
    people_: FloatArray = learned()  # (1 + user features, items)
    added_columns_: FloatArray = learned()  # (items, added)
    added_rows_: FloatArray = learned()  # (added, items + added)
    reads: ClassVar[frozenset[Signal]] = frozenset(get_args(Signal))
    with_added: ClassVar[Callable[..., dict[str, Any]] | None] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        vars(self)["reads"] = frozenset(_READS.get(self.uses, get_args(Signal)))
        vars(self)["with_added"] = None if self.uses == "history" else new.with_added

    @property
    def idle(self) -> tuple[str, ...]:
        return _IDLE.get(self.uses, ())

    @property
    def needs_validation(self) -> bool:
        return bool(selftune.open_settings(self).keys() - {*self.idle})

    def beside(self, fitted: Recommender) -> Self:
        same = isinstance(fitted, ThinningLinear)
        same |= isinstance(fitted, ThinningLocal) and self._is_local(fitted.weights_.shape[1])
        if self.uses != "features" or not same:
            return super().beside(fitted)
        return replace(self, **{name: getattr(fitted, f"{name}_") for name in RIDGE if getattr(self, name) is None})

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None, extra: Extra | None = None) -> Self:
        known, n_items = read_by(self, extra) or Extra(), train.shape[1]
        vars(self).update(new.no_features(n_items))
        features = item_matrix(known, n_items)
        if self._is_local(n_items):
            solved = self._solve_near(train, valid, features, rng)
            new.scale_columns(solved.weights, np.float32(1) / (scale := self._scaling(train)))
        else:
            solved = self._solve(train, valid, known, features, rng)
            scale = self._scaling(train) * blocks.trends(train, known.times) ** np.float32(self.trend_ or 0)
        self.weights_ = solved.weights
        if self.uses != "history":
            columns = new.Columns(solved.weights[:n_items], scale, features, column_counts(train) > 0)
            new.choose(self, valid, columns, make_rng(rng))
            self._learn_new(valid, columns, solved.shared)
        new.scale_columns(self.weights_, scale)
        if self.new_.any() and not isinstance(self.weights_, csr_array):
            self.weights_[:n_items, self.new_] = self.map_ @ features[self.new_].T.toarray()
            self.shared_[:, self.new_] = self.links_ @ features[self.new_].T.toarray()
        if known.user_features is not None:
            self.people_ = new.people_weights(train, known.user_features.matrix, self.user_l2)
        return self

    def _is_local(self, n_items: int) -> bool:
        return self.uses == "features" and n_items > EXACT_ITEMS

    def _solve_near(self, train: Csr, valid: Fold | None, features: Csr, rng: RngLike) -> blocks.Solved:
        """Return weights of neighbours alone, with the scale of popularity."""
        require_memory(
            32 * features.shape[0] * features.shape[1],
            f"Placing items by {features.shape[1]:,} features of {features.shape[0]:,} items",
            "describe the items in fewer columns, or by values that more items share.",
        )
        local, known = self._near_model(), np.flatnonzero(column_counts(train))
        name_part(local, part_name(self))
        local.fit(train[:, known], None if valid is None else valid.over(known), rng=rng)
        self.trials_, self.feature_l2_ = local.trials_, selftune.open_settings(self).get("feature_l2", self.feature_l2)
        for name in RIDGE:
            setattr(self, f"{name}_", getattr(local, f"{name}_"))
        near = local.weights_.tocoo()
        weights = csr_array((near.data, (known[near.row], known[near.col])), shape=(train.shape[1],) * 2)
        return blocks.Solved(weights, np.zeros((features.shape[1], 0), np.float32))

    def _near_model(self) -> ThinningLocal:
        given = {name: getattr(self, name) for name in (*RIDGE, "tune_trials")}
        return ThinningLocal(**given, neighbours=_NEIGHBOURS, factors=0, a=0.0, cells=0)

    def _scaling(self, train: Csr) -> FloatArray:
        """Return popularity^-c, (items,); 1 for new items."""
        if self.uses == "history":
            return np.asarray(selftune.scalings(train, (self.c_,))[0])
        counts = column_counts(train)
        popularity = selftune.relative(counts.astype(np.float32), train.nnz / max(1, int(np.count_nonzero(counts))))
        return np.where(counts > 0, popularity ** np.float32(-self.c_), 1).astype(np.float32)

    def _solve(self, train: Csr, valid: Fold | None, known: Extra, features: Csr, rng: RngLike) -> blocks.Solved:
        """Return the weights of all blocks and features, and choose the settings that they are scored with."""
        n_items, n_blocks = train.shape[1], 1 + (self.dislikes == "features" and known.disliked is not None)
        matrices = 2.1 if self.uses == "history" else 1.1 + 4 * features.shape[1] / n_items
        require_gram_memory(n_items * n_blocks, "A thinning model with signals", matrices)
        c = fit_linear(self, train, valid, generator := make_rng(rng)).c_  # keeps nothing else
        self.typical_ = np.array([1.0 if known.grades is None else np.median(known.grades.data), 1.0], np.float32)
        self.typical_[1] = np.sqrt(np.mean(blocks.graded(known.grades, self.values, *self.typical_) ** 2))
        g, ridge, noise, zy = self._normal_equations(train, known, n_blocks)
        if self.uses != "history":

            def objective(values: Mapping[str, Any], jury: selftune.Jury) -> list[selftune.Judged]:
                solved = blocks.solve_blocks(g.copy(order="F"), ridge, noise, features, values["feature_l2"], zy)
                weights = solved.weights[:n_items] * self._scaling(train)
                return [selftune.Judged({}, selftune.ndcg(lambda history: history @ weights, jury.valid))]

            few = features.nnz and n_items <= selftune.MOST_ITEMS
            jury = selftune.validation_jury(train, valid) if few else None
            trials, first = min(self.tune_trials, 1 + len(_TRIED)), [{"feature_l2": value} for value in _TRIED]
            selftune.settle(self, objective, jury, make_rng(rng), searched=("feature_l2",), trials=trials, first=first)
        solved = blocks.solve_blocks(g, ridge, noise, features, self.feature_l2_ or 0.0, zy)
        if self.uses != "features":
            jury, free = selftune.validation_jury(train, valid), ("c", "recency", "trend")
            trials, first_c = self.tune_trials, {"c": c}

            def variants(_: Mapping[str, Any], jury: selftune.Jury) -> list[selftune.Judged]:
                return self._variants(solved.weights, train, known, jury.valid)

            selftune.settle(self, variants, jury, generator, searched=(), free=free, trials=trials, starts=first_c)
            if known.times is None:
                self.recency_ = self.trend_ = 0.0
        return solved

    def _normal_equations(
        self, train: Csr, known: Extra, n_blocks: int
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray | None]:
        """Return G = Z'Z, the penalties and the noise of all entries, and Z'Y unless the targets are the likes."""
        n_items, plain = train.shape[1], self.uses == "features"
        roots = np.sqrt(user_weights(train, self.b_)) if plain else blocks.root_weights(train, self.b_)
        left = np.ones(train.nnz, np.float32)
        if self.fading and known.times is not None:
            left = fades(known.times, self.fading)
        z = blocks.rows_times(self._blocks(train, known, n_blocks, left), roots)
        y = blocks.rows_times(valued(train, left), roots)
        g = gram(z)
        noise, mean = np.diag(g).copy(), train.nnz / max(1, int(np.count_nonzero(column_counts(train))))
        likes = noise
        if not plain:
            likes = np.bincount(y.indices, y.data**2, n_items).astype(np.float32)
            power = 1 if self.values == "units" else 2  # units survive independently: noise grows with their number
            weights = np.repeat(roots, np.diff(z.indptr)) ** (2 - power)
            noise = np.bincount(z.indices, np.abs(z.data) ** power * weights, len(g)).astype(np.float32)
            mean = float(likes.mean())
        ridge = penalty(np.concatenate([likes, np.diag(g)[n_items:]]), l2=self.l2_, nu=self.nu_, mean=mean)
        zy = None if self.values == "binary" or plain else np.asarray((z.T @ y).todense(), np.float32)
        return g, ridge, np.float32(self.kappa_) * noise, zy

    def _learn_new(self, valid: Fold | None, columns: new.Columns, shared: FloatArray) -> None:
        """Learn how features make the columns of new items, and their rows."""
        found = new.as_new(columns.features, columns.known, self.new_l2_ or 0.0)
        weights, own = columns.weights, self.own_ or 0.0
        self.lift_ = 1.0 if self.lift is None else self.lift
        if self.lift is None and valid is not None and valid.history.shape[0] >= selftune.LEAST_USERS:
            self.lift_ = new.fair_lift(valid.history, columns, [own], found)[0]
        scaled = found.map * (np.float32(self.lift_) * columns.scale)[:, None]
        self.map_ = np.asarray(weights @ scaled + np.float32(own) * scaled, np.float32)
        if isinstance(weights, csr_array):  # rows of known items, by their features
            shared = np.asarray((weights.T @ found.map).T)
        self.links_, self.shared_ = shared @ scaled, shared * columns.scale
        self.new_ = ~columns.known & (np.diff(columns.features.indptr) > 0)
        self.features_ = csr_array(columns.features.multiply(self.new_[:, None]))
        self.features_.eliminate_zeros()

    def load_state(self, state: Mapping[str, NDArray[Any]], chosen: Mapping[str, Any], n_items: int) -> None:
        # Models of older versions have the arrays of their own signals alone.
        super().load_state(new.no_features(n_items) | dict(state), chosen, n_items)

    def score(self, history: Csr, *, extra: Extra | None = None) -> FloatArray:
        n_items = int(self.weights_.shape[1])
        rows, likes, later = self._entries(history, extra)
        scores = new.dense(rows @ self.weights_)
        if isinstance(self.weights_, csr_array):
            tastes = (likes @ self.features_[:n_items]).toarray()  # of new items in the history, (users, features)
            scores += tastes @ self.shared_
            scores[:, self.new_] = (likes @ self.map_ + tastes @ self.links_) @ self.features_[:n_items][self.new_].T
        if extra is not None and extra.user_features is not None:
            lone = self.placed_by_features(history, extra)
            scores[lone] = self.people_[:1] + extra.user_features.matrix[lone] @ self.people_[1:]
        if not len(self.added_rows_):
            return scores
        return np.hstack([scores, likes @ self.added_columns_]) + later @ self.added_rows_

    @property
    def n_known(self) -> int:
        """How many items the fit had."""
        return int(self.weights_.shape[1])

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

    def reasons(self, history: Csr, items: IntArray, *, extra: Extra | None = None) -> Reasons:
        """Return the contributions of the history's entries, or, for new items, of their own features."""
        n_items, n_added, new = int(self.weights_.shape[1]), len(self.added_rows_), self.is_new[items]
        rows, likes, later = self._entries(history, extra)
        asked = np.where(new, 0, items)
        again = np.arange(self.weights_.shape[0] - n_items).reshape(-1, 1)  # the source of a dislike is its item
        found = exact(rows, self.weights_, asked, again)
        by_item = found.parts  # (items asked for, sources)
        by_feature = np.asarray(likes @ self.map_ + later @ (self.features_[n_items:] @ self.links_))[0]
        if isinstance(self.weights_, csr_array):
            mine = likes.data[:, None] * self.features_[likes.indices].toarray()  # (sources, features)
            by_item = by_item + (mine @ self.shared_[:, asked]).T
            by_feature += mine.sum(axis=0) @ self.links_
        by_later = (later.data[:, None] * self.added_rows_[later.indices][:, asked]).T
        own = self.features_[items].toarray() * by_feature  # (items asked for, features); 0 for known items
        used = np.flatnonzero(np.any(own != 0, axis=0))
        parts = np.hstack([by_item, by_later, own[:, used]]).astype(np.float32)
        parts[new, : by_item.shape[1] + by_later.shape[1]] = 0
        added = [(n_items + int(item),) for item in later.indices]
        named = [(n_items + n_added + int(feature),) for feature in used]
        return Reasons("exact", (*found.sources, *added, *named), np.ascontiguousarray(parts))

    def _entries(self, history: Csr, extra: Extra | None) -> tuple[Csr, Csr, Csr]:
        """Return the rows of all blocks over the items of the fit, those of likes alone, and those of added items."""
        n_items, known, old = int(self.weights_.shape[1]), extra or Extra(), history
        if history.shape[1] != n_items:
            old, known = history[:, :n_items], known.columns(np.arange(n_items))
        rows = self._blocks(old, known, self.weights_.shape[0] // n_items, self._left(old, known, self.recency_))
        return rows, rows if rows.shape[1] == n_items else rows[:, :n_items], history[:, n_items:]

    def seconds(self, shape: Shape) -> float:
        """Return about how many seconds a fit takes: an inverse in each trial, of both blocks in the last."""
        if self._is_local(shape.items):
            return self._near_model().seconds(shape)
        n, f = float(min(shape.items, selftune.MOST_ITEMS)), float(shape.item_features)
        with_features = min(self.tune_trials, 1 + len(_TRIED)) * (n**3 + 6 * n**2 * f) * (self.uses != "history")
        last = float(self._n_blocks(shape) * shape.items) ** 3 + 10 * float(shape.items) ** 2 * f
        return (self.tune_trials * n**3 + with_features + last) / FLOPS

    def fit_bytes(self, shape: Shape) -> int:
        beside = 32 * shape.items * shape.item_features + 16 * shape.item_features**2  # float64 blocks of features
        if self._is_local(shape.items):
            return self._near_model().fit_bytes(shape) + beside
        if self.uses == "features":
            return gram_bytes(shape.items, 2.1, shape.interactions) + beside
        n_blocks = self._n_blocks(shape)
        solved = 3 * 4 * n_blocks * shape.items**2  # the weights and the products that make them
        interactions = n_blocks * (shape.interactions + shape.dislikes)
        return solved + gram_bytes(n_blocks * shape.items, 1.1, interactions) + beside * (self.uses == "all")

    def _n_blocks(self, shape: Shape) -> int:
        return 1 + (self.dislikes == "features" and self.uses != "features" and shape.dislikes > 0)

    def _blocks(self, history: Csr, known: Extra, n_blocks: int, left: FloatArray) -> Csr:
        """Return rows of entries: the values of likes times what is `left` of each, and dislikes."""
        if self.uses == "features":
            return history
        likes = valued(history, blocks.graded(known.grades, self.values, *self.typical_) * left)
        return blocks.with_dislikes(likes, known.disliked, n_blocks)

    def _left(self, history: Csr, known: Extra, power: float | None) -> FloatArray:
        """Return the weight of each like at scoring, by its recency."""
        if not power or known.times is None:
            return np.ones(history.nnz, np.float32)
        return recency(known.times, power, self.recency_by)

    def _variants(self, weights: FloatArray | Csr, train: Csr, known: Extra, judged: Fold) -> list[selftune.Judged]:
        """Score the powers of popularity, recency and trend, which all use the same weights."""
        timed = judged.extra is not None and judged.extra.times is not None
        grid = {
            "c": selftune.POWERS if self.c is None else (self.c,),
            "recency": (_POWERS if timed else (0.5,)) if self.recency is None else (self.recency,),
            "trend": (_TRENDS if timed else (0.0,)) if self.trend is None else (self.trend,),
        }
        scales, of_items = selftune.scalings(train, grid["c"]), blocks.trends(train, known.times)
        pairs = [(c, trend) for trend in grid["trend"] for c in grid["c"]]
        every = np.concatenate([scales * of_items ** np.float32(trend) for trend in grid["trend"]])  # (pairs, items)
        n_blocks = weights.shape[0] // weights.shape[1]
        found = []
        for power in grid["recency"]:

            def scored(rows: slice, power: float = power) -> Iterator[FloatArray]:
                part = judged.take(rows)
                known = part.extra or Extra()
                left = self._left(part.history, known, power)
                scores = np.asarray(self._blocks(part.history, known, n_blocks, left) @ weights)
                return (scores * row for row in every)

            for (c, trend), values in zip(pairs, selftune.ndcg_of(scored, judged), strict=True):
                found.append(selftune.Judged({"c": c, "recency": power, "trend": trend}, values))
        return found
