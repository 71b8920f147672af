"""The linear denoiser of thinned rows in closed form, with items alone or with pairs of items as features."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from recfusion.core.arrays import Csr, FloatArray, IntArray
from recfusion.core.rng import RngLike, make_rng
from recfusion.data.split import Fold
from recfusion.models import self_tuning as selftune
from recfusion.models.base import Recommender, Shape
from recfusion.models.leave_one_out import LeftOut
from recfusion.models.linear.gram import (
    Grams,
    gram,
    gram_bytes,
    invert_in_place,
    require_gram_memory,
    solve_items,
    user_weighted,
    user_weights,
)
from recfusion.models.reasons import Reasons, exact
from recfusion.models.settings import learned, self_tuned, setting
from recfusion.models.thinning.leave_one_out import PairsLeftOut
from recfusion.models.thinning.pairs import exclude_own, most_frequent, rescale, with_pairs

log = logging.getLogger(__name__)
_NOTHING: FloatArray = np.zeros((0, 0), np.float32)
_RIDGE = ("l2", "nu", "kappa")
_PAIR_USERS = 100  # that a pair has at the least: with fewer, a penalty of thousands would leave nothing of it
_PAIRS_UP_TO = 12_000  # items beyond which pairs would multiply the cost of the inverse for little
_FEWER_PAIRS = 2500  # as one of several models: as good there, in half the time
_PAIR_TRIALS = 3  # a fit with pairs takes ten times as long as one without
_L2, _L2_POWER = 20.0, 0.7


@dataclass
class ThinningLinear(Recommender):
    """Weights from features to items that undo thinning with the least squared error, and a prior on popularity.

    With G = X'WX, n = diag G and P = (G + diag Lambda)^-1, where Lambda_i = l2 (n_i / mean n)^nu + kappa n_i:

        B_ij = -P_ij / P_jj, B_jj = 0;   score_j = (x B)_j n_j^-c

    kappa = (1 - a) / a is the noise level of the process, at which a share a of the ones survives. The other part of
    Lambda is a survival rate that depends on the item, a_i = n_i / (n_i + Lambda_i). W = |u|^-b, rescaled to keep the
    sum, weights the users' losses, so that the few with thousands of items do not decide alone. n^-c divides by a
    prior on popularity. kappa = nu = b = c = 0 is EASE.

    With pairs, the products of two items' entries are features as well; each target is predicted from the features
    that do not contain it. The derivations are in docs/thinning.md.
    """

    l2: float | None = self_tuned(
        693.0,
        "penalty of an item of mean popularity",
        at_least=1e-6,
        search=(1, 1e4),
        log=True,
        rule="20 (mean users of an item)^.7",
    )
    nu: float | None = self_tuned(0.318, "power of popularity in that penalty", search=(-0.2, 1.0))
    kappa: float | None = self_tuned(0.876, "noise level (1 - a) / a", at_least=0, search=(0.0, 2.5))
    b: float | None = self_tuned(0.5, "users' losses are weighted by |u|^-b", search=(0.0, 1.0))
    c: float | None = self_tuned(0.2, "scores are divided by popularity^c", search=(0.0, 0.5))
    pairs: int = setting(0, "pairs of items, the most frequent, that are features beside the items", at_least=0)
    pair_l2: float | None = self_tuned(4000.0, "penalty of a pair", at_least=1e-6, search=(100, 1e5), log=True)
    tune_trials: int = selftune.trials_setting()
    l2_: float = learned()
    nu_: float = learned()
    kappa_: float = learned()
    b_: float = learned()
    c_: float = learned()
    pair_l2_: float | None = learned()
    weights_: FloatArray = learned()  # (items + pairs, items)
    pairs_: IntArray = learned(item_numbers=True)  # (pairs, 2)

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        n_items = train.shape[1]
        require_gram_memory(n_items, "A linear thinning model", self._matrices(n_items), self._most_pairs(n_items))
        generator = make_rng(rng)
        small, seen = selftune.searched_items(train, valid)
        grams = Grams(small)
        mean = train.nnz / max(1, train.shape[1])

        def first_order(values: Mapping[str, Any], jury: selftune.Jury) -> list[selftune.Judged]:
            ridge = {name: values[name] for name in _RIDGE}
            weights, diagonal = solve(grams.copy(values["b"]), **ridge, mean=mean)
            left_out = LeftOut(small, jury.left_out, user_weights(small, values["b"]), weights, diagonal)
            return selftune.by_scaling(jury, small, self.c, lambda history: history @ weights, left_out.scores)

        self.pairs_ = most_frequent(gram(train) if self.pairs else _NOTHING, self.pairs, _PAIR_USERS)
        self.trials_, self.pair_l2_ = 0, self.pair_l2
        starts = self._starts(train)
        probes = self._probes(starts)
        jury = selftune.jury(small, seen, generator) if selftune.searches(self, unused=("pair_l2",)) else None
        selftune.settle(
            *(self, first_order, jury, generator),
            searched=(*_RIDGE, "b"),
            free=() if len(self.pairs_) else ("c",),
            first=probes,
            trials=self.tune_trials,
            starts=starts,
            probes=self._probed(len(probes) + 1),
        )
        if small is not train or len(self.pairs_):
            grams = Grams(train)
        if len(self.pairs_):
            weights = self._fit_pairs(train, valid, generator)
        else:
            weights = solve(grams.last(self.b_), **self._ridge())[0]
        weights *= selftune.scalings(train, (self.c_,))[0]
        self.weights_ = weights
        return self

    def needs_validation(self, shape: Shape) -> bool:
        """Return False: training users judge its settings, each left out of the fit in turn."""
        return False

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
        n_items = train.shape[1]
        features = with_pairs(user_weighted(train, self.b_), self.pairs_)
        g = gram(features)
        n = np.diag(g)[:n_items].copy()
        ridge = self._ridge()
        rescale(g, self.pairs_, n_items, 1 / (1 + ridge["kappa"]))
        items = np.diag_indices(n_items)
        g[items] += penalty(n, l2=ridge["l2"], nu=ridge["nu"])

        def solved(g: FloatArray, pair_l2: float) -> FloatArray:
            places = np.arange(n_items, len(g))
            g[places, places] += np.float32(pair_l2)
            return invert_in_place(g)

        kept: dict[float, FloatArray] = {}  # the weights of the last trial, which mostly is the only one

        def second_order(values: Mapping[str, Any], jury: selftune.Jury) -> list[selftune.Judged]:
            kept.clear()
            p = solved(g.copy(order="F"), values["pair_l2"])
            left_out = PairsLeftOut.of(train, jury.left_out, user_weights(train, self.b_), p, self.pairs_)
            kept[values["pair_l2"]] = weights = exclude_own(p, self.pairs_, n_items)
            return selftune.by_scaling(
                *(jury, train, self.c, lambda history: self._features(history) @ weights),
                lambda places: left_out.scores(places, weights),
            )

        jury = selftune.jury(train, valid, rng) if selftune.searches(self) else None
        trials = min(self.tune_trials, _PAIR_TRIALS)
        selftune.settle(
            *(self, second_order, jury, rng), searched=("pair_l2",), free=("c",), trials=trials, probes=self._probed(1)
        )
        assert self.pair_l2_ is not None
        found = kept.get(self.pair_l2_)
        return exclude_own(solved(g, self.pair_l2_), self.pairs_, n_items) if found is None else found

    def _starts(self, train: Csr) -> dict[str, float]:
        """Return the starts that depend on the data."""
        return {"l2": start_l2(train)}

    def _probes(self, starts: Mapping[str, float]) -> list[dict[str, float]]:
        """Return the settings, beside the starts, that say whether a search is worth its time."""
        l2 = starts["l2"]
        return [{"l2": l2 / 3, "kappa": 1.5}, {"l2": 3 * l2, "kappa": 0.4}]

    def _probed(self, count: int) -> int:
        """Return after how many trials a search ends where the defaults fit; 0: it does not."""
        return count

    def fit_bytes(self, shape: Shape) -> int:
        n_pairs = self._most_pairs(shape.items)
        return gram_bytes(shape.items + n_pairs, self._matrices(shape.items), shape.interactions)

    def _most_pairs(self, n_items: int) -> int:
        return min(self.pairs, n_items * (n_items - 1) // 2)

    def _matrices(self, n_items: int) -> float:
        """Return how many matrices are held at once: the Gram matrix, a trial's copy of it, and weights on the side."""
        n_pairs = self._most_pairs(n_items)
        whole = n_pairs > 0 or n_items <= selftune.MOST_ITEMS  # otherwise the search looks at a part of the items
        copies = whole and selftune.searches(self, unused=() if n_pairs else ("pair_l2",))
        aside = n_items / (n_items + n_pairs) if n_pairs else 0  # without pairs they take the matrix's place
        return 1.1 + copies + aside

    def _features(self, history: Csr) -> Csr:
        return with_pairs(history, self.pairs_) if len(self.pairs_) else history

    def _ridge(self) -> dict[str, float]:
        return {name: getattr(self, f"{name}_") for name in _RIDGE}


