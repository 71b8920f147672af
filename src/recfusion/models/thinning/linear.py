"""The linear denoiser of thinned rows in closed form, with items alone or with pairs of items as features."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from recfusion.core.arrays import Csr, FloatArray, IntArray
from recfusion.core.rng import RngLike, make_rng
from recfusion.data.split import Fold
from recfusion.models import self_tuning as selftune
from recfusion.models.base import Recommender, Shape
from recfusion.models.leave_one_out import LeftOut
from recfusion.models.linear import gram as grams
from recfusion.models.reasons import Reasons, exact
from recfusion.models.settings import learned, self_tuned, setting
from recfusion.models.thinning.pairs import PairsLeftOut, exclude_own, most_frequent_of, rescale, with_pairs
from recfusion.models.thinning.parts import name_part, part_name

log = logging.getLogger(__name__)
_PENALTY = ("l2", "nu", "kappa")
_PAIR_USERS = 100  # fewest users of a pair: with fewer, a penalty of thousands would leave nothing of it
_PAIRS_UP_TO = 12_000  # with more items, pairs would multiply the cost of the inverse for a small gain
_FEWER_PAIRS = 2500  # in a mixture: as good there, in half the time
_PER_TRIAL = 3  # inverses that take as long as a trial, with its Gram matrix and its scores; good starts need 3 trials
_PAIR_TRIALS = 3  # a fit with pairs takes ten times as long as one without
RIDGE = ("l2", "nu", "kappa", "b", "c")
_L2, _L2_POWER = 20.0, 0.7
_L2_DOC, _L2_RULE = "penalty of an item of mean popularity (l2)", "20 (mean users of an item)^.7"
_KAPPA_DOC = "noise level (1 - a) / a if a share a of the items survives (kappa)"


@dataclass
class RidgeRecommender(Recommender):
    """A linear thinning model: item i has the penalty l2 (n_i / mean n)^nu + kappa n_i, where n_i counts its users."""

    same_as_linear: ClassVar[tuple[str, ...]] = RIDGE
    l2: float | None = self_tuned(693.0, _L2_DOC, at_least=1e-6, search=(1, 1e4), log=True, rule=_L2_RULE)
    nu: float | None = self_tuned(0.318, "power of popularity in the penalty (nu)", search=(-0.2, 1.0))
    kappa: float | None = self_tuned(0.876, _KAPPA_DOC, at_least=0, search=(0.0, 2.5))
    b: float | None = self_tuned(0.5, "users with |u| items are weighted by |u|^-b", search=(0.0, 1.0))
    c: float | None = self_tuned(0.2, "scores are divided by popularity^c", search=(0.0, 0.5))
    l2_: float = learned()
    nu_: float = learned()
    kappa_: float = learned()
    b_: float = learned()
    c_: float = learned()

    def beside(self, fitted: Recommender) -> Self:
        """Return the model with the settings that `thinning-linear` chose: both would make the same search."""
        if isinstance(self, ThinningLinear) or not isinstance(fitted, ThinningLinear):
            return self
        found = {name: getattr(fitted, f"{name}_") for name in self.same_as_linear if getattr(self, name) is None}
        return replace(self, **found)


def start_l2(train: Csr) -> float:
    """Return the penalty that a search starts from: 20 (mean number of users of an item)^.7.

    The rule fits the best penalties of five data sets, from 16 to 150 users per item.
    """
    return float(np.clip(_L2 * (train.nnz / max(1, train.shape[1])) ** _L2_POWER, 1, 1e4))


def penalty(n: FloatArray, *, l2: float, nu: float, mean: float | None = None) -> FloatArray:
    """Return l2 (n_i / mean)^nu, (items,); the mean is that of `n` unless given."""
    return np.asarray(l2 * selftune.relative(n, mean) ** nu, np.float32)


@dataclass
class ThinningLinear(RidgeRecommender):
    """Weights from features to items that undo thinning with the least squared error, and a prior on popularity.

    With G = X'WX, n = diag G and P = (G + diag Lambda)^-1, where Lambda_i = l2 (n_i / mean n)^nu + kappa n_i:

        B_ij = -P_ij / P_jj, B_jj = 0;   score_j = (x B)_j n_j^-c

    kappa = (1 - a) / a is the noise level of the process that keeps a share a of the ones. The other term of Lambda
    is a survival rate that depends on the item, a_i = n_i / (n_i + Lambda_i). W = |u|^-b, rescaled to keep the sum,
    weights the users' losses, so that a few users with thousands of items do not dominate. n^-c divides by a prior on
    popularity. kappa = nu = b = c = 0 is EASE.

    With pairs, the products of two items' entries are features too; each target is predicted from the features that
    do not contain it. The derivations are in docs/explanation/thinning.md.
    """

    needs_validation: ClassVar[bool] = False  # settings are scored on training users that are left out of the fit
    good_starts: ClassVar[bool] = True  # l2 starts at `start_l2`, and a search ends after a few probes without a gain
    pairs: int = setting(0, "number of pairs of items that are features too, the most frequent ones", at_least=0)
    pair_l2: float | None = self_tuned(4000.0, "penalty of a pair", at_least=1e-6, search=(100, 1e5), log=True)
    tune_trials: int = selftune.trials_setting()
    pair_l2_: float | None = learned()
    weights_: FloatArray = learned()  # (items + pairs, items)
    pairs_: IntArray = learned(item_numbers=True)  # (pairs, 2)

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        n_items = train.shape[1]
        grams.require_gram_memory(
            n_items, "A linear thinning model", self._matrices(n_items), self._most_pairs(n_items)
        )
        generator = make_rng(rng)
        small, seen = selftune.searched_items(train, valid)
        g = grams.Grams(small)
        mean = train.nnz / max(1, n_items)

        def first_order(values: Mapping[str, Any], jury: selftune.Jury) -> list[selftune.Judged]:
            weights, diagonal = solve(g.copy(values["b"]), **{name: values[name] for name in _PENALTY}, mean=mean)
            left_out = LeftOut(small, jury.left_out, grams.user_weights(small, values["b"]), weights, diagonal)
            return selftune.by_scaling(jury, small, self.c, lambda history: history @ weights, left_out.scores)

        self.pairs_ = most_frequent_of(train, self.pairs, _PAIR_USERS)
        self.trials_, self.pair_l2_ = 0, self.pair_l2
        l2 = start_l2(train)
        probes = [{"l2": l2 / 3, "kappa": 1.5}, {"l2": 3 * l2, "kappa": 0.4}] if self.good_starts else []
        jury = selftune.jury(small, seen, generator) if selftune.searches(self, unused=("pair_l2",)) else None
        selftune.settle(
            *(self, first_order, jury, generator),
            searched=(*_PENALTY, "b"),
            free=() if len(self.pairs_) else ("c",),
            first=probes,
            trials=self.tune_trials,
            starts={"l2": l2} if self.good_starts else {},
            probes=len(probes) + 1 if self.good_starts else 0,
        )
        if small is not train or len(self.pairs_):
            g = grams.Grams(train)  # frees the matrix of the search
        if len(self.pairs_):
            weights = self._fit_pairs(train, valid, generator)
        else:
            weights = solve(g.last(self.b_), l2=self.l2_, nu=self.nu_, kappa=self.kappa_)[0]
        weights *= selftune.scalings(train, (self.c_,))[0]
        self.weights_ = weights
        return self

    def economical(self, shape: Shape) -> Self:
        if not self.pairs or shape.items <= _PAIRS_UP_TO:
            return replace(self, pairs=min(self.pairs, _FEWER_PAIRS))
        log.warning("Pairs of items are left out: they would take long on %d items.", shape.items)
        return replace(self, pairs=0)

    def score(self, history: Csr) -> FloatArray:
        return np.asarray(self._features(history) @ self.weights_)

    def reasons(self, history: Csr, items: IntArray) -> Reasons:
        return exact(self._features(history), self.weights_, items, self.pairs_)

    def _fit_pairs(self, train: Csr, valid: Fold | None, rng: np.random.Generator) -> FloatArray:
        """Choose the penalty of pairs and return the weights (items + pairs, items)."""
        n_items = train.shape[1]
        g = grams.gram(grams.user_weighted(train, self.b_, with_pairs(train, self.pairs_)))
        n = np.diag(g)[:n_items].copy()
        rescale(g, self.pairs_, n_items, 1 / (1 + self.kappa_))
        g[np.diag_indices(n_items)] += penalty(n, l2=self.l2_, nu=self.nu_)

        def solved(g: FloatArray, pair_l2: float) -> FloatArray:
            places = np.arange(n_items, len(g))
            g[places, places] += np.float32(pair_l2)
            return grams.invert_in_place(g)

        kept: dict[float, FloatArray] = {}  # the weights of the last trial, which is often the only one

        def second_order(values: Mapping[str, Any], jury: selftune.Jury) -> list[selftune.Judged]:
            kept.clear()
            p = solved(g.copy(order="F"), values["pair_l2"])
            left_out = PairsLeftOut.of(train, jury.left_out, grams.user_weights(train, self.b_), p, self.pairs_)
            kept[values["pair_l2"]] = weights = exclude_own(p, self.pairs_, n_items)
            return selftune.by_scaling(
                *(jury, train, self.c, lambda history: self._features(history) @ weights),
                lambda places: left_out.scores(places, weights),
            )

        jury = selftune.jury(train, valid, rng) if selftune.searches(self) else None
        trials, probes = min(self.tune_trials, _PAIR_TRIALS), int(self.good_starts)
        selftune.settle(
            *(self, second_order, jury, rng), searched=("pair_l2",), free=("c",), trials=trials, probes=probes
        )
        assert self.pair_l2_ is not None
        found = kept.get(self.pair_l2_)
        return exclude_own(solved(g, self.pair_l2_), self.pairs_, n_items) if found is None else found

    def fit_bytes(self, shape: Shape) -> int:
        n_features = shape.items + self._most_pairs(shape.items)
        return grams.gram_bytes(n_features, self._matrices(shape.items), shape.interactions)

    def seconds(self, shape: Shape) -> float:
        """Return about how many seconds a fit takes: an inverse in each trial of items, and in one with pairs."""
        trials = self.tune_trials if selftune.searches(self, unused=("pair_l2",)) else 0
        trial, last = min(shape.items, selftune.MOST_ITEMS), shape.items + self._most_pairs(shape.items)
        return (
            min(trials, 3) * _PER_TRIAL * float(trial) ** 3 + (1 + (self.pairs > 0)) * float(last) ** 3
        ) / grams.FLOPS

    def _most_pairs(self, n_items: int) -> int:
        return min(self.pairs, n_items * (n_items - 1) // 2)

    def _matrices(self, n_items: int) -> float:
        """Return how many matrices are held at once: the Gram matrix, its copy in a trial, and separate weights."""
        n_pairs = self._most_pairs(n_items)
        whole = n_pairs > 0 or n_items <= selftune.MOST_ITEMS  # otherwise the search uses only some items
        copies = whole and selftune.searches(self, unused=() if n_pairs else ("pair_l2",))
        separate = n_items / (n_items + n_pairs) if n_pairs else 0  # without pairs they overwrite the matrix
        return 1.1 + copies + separate

    def _features(self, history: Csr) -> Csr:
        return with_pairs(history, self.pairs_) if len(self.pairs_) else history


@dataclass
class HigherOrderEASE(ThinningLinear):
    """EASE with pairs of items, without thinning (Steck and Liang, 2021): the same form with other starts.

    Without noise, the penalty of a pair must do all the shrinking.
    """

    good_starts: ClassVar[bool] = False
    l2: float | None = self_tuned(500.0, "weight of the squared penalty", at_least=1e-6, search=(1, 1e4), log=True)
    pair_l2: float | None = self_tuned(4e4, "penalty of a pair", at_least=1e-6, search=(100, 1e6), log=True)


def fit_linear(model: RidgeRecommender, train: Csr, valid: Fold | None, rng: RngLike) -> ThinningLinear:
    """Fit `thinning-linear` with the ridge settings of `model` and copy the values that it chose to `model`."""
    linear = ThinningLinear(**{name: getattr(model, name) for name in (*RIDGE, "tune_trials")})
    name_part(linear, part_name(model))
    linear.fit(train, valid, rng=rng)
    model.trials_ = linear.trials_
    for name in RIDGE:
        setattr(model, f"{name}_", getattr(linear, f"{name}_"))
    return linear


def solve(
    g: FloatArray, *, l2: float, nu: float, kappa: float, mean: float | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return B (items, items) and the diagonal of P for the Gram matrix `g`, which is overwritten.

    `mean` is the mean popularity of all items, if `g` has only some of them.
    """
    n = np.diag(g).copy()
    return grams.solve_items(g, penalty(n, l2=l2, nu=nu, mean=mean) + np.float32(kappa) * n)
