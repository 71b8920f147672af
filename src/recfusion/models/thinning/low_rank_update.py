"""The algebra of updates: a change of some users is a change of G + Lambda on their items alone.

With P = A^-1 and A' = A + E_S M E_S', where E_S selects the changed features S, the Woodbury identity gives

    P' = P - P_.S K P_S.,   K = (I + M P_SS)^-1 M.

P_.S are columns of P, so that nothing of the size of P is multiplied except once by a matrix with |S| columns.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lu_factor, lu_solve
from scipy.linalg.blas import sgemm
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray, IntArray
from recfusion.models.linear.gram import blas_threads, gram
from recfusion.models.self_tuning import relative

Numbers = NDArray[np.float64]
_SPARSE = 500.0  # cost of a multiply-add of a sparse product over that of a dense one (measured)
_SMALL = 6000  # items up to which a second matrix, for a moment, does not matter
_ROWS = 512  # rows of a matrix that are scaled and corrected while they are in the cache


@dataclass(frozen=True)
class Fixed:
    """What an update takes over from the last full fit: means over all users, and chosen settings."""

    scale: float  # a user with |u| items has the weight scale |u|^-b
    mean: float  # weighted users of an item
    mean_count: float  # users of an item
    l2: float
    nu: float
    kappa: float
    b: float
    c: float

    @classmethod
    def of(cls, rows: Csr, *, l2: float, nu: float, kappa: float, b: float, c: float) -> "Fixed":
        lengths = np.diff(rows.indptr).astype(np.float64)
        weighted = (np.maximum(lengths, 1) ** -b * lengths).sum()
        n_items = max(1, rows.shape[1])
        scale = lengths.sum() / max(weighted, 1e-12)
        return cls(float(scale), float(scale * weighted / n_items), rows.nnz / n_items, l2, nu, kappa, b, c)

    def weights(self, rows: Csr) -> Numbers:
        """Return the weights of users, (users,)."""
        return np.asarray(self.scale * np.maximum(np.diff(rows.indptr), 1).astype(np.float64) ** -self.b)

    def counts(self, rows: Csr, features: Csr | None = None) -> Numbers:
        """Return the weighted number of users of each item, or of each column of the users' `features`."""
        z = rows if features is None else features
        return np.bincount(z.indices, np.repeat(self.weights(rows), np.diff(z.indptr)), z.shape[1]).astype(np.float64)

    def penalty(self, n: Numbers) -> Numbers:
        """Return l2 (n_i / mean)^nu, (items,)."""
        return np.asarray(self.l2 * np.maximum(n / max(self.mean, 1e-12), _RAREST) ** self.nu)

    def ridge(self, n: Numbers) -> Numbers:
        """Return Lambda, (items,)."""
        return np.asarray(self.penalty(n) + self.kappa * n)

    def scaling(self, counts: NDArray[np.generic]) -> FloatArray:
        """Return popularity^-c, (items,)."""
        return np.asarray(relative(counts.astype(np.float32), self.mean_count) ** np.float32(-self.c))


_RAREST = float(relative(np.zeros(1, np.float32), 1.0)[0])


def weighted_gram(rows: Csr, weights: Numbers, columns: IntArray) -> Numbers:
    """Return sum_u w_u x_u x_u' over these columns, (columns, columns)."""
    part = rows[:, columns].astype(np.float64)
    scaled = csr_array((part.data * np.repeat(weights, np.diff(part.indptr)), part.indices, part.indptr), part.shape)
    return np.asarray((part.T @ scaled).toarray())


def gram_by_length(z: Csr) -> FloatArray:
    """Return Z'Z (items, items): rows with many entries by a dense product, and those with few by a sparse one."""
    few = _SPARSE * np.square(np.diff(z.indptr).astype(np.float64)) < float(z.shape[1]) ** 2
    if z.shape[1] > _SMALL or few.all() or not few.any():
        return gram(z)
    g = gram(z[~few])
    g += gram(z[few])
    return g


def core(p_ss: Numbers, m: Numbers) -> Numbers:
    """Return K = (I + M P_SS)^-1 M, symmetric, (S, S)."""
    k = lu_solve(lu_factor(np.eye(len(m)) + m @ p_ss, overwrite_a=True), m)
    return np.asarray((k + k.T) / 2)


def correct(p: FloatArray, s: IntArray, m: Numbers) -> None:
    """Correct P, in place, for a change M of the features S."""
    u = p[:, s]
    with blas_threads(len(p)):
        mixed = u @ core(u[s].astype(np.float64), m).astype(np.float32)
    scale_and_add(p, np.ones(len(p), np.float32), -mixed, np.ascontiguousarray(u.T), p)


def isolate(p: FloatArray, lone: IntArray, ridge: Numbers) -> None:
    """Set rows and columns of P, in place, of features that have nothing but their penalty left."""
    p[lone], p[:, lone] = 0, 0
    p[lone, lone] = 1 / ridge


def scale_and_add(
    source: FloatArray, ratio: FloatArray, left: FloatArray, right: FloatArray, target: FloatArray
) -> None:
    """Write source diag(ratio) + left @ right to `target` (rows, columns), which may be `source`."""
    with blas_threads(len(target)):
        for start in range(0, len(target), _ROWS):
            part = target[start : start + _ROWS]
            np.multiply(source[start : start + _ROWS], ratio, out=part)
            sgemm(1.0, right.T, left[start : start + _ROWS].T, beta=1.0, c=part.T, overwrite_c=True)
