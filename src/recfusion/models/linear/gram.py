"""The items-by-items Gram matrix and its inverse, for all linear models: float32, in place."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import ssyrk, strsm
from scipy.linalg.lapack import spotrf, spotri, strtri
from scipy.sparse import csr_array
from threadpoolctl import ThreadpoolController

from recfusion.core.arrays import Csr, FloatArray, IntArray, row_numbers
from recfusion.core.compiled import COMPILE_SECONDS, run_parallel
from recfusion.core.errors import InputError
from recfusion.core.memory import require_memory

FLOPS = 5e10  # per second of an inverse on one core, counted as n^3 (measured)
_CELLS_PER_BLOCK = 1 << 22  # users x items made dense at once: 16 MB
_PRODUCTS_PER_BLOCK = 1 << 23  # multiply-adds, and so at most as many entries, of a block of sparse Gram rows
_SPARSE_PENALTY = 500.0  # cost of a multiply-add of a sparse product over that of a dense one (measured)
_DENSE_SECONDS = 2e-11  # of a multiply-add of a dense product, about
_COMPILED = 0.2  # time of a compiled loop over that of a sparse product, as it fills one triangle (measured)
_SMALL = 6000  # up to so many items one thread is enough
_LAPACK = 16_000  # rows up to which LAPACK may invert: see `invert_by_blocks`
_BLOCK = 1024  # rows of a block of that inverse
_STRIP = 4  # blocks of columns that are inverted at once: wider strips are quicker but waste half of the last one


def gram_bytes(n_features: int, n_matrices: float, interactions: int) -> int:
    """Return the bytes of a fit with so many matrices (features, features) and the copies of the data."""
    return int(n_matrices * 4 * n_features**2) + 24 * interactions + 16 * _PRODUCTS_PER_BLOCK


def require_gram_memory(n_items: int, model: str, n_matrices: float, n_pairs: int = 0) -> None:
    """Raise if the matrices over items, and pairs of items, do not fit into memory."""
    features = f"{n_items:,} items{f' and {n_pairs:,} pairs' if n_pairs else ''}"
    fewer_pairs = "ask for fewer pairs, " if n_pairs else ""
    require_memory(
        int(n_matrices * 4 * (n_items + n_pairs) ** 2),
        f"{model} on {features}",
        f"{fewer_pairs}train thinning-local, which has no matrix of items by items, raise --min-users-per-item so "
        "that fewer items remain, or use a machine with more memory.",
    )


def blas_threads(n_items: int) -> AbstractContextManager[object]:
    """Return a context in which BLAS uses one thread for small matrices.

    OpenBLAS threads wait for each other in busy loops: if another process uses a core, a factorisation of a third of a
    second takes several seconds. Large matrices gain more from threads than that costs.
    """
    threads = 1 if n_items <= _SMALL else None
    limits: AbstractContextManager[object] = _libraries().limit(limits=threads, user_api="blas")
    return limits


@cache
def _libraries() -> ThreadpoolController:
    """Return the BLAS libraries of numpy and scipy; finding them takes longer than scoring a user."""
    return ThreadpoolController()


def gram(train: Csr) -> FloatArray:
    """Return G = X'X (items, items), both triangles, in Fortran order for LAPACK.

    It is computed by dense products of blocks of users, by sparse products of blocks of items, or, if both would take
    long, by a compiled loop over the lower triangle.
    """
    n_users, n_items = train.shape
    sparse = _SPARSE_PENALTY * float(np.square(np.diff(train.indptr).astype(np.float64)).sum())
    dense = n_users * float(n_items) ** 2
    if _COMPILED * sparse + COMPILE_SECONDS / _DENSE_SECONDS < min(sparse, dense):
        return _compiled_gram(train)
    if sparse < dense:
        g = np.empty((n_items, n_items), np.float32, order="F")
        for start, block in gram_rows(train, train.T.tocsr()):
            g[:, start : start + block.shape[0]] = block.toarray().T
        return g
    g = np.zeros((n_items, n_items), np.float32, order="F")
    rows = max(1, _CELLS_PER_BLOCK // n_items)
    with blas_threads(n_items):
        for start in range(0, n_users, rows):
            block = train[start : start + rows].toarray()  # (rows, items)
            g = ssyrk(1.0, block.T, beta=1.0, c=g, overwrite_c=True, lower=True)
    return mirror_lower(g)


def _compiled_gram(train: Csr) -> FloatArray:
    rows = train.sorted_indices()
    by_item = rows.T.tocsr()
    g = np.zeros((rows.shape[1], rows.shape[1]), np.float32, order="F")
    run_parallel(fill_gram, np.arange(rows.shape[1]), products(rows, by_item), parts(rows), parts(by_item), g.T)
    return mirror_lower(g)


def fill_gram(
    items: IntArray,
    rows: tuple[IntArray, IntArray, FloatArray],
    by_item: tuple[IntArray, IntArray, FloatArray],
    g: FloatArray,
) -> None:
    """Add X'X to these rows of `g`, from the diagonal on; `rows` and `by_item` are `parts` of X and X'."""
    indptr, indices, data = rows
    starts, users, values = by_item
    for j in items:
        own = g[j]
        for place in range(starts[j], starts[j + 1]):
            user, value = users[place], values[place]
            for at in range(indptr[user + 1] - 1, indptr[user] - 1, -1):
                k = indices[at]
                if k < j:  # columns ascend
                    break
                own[np.uint32(k)] += value * data[at]  # unsigned: no check for negative places


def parts(matrix: Csr) -> tuple[IntArray, IntArray, FloatArray]:
    """Return indptr, indices and data, for a compiled loop."""
    return matrix.indptr, matrix.indices, matrix.data


def products(rows: Csr, by_item: Csr) -> NDArray[np.float64]:
    """Return the number of products of each row of G, (items,)."""
    lengths = np.diff(rows.indptr).astype(np.float64)
    made = np.bincount(row_numbers(by_item), lengths[by_item.indices], minlength=by_item.shape[0])
    return made.astype(np.float64)


def gram_rows(rows: Csr, by_item: Csr) -> Iterator[tuple[int, Csr]]:
    """Yield G = X'X (items, items) as blocks of sparse rows, each with the number of its first row.

    `by_item` is the transpose of `rows`. All blocks take about the same work.
    """
    done = np.cumsum(products(rows, by_item))
    start, n_items = 0, by_item.shape[0]
    while start < n_items:
        upto = (done[start - 1] if start else 0) + _PRODUCTS_PER_BLOCK
        stop = max(start + 1, int(np.searchsorted(done, upto, side="right")))
        yield start, csr_array(by_item[start:stop] @ rows)
        start = stop


class Grams:
    """The Gram matrix for the last user weights; callers get a copy that they may overwrite."""

    def __init__(self, train: Csr) -> None:
        self._train = train
        self._b = 0.0
        self._g: FloatArray | None = None

    def copy(self, b: float) -> FloatArray:
        return self._matrix(b).copy(order="F")

    def last(self, b: float) -> FloatArray:
        """Return the matrix itself and forget it; this is the last call."""
        g, self._g = self._matrix(b), None
        return g

    def _matrix(self, b: float) -> FloatArray:
        if self._g is None or b != self._b:
            self._g = None  # frees its memory first
            self._g, self._b = gram(user_weighted(self._train, b)), b
        return self._g


def user_weights(train: Csr, b: float) -> FloatArray:
    """Return weights |u|^-b, rescaled to keep the sum over all entries, (users,)."""
    lengths = np.diff(train.indptr).astype(np.float64)
    weights = np.maximum(lengths, 1) ** -b
    weights *= lengths.sum() / max((weights * lengths).sum(), 1e-12)
    return weights.astype(np.float32)


def user_weighted(train: Csr, b: float, features: Csr | None = None) -> Csr:
    """Return 0/1 rows times the roots of the user weights: those of `train`, or `features` of the same users."""
    rows = train if features is None else features
    if b == 0:
        return rows
    data = np.repeat(np.sqrt(user_weights(train, b)), np.diff(rows.indptr))
    return csr_array((data, rows.indices, rows.indptr), shape=rows.shape)


def invert_in_place(a: FloatArray) -> FloatArray:
    """Return the inverse of a symmetric positive definite matrix; `a` (Fortran order) is overwritten."""
    with blas_threads(len(a)):
        if len(a) > _LAPACK:
            failed = not invert_by_blocks(a.T)
        else:
            factor, failed = spotrf(a, lower=True, overwrite_a=True, clean=False)
            if not failed:
                a, failed = spotri(factor, lower=True, overwrite_c=True)
    if failed:
        raise InputError("The regularised Gram matrix is not positive definite: raise the regularisation (l2).", "l2")
    return mirror_lower(a)


def solve_items(g: FloatArray, ridge: float | FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return B (items, items), B_ij = -P_ij / P_jj and B_jj = 0, and the diagonal of P = (g + diag ridge)^-1, (items,).

    Column j of B holds the ridge regression of item j on all others. `g` is overwritten.
    """
    g[np.diag_indices(len(g))] += np.asarray(ridge, np.float32)
    weights = invert_in_place(g).T  # P is symmetric: its transpose is P in the memory order for scoring
    diagonal = np.diag(weights).copy()
    weights /= -diagonal
    np.fill_diagonal(weights, 0)
    return weights, diagonal