@dataclass
class HigherOrderEASE(ThinningLinear):
    """Pairs of items beside the items without thinning (Steck and Liang, 2021): the same form, begun elsewhere.

    Without noise, a pair's own penalty must do all the shrinking.
    """

    l2: float | None = self_tuned(500.0, "weight of the squared penalty", at_least=1e-6, search=(1, 1e4), log=True)
    pair_l2: float | None = self_tuned(4e4, "penalty of a pair", at_least=1e-6, search=(100, 1e6), log=True)

    def _starts(self, train: Csr) -> dict[str, float]:
        return {}

    def _probes(self, starts: Mapping[str, float]) -> list[dict[str, float]]:
        return []

    def _probed(self, count: int) -> int:
        return 0


def start_l2(train: Csr) -> float:
    """Return the penalty that a search begins with, 20 (mean number of users of an item)^.7: more data, more penalty.

    The rule fits the best penalties of five data sets, from 16 to 150 users an item.
    """
    return float(np.clip(_L2 * (train.nnz / max(1, train.shape[1])) ** _L2_POWER, 1, 1e4))


def penalty(n: FloatArray, *, l2: float, nu: float, mean: float | None = None) -> FloatArray:
    """Return l2 (n_i / mean)^nu, (items,); the mean is that of `n` unless given."""
    return np.asarray(l2 * selftune.relative(n, mean) ** nu, np.float32)


def solve(
    g: FloatArray, *, l2: float, nu: float, kappa: float, mean: float | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return B (items, items) and the diagonal of P for the Gram matrix `g`, which is overwritten.

    `mean` is the mean popularity of all items, where these are some of them.
    """
    n = np.diag(g).copy()
    return solve_items(g, penalty(n, l2=l2, nu=nu, mean=mean) + np.float32(kappa) * n)
