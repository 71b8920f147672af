"""iALS: matrix factorisation of all entries by alternating least squares (Hu et al., 2008; Rendle et al., 2022)."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import ssyrk
from scipy.linalg.lapack import sposv

from recfusion.core.arrays import Csr, FloatArray
from recfusion.core.errors import InputError
from recfusion.core.memory import require_memory
from recfusion.core.rng import RngLike, make_rng
from recfusion.data.split import Fold
from recfusion.models.base import Recommender, Shape
from recfusion.models.linear.gram import blas_threads
from recfusion.models.self_tuning import Judged, Jury, searches, settle, trials_setting, validation_jury
from recfusion.models.settings import learned, self_tuned, setting

log = logging.getLogger(__name__)
_ALPHA0_DOC = "iALS weight of every entry, whatever its value"
_L2_DOC, _L2_RULE = "iALS weight of the squared penalty", "4 / (mean items of a user + alpha0 * items)"
_NU_DOC = "iALS exponent: how the penalty grows with the count of a user or item"
_ALPHA0, _STRENGTH = 0.2, 5.0  # as part of a mixture
_USUAL = 4.0  # penalty of a mean user at the start of a search, l2 (n_u + alpha0 * items)
_TRIED_FACTORS, _TRIED_PASSES = 64, 6  # in a trial
_SHORT = 4  # a row is short if it has at most factors / 4 ones
_CELLS = 1 << 20  # rows x ones x factors solved at once
_PRODUCTS_PER_SECOND = 1.2e10  # multiply-adds in small matrices on one core (measured, roughly)


class Singular(InputError):  # noqa: N818
    """The penalty is too small to make the equations solvable."""


@dataclass
class FactorRecommender(Recommender):
    """The settings of iALS and what it learns, for all models with its factors."""

    factors: int = setting(128, "length of a factor", at_least=1, at_most=10_000, search=(32, 512), log=True)
    iterations: int = setting(16, "passes of iALS over users and items", at_least=1, at_most=10_000)
    alpha0: float | None = self_tuned(0.1, _ALPHA0_DOC, at_least=1e-6, search=(0.01, 1.0), log=True)
    l2: float | None = self_tuned(0.01, _L2_DOC, at_least=1e-9, search=(1e-7, 0.1), log=True, rule=_L2_RULE)
    nu: float | None = self_tuned(1.0, _NU_DOC, at_least=0, search=(0.0, 1.0))
    tune_trials: int = trials_setting(6)
    alpha0_: float = learned()
    l2_: float = learned()
    nu_: float = learned()
    items_: FloatArray = learned()  # (items, factors)
    penalty_: FloatArray = learned()  # (1,): c * l2


@dataclass
class IALS(FactorRecommender):
    """Factors W of users and V of items that minimise, in alternation,

        sum over ones of (1 - w_u.v_i)^2 + alpha0 * sum over all entries of (w_u.v_i)^2
        + sum_u l2_u |w_u|^2 + sum_i l2_i |v_i|^2,

    with l2_u = c * l2 * (n_u + alpha0 * items)^nu and l2_i = c * l2 * (n_i + alpha0 * users)^nu. The constant c
    keeps the sum of these weights as at nu = 1, so that one l2 fits all nu. Only V is stored: scoring solves for the
    row w_u of any user, seen or unseen.
    """

    init: float = setting(0.1, "standard deviation of the initial factors, times sqrt(factors)", at_least=0)
    _fixed: "Fixed | None" = field(init=False, default=None, repr=False, compare=False)

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        n_users, n_items = train.shape
        require_memory(
            self.fit_bytes(Shape.of(train)), f"iALS on {n_users:,} users and {n_items:,} items", "set fewer factors."
        )
        generator = make_rng(rng)
        self._settle(train, valid, generator)
        by_item = train.T.tocsr()
        self.penalty_ = np.array([self.l2_ * _comparable(train, by_item, self.alpha0_, self.nu_)], np.float32)
        draws = generator.standard_normal((n_items, self.factors), np.float32)
        self.items_ = draws * np.float32(self.init / np.sqrt(self.factors))
        for iteration in range(1, self.iterations + 1):
            users = self.fold_in(train)
            self.items_ = half_step(by_item, Fixed(users, self.alpha0_), self._penalties(by_item))
            log.debug("iALS: iteration %d of %d", iteration, self.iterations)
        return self

    def _settle(self, train: Csr, valid: Fold | None, rng: np.random.Generator) -> None:
        """Choose the open settings on the validation users, with shorter factors and fewer passes.

        The search starts where a mean user's penalty is `_USUAL`, as on ML-1M with l2 = 0.01. A fixed l2 would penalise
        more with more items: with 200,000 items all factors would be 0 and the lists those of popularity.
        """

        def objective(values: Mapping[str, Any], jury: Jury) -> list[Judged]:
            factors, passes = min(self.factors, _TRIED_FACTORS), min(self.iterations, _TRIED_PASSES)
            tried = replace(self, **values, factors=factors, iterations=passes, tune_trials=0)
            try:
                tried.fit(train, rng=make_rng(seed))
            except Singular:
                return [Judged({}, np.zeros(jury.n_users))]
            values_of_users = jury.judge(lambda rows: [tried.score(jury.valid.history[rows])], lambda _: [])
            return [Judged({}, values_of_users[0])]

        self.trials_ = 0
        judging = validation_jury(train, valid) if searches(self) else None
        seed = int(rng.integers(2**31)) if judging is not None else 0  # the same first factors in every trial
        alpha0 = 0.1 if self.alpha0 is None else self.alpha0
        per_user = train.nnz / max(1, train.shape[0]) + alpha0 * train.shape[1]
        starts = {"l2": _USUAL / per_user}
        searched = ("alpha0", "l2", "nu")
        settle(*(self, objective, judging, rng), searched=searched, trials=self.tune_trials, starts=starts)

    def economical(self, shape: Shape) -> Self:
        """Return a copy with short factors and few passes for a mixture, and a penalty for this data size.

        A mean user's penalty l2 (n_u + alpha0 * items) is `_STRENGTH`, which was good on all data sizes tried; the
        defaults, chosen on ML-1M, penalise small data too little.
        """
        per_user = shape.interactions / max(1, shape.users) + _ALPHA0 * shape.items
        return replace(self, factors=64, iterations=6, alpha0=_ALPHA0, l2=_STRENGTH / per_user, nu=1.0)

    def fit_bytes(self, shape: Shape) -> int:
        rows = shape.users + 2 * shape.items + 2 * max(shape.users, shape.items)  # factors, old and new, and rotated
        return 4 * rows * self.factors + 12 * shape.interactions + 16 * _CELLS

    def seconds(self, shape: Shape) -> float:
        products = 2 * shape.interactions * self.factors**2 + (shape.users + shape.items) * self.factors**3 / 3
        return self.iterations * products / _PRODUCTS_PER_SECOND

    def score(self, history: Csr) -> FloatArray:
        return np.asarray(self.fold_in(history) @ self.items_.T)

    def fold_in(self, history: Csr) -> FloatArray:
        """Return the optimal user factors (users, factors) of these histories for the fitted item factors."""
        if self._fixed is None or self._fixed.factors is not self.items_:
            self._fixed = Fixed(self.items_, self.alpha0_)
        return half_step(history, self._fixed, self._penalties(history))

    def _penalties(self, rows: Csr) -> FloatArray:
        return (float(self.penalty_[0]) * frequencies(rows, self.alpha0_) ** self.nu_).astype(np.float32)


def frequencies(rows: Csr, alpha0: float) -> NDArray[np.float64]:
    """Return n + alpha0 * columns for each row: the total weight of its entries in the loss."""
    return np.diff(rows.indptr) + alpha0 * rows.shape[1]


@dataclass(frozen=True)
class Fixed:
    """The fixed side of an alternating step, with the products that all rows share."""

    factors: FloatArray  # V, (columns, d)
    alpha0: float

    @cached_property
    def base(self) -> FloatArray:
        """alpha0 V'V, (d, d); only its lower triangle is used."""
        with blas_threads(self.factors.shape[1]):
            return np.asarray(ssyrk(np.float32(self.alpha0), self.factors.T, lower=True))

    @cached_property
    def rotated(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The eigenvalues s of base = Q diag(s) Q', Q, and the rotated factors V Q."""
        s, q = np.linalg.eigh(self.base.astype(np.float64), UPLO="L")
        axes = q.astype(np.float32)
        return np.maximum(s, 0).astype(np.float32), axes, self.factors @ axes


def half_step(rows: Csr, fixed: Fixed, l2: FloatArray) -> FloatArray:
    """Return the factors (rows, d) that minimise the loss for fixed factors (columns, d) of the columns.

    Row r solves (alpha0 V'V + sum over its entries of x v v' + l2_r I) w = sum over its entries of x v, where an
    entry's value x is its weight in the loss. Rows with few entries are solved together in the space of their entries.
    The others are solved in a loop: their products and Cholesky solutions take longer than the Python calls.
    """
    d, roots = fixed.factors.shape[1], np.sqrt(rows.data.astype(np.float32, copy=False))[:, None]
    solved = np.zeros((rows.shape[0], d), np.float32)  # the optimal factor of an empty row
    lengths = np.diff(rows.indptr)
    with blas_threads(d):
        if ((lengths > 0) & (lengths <= d // _SHORT)).any():
            _solve_short(rows, fixed, l2, solved)
        diagonal = np.diag_indices(d)
        for row in np.flatnonzero(lengths > d // _SHORT):
            place = slice(rows.indptr[row], rows.indptr[row + 1])
            own = fixed.factors[rows.indices[place]] * roots[place]  # (n, d)
            a = ssyrk(1.0, own.T, beta=1.0, c=fixed.base, lower=True)
            a[diagonal] += l2[row]
            _, solved[row], failed = sposv(
                a, (own * roots[place]).sum(axis=0), lower=True, overwrite_a=True, overwrite_b=True
            )
            if failed:
                raise Singular("The normal equations of a user or item have no unique solution: raise l2.", "l2")
    return solved


def _solve_short(rows: Csr, fixed: Fixed, l2: FloatArray, solved: FloatArray) -> None:
    """Fill the rows of `solved` with at most d / 4 entries, in groups of equal length.

    In the axes of alpha0 V'V = Q diag(s) Q', with t = s + l2_r, Z the vectors of the row's entries times the roots
    r of their values, and K = Z diag(1 / t) Z', the solution is diag(1 / t) Z' (I + K)^-1 r: one equation per entry.
    """
    s, axes, rotated = fixed.rotated
    d = len(s)
    lengths = np.diff(rows.indptr)
    for n in range(1, d // _SHORT + 1):
        places = np.flatnonzero(lengths == n)
        step = max(1, _CELLS // (n * d))
        for start in range(0, len(places), step):
            some = places[start : start + step]
            place = rows.indptr[some][:, None] + np.arange(n)
            root = np.sqrt(rows.data[place].astype(np.float32, copy=False))[:, :, None]  # (rows, n, 1)
            z = rotated[rows.indices[place]] * root  # (rows, n, d)
            inverse = 1 / (s + l2[some][:, None])  # (rows, d)
            system = (z * inverse[:, None]) @ z.swapaxes(1, 2)  # (rows, n, n)
            system[:, np.arange(n), np.arange(n)] += 1
            shares = np.linalg.solve(system, root)
            solved[some] = (inverse * (z * shares).sum(1)) @ axes.T


def _comparable(by_user: Csr, by_item: Csr, alpha0: float, nu: float) -> float:
    """Return the constant c: sum of frequencies / sum of frequencies^nu, over users and items."""
    both = np.concatenate([frequencies(by_user, alpha0), frequencies(by_item, alpha0)])
    return float(both.sum() / (both**nu).sum())