def mirror_lower(a: FloatArray, block: int = 1024) -> FloatArray:
    """Copy the lower triangle onto the upper triangle, in place."""
    n = len(a)
    for start in range(0, n, block):
        stop = min(start + block, n)
        corner = a[start:stop, start:stop]
        corner[:] = np.tril(corner) + np.tril(corner, -1).T
        a[start:stop, stop:] = a[stop:, start:stop].T
    return a


def invert_by_blocks(a: FloatArray, block: int = _BLOCK) -> bool:
    """Replace the upper triangle of `a` (C order) by that of its inverse; return False if it has no inverse.

    A = R'R, then N = R^-1, then A^-1 = N N'. LAPACK does the same, but the parallel first step of OpenBLAS (0.3.30)
    crashes from some 25,000 rows on. Nearly all of the work is in matrix products; only a few blocks of rows are held
    beside `a`.
    """
    starts = range(0, len(a), block)
    for start in starts:
        if not _factor(a, start, start + block):
            return False
    for start in reversed(starts):
        _invert_rows(a, start, start + block)
    for start in starts:
        a[: start + block, start : start + block] = a[: start + block, start:] @ a[start : start + block, start:].T
    return True


def _factor(a: FloatArray, start: int, stop: int) -> bool:
    """Replace a block of rows by the rows of R, given the rows of R before it."""
    rest = a[start:stop, start:]
    a[start:stop, :start] = 0  # later products need zeros there
    if start:
        rest -= a[:start, start:stop].T @ a[:start, start:]
    width = len(rest)
    factor, failed = spotrf(rest[:, :width])
    if failed:
        return False
    rest[:, :width] = factor
    if rest.shape[1] > width:  # X with R_own' X = rest
        rest[:, width:] = strsm(1.0, factor, rest[:, width:].T, side=1).T
    return True


def _invert_rows(a: FloatArray, start: int, stop: int) -> None:
    """Replace a block of rows of R by the rows of its inverse, given the rows after it."""
    inverse = np.triu(strtri(a[start:stop, start:stop])[0])
    wide = _STRIP * (stop - start)
    for left in reversed(range(stop, len(a), wide)):
        columns, between = slice(left, left + wide), slice(stop, left + wide)
        a[start:stop, columns] = -inverse @ (a[start:stop, between] @ a[between, columns])
    a[start:stop, start:stop] = inverse
