"""EASE (Steck, 2019), and the linear autoencoders after it in one closed form: EDLAE, RDLAE and EASE-DAN."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from recfusion.core.arrays import Csr, FloatArray, IntArray, column_counts
from recfusion.core.errors import InputError
from recfusion.core.rng import RngLike, make_rng
from recfusion.data.signals import valued
from recfusion.data.split import Fold
from recfusion.models import self_tuning as selftune
from recfusion.models.base import Recommender, Shape
from recfusion.models.leave_one_out import LeftOut
from recfusion.models.linear.gram import Grams, gram_bytes, require_gram_memory, solve_items, user_weights
from recfusion.models.reasons import Reasons, exact
from recfusion.models.settings import learned, self_tuned

_SOLVED = ("l2", "p", "beta")  # settings that need an inverse of their own
_TENTHS = tuple(tenth / 10 for tenth in range(11))  # values of xi and a that a trial scores with one inverse


@dataclass
class ItemWeights(Recommender):
    """A model with a dense matrix of item-to-item weights in closed form."""

    needs_validation: ClassVar[bool] = False  # settings are scored on training users that are left out of the fit
    weights_: FloatArray = learned()  # (items, items)

    def fit_bytes(self, shape: Shape) -> int:
        return gram_bytes(shape.items, self.n_matrices(shape.items), shape.interactions)

    def score(self, history: Csr) -> FloatArray:
        return np.asarray(history @ self.weights_)

    def reasons(self, history: Csr, items: IntArray) -> Reasons:
        return exact(history, self.weights_, items)

    def n_matrices(self, n_items: int) -> float:
        """Return how many matrices are held at once: a search copies the Gram matrix."""
        return 2.1 if selftune.searches(self) and n_items <= selftune.MOST_ITEMS else 1.1


@dataclass
class EASE(ItemWeights):
    """Item-item weights B that minimise |X - XB|^2 + l2 |B|^2 with diag(B) = 0.

    With P = (X'X + l2 I)^-1 the solution is B_ij = -P_ij / P_jj off the diagonal.
    """

    l2: float | None = self_tuned(500.0, "weight of the squared penalty", at_least=1e-6, search=(1, 1e4), log=True)
    tune_trials: int = selftune.trials_setting()
    l2_: float = learned()

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        require_gram_memory(train.shape[1], "EASE", self.n_matrices(train.shape[1]))
        generator = make_rng(rng)
        small, seen = selftune.searched_items(train, valid)
        grams = Grams(small)

        def objective(values: Mapping[str, Any], jury: selftune.Jury) -> list[selftune.Judged]:
            weights, diagonal = solve_items(grams.copy(0.0), values["l2"])
            left_out = LeftOut(small, jury.left_out, user_weights(small, 0), weights, diagonal)
            return selftune.by_scaling(jury, small, 0.0, lambda history: history @ weights, left_out.scores)

        self.trials_ = 0
        jury = selftune.jury(small, seen, generator) if selftune.searches(self) else None
        selftune.settle(self, objective, jury, generator, searched=("l2",), trials=self.tune_trials)
        grams = grams if small is train else Grams(train)
        self.weights_ = solve_items(grams.last(0.0), self.l2_)[0]
        return self


@dataclass
class LinearAutoencoder(ItemWeights):
    """Item-item weights that minimise a weighted squared error with drop-out, with a bound on the diagonal.

    With P = (X'WX + diag L)^-1 and L_i = l2 + p / (1 - p) n_i, where n are the plain counts of the items:

        B_ij = -P_ij s_j, s_j = max(L_j, (1 - xi) / P_jj);   score_j = n_j^-a sum_i x_i n_i^a B_ij

    p is the probability that an entry of the input is dropped (EDLAE; Steck, 2020). xi bounds the diagonal, which does
    not affect the ranking and is left out: 0 forbids it, 1 leaves it free (RDLAE; Moon et al., 2023). W = |u|^-beta,
    rescaled to keep the sum, weights the users, and n^a scales the items on both sides (DAN; Park et al., 2025). The
    rescaling changes the meaning of l2 and p, but not the models that they can reach. p = xi = beta = a = 0 is EASE. A
    search starts from values that were good on ML-1M, as that of `thinning-linear` does (docs/explanation/thinning.md).
    """

    l2: float | None = self_tuned(350.0, "weight of the squared penalty", at_least=1e-6, search=(1, 1e4), log=True)
    p: float | None = self_tuned(0.45, "probability of dropping an entry of the input", at_least=0, search=(0.0, 0.9))
    xi: float | None = self_tuned(0.4, "bound of the diagonal", at_least=0, search=(0.0, 1.0))
    beta: float | None = self_tuned(0.5, "users are weighted by |u|^-beta", search=(0.0, 1.0))
    a: float | None = self_tuned(0.3, "items are scaled by popularity^a on both sides", search=(0.0, 1.0))
    tune_trials: int = selftune.trials_setting()
    l2_: float = learned()
    p_: float = learned()
    xi_: float = learned()
    beta_: float = learned()
    a_: float = learned()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.p is not None and self.p >= 1:
            raise InputError(f"Expected p of a linear autoencoder to be below 1, got {self.p}: set p to 0.5, say.", "p")

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        require_gram_memory(train.shape[1], "A linear autoencoder", self.n_matrices(train.shape[1]))
        generator = make_rng(rng)
        small, seen = selftune.searched_items(train, valid)
        grams = Grams(small)

        def objective(values: Mapping[str, Any], jury: selftune.Jury) -> list[selftune.Judged]:
            solved = solve(grams.copy(values["beta"]), penalties(small, values["l2"], values["p"]))
            return self._judged(solved, small, user_weights(small, values["beta"]), jury)

        self.trials_ = 0
        jury = selftune.jury(small, seen, generator) if selftune.searches(self) else None
        asked, plain = (self, objective, jury, generator), {"p": 0.0, "beta": 0.0}
        selftune.settle(*asked, searched=_SOLVED, free=("xi", "a"), first=[plain], trials=self.tune_trials)
        grams = grams if small is train else Grams(train)
        solved = solve(grams.last(self.beta_), penalties(train, self.l2_, self.p_))
        out = selftune.scalings(train, (self.a_,))[0]
        self.weights_ = solved.weights
        self.weights_ *= solved.scale(self.xi_) * out
        self.weights_ /= out[:, None]
        return self

    def _judged(self, solved: "Solved", train: Csr, weights: FloatArray, jury: selftune.Jury) -> list[selftune.Judged]:
        """Score every open bound and power: they only scale items, so that one inverse serves all of them."""
        bounds = _TENTHS if self.xi is None else (self.xi,)
        powers = _TENTHS if self.a is None else (self.a,)
        scales = selftune.scalings(train, powers)
        left_out = LeftOut(train, jury.left_out, weights, solved.weights, solved.diagonal)

        def variants(rows: slice) -> Iterator[FloatArray]:
            for out in scales:
                history = jury.valid.history[rows]
                scores = valued(history, history.data * (1 / out)[history.indices]) @ solved.weights * out
                yield from (scores * solved.scale(xi) for xi in bounds)

        def of_left_out(rows: slice) -> Iterator[FloatArray]:
            for out in scales:
                scores, diagonal = left_out.scores_and_diagonal(rows, 1 / out)
                scores *= out
                yield from (scores * np.maximum(solved.penalties * diagonal, np.float32(1 - xi)) for xi in bounds)

        values = jury.judge(variants, of_left_out)
        tried = [{"xi": xi, "a": a} for a in powers for xi in bounds]
        return [selftune.Judged(one, row) for one, row in zip(tried, values, strict=True)]


@dataclass
class EASEDAN(LinearAutoencoder):
    """The same form with other starts: weighted users and scaled items need more drop-out and a smaller ridge."""

    l2: float | None = self_tuned(100.0, "weight of the squared penalty", at_least=1e-6, search=(1, 1e4), log=True)
    p: float | None = self_tuned(0.67, "probability of dropping an entry of the input", at_least=0, search=(0.0, 0.9))


@dataclass(frozen=True)
class Solved:
    """EDLAE's weights and the diagonal of P; every model of the family scales their columns."""

    weights: FloatArray  # (items, items): -P_ij / P_jj, 0 on the diagonal
    diagonal: FloatArray  # (items,): that of P
    penalties: FloatArray  # (items,): L

    def scale(self, xi: float) -> FloatArray:
        """Return s_j P_jj, (items,): the diagonal of B is 1 - P_jj s_j, at most xi."""
        return np.maximum(self.penalties * self.diagonal, np.float32(1 - xi))


def solve(g: FloatArray, ridge: FloatArray) -> Solved:
    """Return the solution for the Gram matrix `g` and the penalties `ridge`; `g` is overwritten."""
    return Solved(*solve_items(g, ridge), ridge)


def penalties(train: Csr, l2: float, p: float) -> FloatArray:
    """Return L_i = l2 + p / (1 - p) n_i, (items,): a ridge plus the expected penalty of drop-out."""
    return (l2 + p / (1 - p) * column_counts(train)).astype(np.float32)
