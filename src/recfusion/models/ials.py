"""iALS: matrix factorisation of all entries by alternating least squares (Hu et al., 2008; Rendle et al., 2022)."""

import logging
from dataclasses import dataclass, field, replace
from typing import Self

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
from recfusion.models.gram import blas_threads
from recfusion.models.settings import learned, setting

log = logging.getLogger(__name__)
_ALPHA0, _STRENGTH = 0.2, 5.0  # as one of several models
_PRODUCTS_PER_SECOND = 1.2e10  # multiply-adds in small matrices on one core, about (measured)


@dataclass
class IALS(Recommender):
    """Factors W of users and V of items that minimise, by turns,

        sum over ones of (1 - w_u.v_i)^2 + alpha0 * sum over all entries of (w_u.v_i)^2
        + sum_u l2_u |w_u|^2 + sum_i l2_i |v_i|^2,

    with l2_u = c * l2 * (n_u + alpha0 * items)^nu and l2_i = c * l2 * (n_i + alpha0 * users)^nu. The constant c gives
    these weights the sum that they have at nu = 1, so that one l2 serves all nu. Only V is kept: any user, seen or
    unseen, is folded in by solving for the row w_u.
    """

    factors: int = setting(128, "length of a factor", at_least=1, search=(32, 512), log=True)
    iterations: int = setting(16, "passes over users and items", at_least=1)
    alpha0: float = setting(0.1, "weight of an entry whatever its value", at_least=1e-6, search=(0.01, 1.0), log=True)
    l2: float = setting(0.01, "weight of the squared penalty", at_least=1e-9, search=(1e-4, 0.1), log=True)
    nu: float = setting(
        1.0, "how the penalty grows with how often a user or item occurs", at_least=0, search=(0.0, 1.0)
    )
    init: float = setting(0.1, "standard deviation of the first factors, times sqrt(factors)", at_least=0)
    items_: FloatArray = learned()  # (items, factors)
    l2_: FloatArray = learned()  # (1,): c * l2
    _product: tuple[FloatArray, FloatArray] | None = field(init=False, default=None, repr=False, compare=False)

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        n_users, n_items = train.shape
        require_memory(
            4 * (n_users + n_items) * self.factors + 16 * train.nnz,
            f"iALS on {n_users:,} users and {n_items:,} items",
            "set fewer factors.",
        )
        by_item = train.T.tocsr()
        self.l2_ = np.array([self.l2 * _comparable(train, by_item, self.alpha0, self.nu)], np.float32)
        draws = make_rng(rng).standard_normal((n_items, self.factors), np.float32)
        self.items_ = draws * np.float32(self.init / np.sqrt(self.factors))
        for iteration in range(1, self.iterations + 1):
            users = self.fold_in(train)
            self.items_ = half_step(by_item, users, self.alpha0, self._penalties(by_item))
            log.debug("iALS: iteration %d of %d", iteration, self.iterations)
        return self

    def economical(self, shape: Shape) -> Self:
        """Return short factors and few passes, which a mixture needs, with a penalty that depends on the data's size.

        A mean user's l2 (n_u + alpha0 * items) is `_STRENGTH` then, which is good on data sets of every size that
        was tried; the defaults, chosen on ML-1M, leave small data with too little of it.
        """
        per_user = shape.interactions / max(1, shape.users) + _ALPHA0 * shape.items
        return replace(self, factors=64, iterations=6, alpha0=_ALPHA0, l2=_STRENGTH / per_user)

    def seconds(self, shape: Shape) -> float:
        products = 2 * shape.interactions * self.factors**2 + (shape.users + shape.items) * self.factors**3 / 3
        return self.iterations * products / _PRODUCTS_PER_SECOND

    def score(self, history: Csr) -> FloatArray:
        return np.asarray(self.fold_in(history) @ self.items_.T)

    def fold_in(self, history: Csr) -> FloatArray:
        """Return the factors (users, factors) that are best for these histories, given the items' factors."""
        if self._product is None or self._product[0] is not self.items_:
            self._product = self.items_, square(self.items_, self.alpha0)
        return half_step(history, self.items_, self.alpha0, self._penalties(history), self._product[1])

    def _penalties(self, rows: Csr) -> FloatArray:
        return (float(self.l2_[0]) * frequencies(rows, self.alpha0) ** self.nu).astype(np.float32)


def frequencies(rows: Csr, alpha0: float) -> NDArray[np.float64]:
    """Return n + alpha0 * columns for each row: the weight of the row's entries in the loss."""
    return np.diff(rows.indptr) + alpha0 * rows.shape[1]


def square(fixed: FloatArray, alpha0: float) -> FloatArray:
    """Return alpha0 V'V, (d, d), of which the lower triangle is all that is read."""
    with blas_threads(fixed.shape[1]):
        return np.asarray(ssyrk(np.float32(alpha0), fixed.T, lower=True))


def half_step(
    rows: Csr, fixed: FloatArray, alpha0: float, l2: FloatArray, product: FloatArray | None = None
) -> FloatArray:
    """Return the factors (rows, d) that minimise the loss while the columns' factors (columns, d) are fixed.

    Row r solves (alpha0 V'V + sum over its ones of v v' + l2_r I) w = sum over its ones of v. The loop is plain: for
    factors of useful length a row's products and its Cholesky solution cost more than the calls around them.
    `product` is alpha0 V'V, where it is at hand.
    """
    d = fixed.shape[1]
    solved = np.zeros((rows.shape[0], d), np.float32)
    diagonal = np.diag_indices(d)
    base = square(fixed, alpha0) if product is None else product
    with blas_threads(d):
        for row in range(rows.shape[0]):
            own = fixed[rows.indices[rows.indptr[row] : rows.indptr[row + 1]]]  # (n, d)
            if not len(own):
                continue  # the best factor of a row without ones is zero
            a = ssyrk(1.0, own.T, beta=1.0, c=base, lower=True)
            a[diagonal] += l2[row]
            _, solved[row], failed = sposv(a, own.sum(axis=0), lower=True, overwrite_a=True, overwrite_b=True)
            if failed:
                raise InputError("A user's or item's normal equations have no unique solution: raise l2.")
    return solved


def _comparable(by_user: Csr, by_item: Csr, alpha0: float, nu: float) -> float:
    """Return the constant c: sum of frequencies / sum of frequencies^nu, over users and items."""
    both = np.concatenate([frequencies(by_user, alpha0), frequencies(by_item, alpha0)])
    return float(both.sum() / (both**nu).sum())
