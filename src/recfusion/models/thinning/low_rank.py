"""The far field of the linear denoiser: the leading eigenvectors, which correct for items outside of neighbourhoods.

With Lambda the penalties, Z = X Lambda^-1/2 and Z'Z u = s u, the whole model's inverse is known on the span of u:
u' Lambda^1/2 P = u' Lambda^-1/2 / (s + 1). So the sum of both fields can equal the whole model on that span.
"""

import numpy as np
from scipy.linalg import qr
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray
from recfusion.core.compiled import COMPILE_SECONDS, run_parallel
from recfusion.models.linear.gram import parts
from recfusion.models.thinning.compiled_loops import fill_product

SPARE = 16  # extra vectors: the leading ones converge sooner
_POWERS = 4  # passes of subspace iteration
_SECONDS = 1e-9  # of a multiply-add of a sparse product, about


def leading(rows: Csr, ridge: FloatArray, count: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Return the leading eigenvalues s (count,) and eigenvectors u (items, count) of Lambda^-1/2 X'X Lambda^-1/2.

    Subspace iteration from random vectors (Halko, Martinsson and Tropp, 2011) needs only products with X. One
    decomposition serves all noise levels with penalties that are multiples of each other.
    """
    n_items = rows.shape[1]
    root = 1 / np.sqrt(ridge)
    z = csr_array((rows.data * root[rows.indices], rows.indices, rows.indptr), shape=rows.shape)
    width = min(n_items, count + SPARE)
    by_item = z.T.tocsr()
    q = _orthogonal(rng.standard_normal((n_items, width), np.float32))
    for _ in range(_POWERS):
        q = _orthogonal(_product(by_item, _product(z, q)))
    s, mix = np.linalg.eigh((q.T @ _product(by_item, _product(z, q))).astype(np.float64))
    best = slice(width - min(count, width), None)
    return s[best].astype(np.float32), np.asarray(q @ mix[:, best].astype(np.float32))


def far_field(
    near: Csr, inverse_diagonal: FloatArray, ridge: FloatArray, s: FloatArray, u: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return factors (items, k) and (k, items): their product plus the near weights L is the whole model on span u.

    The whole model's column is B_j = e_j - P e_j / P_jj; `inverse_diagonal` is 1 / P_jj. So

        Lambda^-1/2 u [u' Lambda^1/2 (I - L) - diag(1 / (s + 1)) u' Lambda^-1/2 diag(1 / P_jj)]

    replaces L's part in the span by that of B. If L equals B, the brackets are 0.
    """
    root = np.sqrt(ridge)
    scaled = u * root[:, None]  # (items, k)
    inside = scaled.T - (near.T @ scaled).T  # (k, items)
    inside -= u.T * (inverse_diagonal / root) / (s + 1)[:, None]
    return np.asarray(u / root[:, None], np.float32), np.ascontiguousarray(inside, np.float32)


def _orthogonal(vectors: FloatArray) -> FloatArray:
    """Return an orthogonal basis of the span of the columns."""
    # numpy's qr uses 64 bits: five times the memory of the vectors.
    return np.ascontiguousarray(qr(vectors, overwrite_a=True, mode="economic", check_finite=False)[0])


def _product(matrix: Csr, q: FloatArray) -> FloatArray:
    """Return the product of a sparse and a dense matrix: by all cores where that is worth a compilation."""
    if matrix.nnz * q.shape[1] * _SECONDS < COMPILE_SECONDS:
        return np.asarray(matrix @ q)
    out = np.zeros((matrix.shape[0], q.shape[1]), np.float32)
    run_parallel(fill_product, np.arange(len(out)), np.diff(matrix.indptr), parts(matrix), q, out)
    return out
