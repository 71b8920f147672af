"""The autoencoder of infinite width: ridge regression with its neural tangent kernel (Sachdeva et al., 2022).

Exact for up to `max_users` training users, a Nystroem approximation for more.
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from scipy.linalg.blas import ssyrk, strsm
from scipy.linalg.lapack import spotrf
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray, IntArray, column_counts, row_numbers
from recfusion.core.errors import InputError
from recfusion.core.memory import require_memory
from recfusion.core.rng import RngLike, make_rng
from recfusion.data.split import Fold
from recfusion.models.base import Recommender, Shape
from recfusion.models.linear.gram import blas_threads, gram, invert_in_place, mirror_lower
from recfusion.models.settings import learned, setting

_CELLS_PER_BLOCK = 1 << 20  # kernel values computed at once: 4 MB per temporary
_CELLS_PER_STREAM = 1 << 24  # users x landmarks at once: every pass updates all sums, so few passes are better
_JITTERS = (1e-5, 1e-4, 1e-3, 1e-2)  # tried additions to the landmarks' kernel, in mean diagonals


@dataclass
class InfiniteAE(Recommender):
    """Scores k(history, X) (K + ridge tr(K)/N I)^-1 X, where K is the kernel of training users with each other.

    This is the limit of gradient descent on one hidden ReLU layer of infinite width. Deviations from the paper: items
    have the input weight count^-input_power, so that a shared rare item counts more than a popular one, and rows are
    divided by norm^norm_power, so that long histories count less. 0 turns either off.
    """

    ridge: float = setting(3.0, "ridge, in mean diagonals of the kernel", at_least=1e-4, search=(0.01, 100.0), log=True)
    input_power: float = setting(0.25, "items have the input weight count^-input_power", at_least=0, search=(0.0, 0.5))
    norm_power: float = setting(0.5, "rows are divided by norm^norm_power", at_least=0, search=(0.0, 1.0))
    bias: float = setting(0.01, "variance of the hidden layer's bias", at_least=0)
    max_users: int = setting(10_000, "most users for an exact solution; landmarks for more", at_least=1)
    weights_: FloatArray = learned()  # (items,)
    inputs_: Csr = learned()  # (users, items)
    solution_: FloatArray = learned()  # (users, users), or (users, items) if smaller
    targets_: Csr | FloatArray = learned()  # (users, items), or none

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        self.weights_ = input_weights(train, self.input_power)
        given = {"norm_power": self.norm_power, "ridge": self.ridge, "bias": self.bias}
        regression = fit_kernel_ridge(
            train, self.weights_, **given, max_users=self.max_users, rng=make_rng(rng), model="InfiniteAE"
        )
        self.inputs_, self.solution_, self.targets_ = folded(regression)
        return self

    def fit_bytes(self, shape: Shape) -> int:
        return kernel_bytes(shape, self.max_users)

    @property
    def keeps_histories(self) -> bool:
        return True

    def score(self, history: Csr) -> FloatArray:
        inputs = weighted(history, self.weights_, self.norm_power)
        return predict(KernelRidge(self.inputs_, self.solution_, self.targets_), inputs, self.bias)


class KernelRidge(NamedTuple):
    """A fitted regression: a history's scores are k(history, inputs) @ solution @ targets.

    Exact: inputs are all training users, the solution is (K + diag(ridge))^-1, targets are the users' rows.
    Nystroem: inputs are the landmarks, targets are all users' rows projected on the landmarks' features.
    Folded: the solution is the product of both, if that is smaller, and targets are empty.
    """

    inputs: Csr  # (basis, items), weighted
    solution: FloatArray  # (basis, basis); folded: (basis, items)
    targets: Csr | FloatArray  # (basis, items); folded: (0, items)


def input_weights(train: Csr, power: float) -> FloatArray:
    """Return the input weights of items, (n_i / mean n)^-power, scaled to users of mean squared norm 1.

    Items without users have the weight 0.
    """
    counts = column_counts(train).astype(np.float64)
    weights = np.zeros(len(counts))
    seen = counts > 0
    weights[seen] = (counts[seen] / counts[seen].mean()) ** -power
    squared_norms = (counts * weights**2).sum() / max(1, train.shape[0])
    return (weights / np.sqrt(squared_norms or 1.0)).astype(np.float32)


def weighted(rows: Csr, weights: FloatArray, norm_power: float = 0.0) -> Csr:
    """Return the network's inputs: columns times their weights, then each row a divided by |a|^norm_power."""
    values = rows.data * weights[rows.indices]
    lengths = np.diff(rows.indptr)
    if norm_power:
        norms = np.sqrt(np.bincount(row_numbers(rows), values**2, minlength=len(lengths)))
        shrink = np.divide(1, norms**norm_power, out=np.zeros_like(norms), where=norms > 0)
        values = values * np.repeat(shrink.astype(np.float32), lengths)
    return csr_array((values, rows.indices, rows.indptr), shape=rows.shape)


def ntk(a: Csr, b: Csr, bias: float) -> FloatArray:
    """Return the kernel (rows of a, rows of b) of weighted rows; see `dots_to_ntk`."""
    dots = np.empty((a.shape[0], b.shape[0]), np.float32)
    step = max(1, _CELLS_PER_STREAM // max(1, a.shape[1]))  # rows made dense at once
    for start in range(0, a.shape[0], step):
        block = a[start : start + step].T.toarray()  # sparse times dense is fast for any density of b
        dots[start : start + step] = (b @ block).T
    return dots_to_ntk(dots, _variances(a, bias), _variances(b, bias), bias)


def symmetric_ntk(a: Csr, bias: float) -> FloatArray:
    """Return the kernel (rows, rows) of weighted rows with themselves, in Fortran order for LAPACK."""
    variances = _variances(a, bias)
    k = dots_to_ntk(gram(a.T.tocsr()).T, variances, variances, bias).T
    np.fill_diagonal(k, variances)  # exact: the arccosine near 1 loses half of the digits
    return k


def dots_to_ntk(dots: FloatArray, q_a: FloatArray, q_b: FloatArray, bias: float) -> FloatArray:
    """Turn inner products a.b into the neural tangent kernel of one hidden ReLU layer, in place.

    With S = a.b + bias, q = S(a, a), and theta = arccos(S / sqrt(q_a q_b)), units with standard normal
    weights give (Cho and Saul, 2009)
        K1 = E[relu relu] = sqrt(q_a q_b) (sin theta + (pi - theta) cos theta) / (2 pi),
        K0 = E[relu' relu'] = (pi - theta) / (2 pi),
    and NTK = K1 + S K0. On the diagonal it is q.
    """
    rows = max(1, _CELLS_PER_BLOCK // max(1, dots.shape[1]))
    root_b = np.sqrt(q_b)
    for start in range(0, len(dots), rows):
        s = dots[start : start + rows]
        s += np.float32(bias)
        norms = np.sqrt(q_a[start : start + rows, None]) * root_b
        cos = np.divide(s, norms, out=np.zeros_like(s), where=norms > 0)
        np.clip(cos, -1, 1, out=cos)
        rest = np.float32(np.pi) - np.arccos(cos)  # pi - theta
        k1 = norms * (np.sqrt(1 - cos * cos) + rest * cos)
        s *= rest
        s += k1
        s *= np.float32(1 / (2 * np.pi))
    return dots


def fit_kernel_ridge(
    train: Csr,
    weights: FloatArray,
    *,
    norm_power: float = 0.0,
    ridge: float,
    ridge_power: float = 0.0,
    bias: float,
    max_users: int,
    rng: np.random.Generator,
    model: str,
) -> KernelRidge:
    """Return the ridge regression from the rows of `train`, weighted, to the rows themselves.

    User u's ridge is ridge * tr(K) / N * (|u| / mean |u|)^ridge_power.
    For more than `max_users` users, `max_users` of them, drawn at random, are the landmarks of an approximation.
    """
    n_users, n_items = train.shape
    inputs = weighted(train, weights, norm_power)
    lengths = np.maximum(np.diff(train.indptr), 1).astype(np.float64)
    relative = (lengths / lengths.mean()) ** ridge_power
    ridges = (ridge * _variances(inputs, bias).mean(dtype=np.float64) * relative).astype(np.float32)
    exact = n_users <= max_users
    what = f"on {n_users:,} users" if exact else f"with {max_users:,} landmark users on {n_items:,} items"
    fewer = "lower max_users (fewer landmarks), or use a machine with more memory."
    require_memory(kernel_bytes(Shape.of(train), max_users), f"{model} {what}", fewer)
    if exact:
        return fit_exact(inputs, train, ridges, bias)
    landmarks = np.sort(rng.choice(n_users, max_users, replace=False))
    return fit_nystroem(inputs, train, ridges, bias, landmarks)


def fit_exact(inputs: Csr, targets: Csr, ridges: FloatArray, bias: float) -> KernelRidge:
    """Return the regression (K + diag(ridges))^-1 targets on all users."""
    k = symmetric_ntk(inputs, bias)
    k[np.diag_indices(len(k))] += ridges
    try:
        return KernelRidge(inputs, invert_in_place(k).T, targets)  # transposed: the memory order for scoring
    except InputError:
        raise InputError("The kernel matrix is not positive definite in single precision: raise ridge.") from None


def fit_nystroem(inputs: Csr, targets: Csr, ridges: FloatArray, bias: float, landmarks: IntArray) -> KernelRidge:
    """Return the regression in the features F = K_nm L^-T of the landmarks, where L L' = K_mm.

    A history's features times (F' R^-1 F + I)^-1 F' R^-1 X are its scores, with R = diag(ridges). With all users as
    landmarks F F' is K, and this is the exact solution. No users x landmarks matrix is held.
    """
    basis = inputs[landmarks]
    m = len(landmarks)
    factor = _cholesky(symmetric_ntk(basis, bias))
    moment = np.zeros((m, m), np.float32, order="F")
    projected = np.zeros((targets.shape[1], m), np.float32)  # X' R^-1 F
    rows = max(1, _CELLS_PER_STREAM // m)
    with blas_threads(m):
        for start in range(0, inputs.shape[0], rows):
            users = slice(start, start + rows)
            k = ntk(inputs[users], basis, bias).T  # (landmarks, rows), in Fortran order
            features = strsm(1.0, factor, k, lower=True, overwrite_b=True)  # L^-1 K_mn
            root = 1 / np.sqrt(ridges[users])
            features *= root
            moment = ssyrk(1.0, features, beta=1.0, c=moment, lower=True, overwrite_c=True)
            projected += targets[users].T @ (features * root).T
        moment[np.diag_indices(m)] += 1
        inverse = invert_in_place(mirror_lower(moment))
        solution = strsm(1.0, factor, inverse, lower=True, trans_a=True, overwrite_b=True)  # L^-T (F'R^-1F + I)^-1
    return KernelRidge(basis, np.ascontiguousarray(solution), np.ascontiguousarray(projected.T))


def folded(regression: KernelRidge) -> KernelRidge:
    """Return the regression with solution and targets multiplied, if the basis is larger than the items.

    Scoring is then one product with a (basis, items) matrix instead of (basis, basis).
    """
    basis, n_items = regression.targets.shape
    if basis <= n_items and isinstance(regression.targets, csr_array):
        return regression
    product = np.empty((basis, n_items), np.float32)
    step = max(1, _CELLS_PER_STREAM // max(1, basis))
    with blas_threads(basis):
        for start in range(0, n_items, step):
            some = regression.targets[:, start : start + step]
            dense = some.toarray() if isinstance(some, csr_array) else some
            product[:, start : start + step] = regression.solution @ dense
    return KernelRidge(regression.inputs, product, csr_array((0, n_items), dtype=np.float32))


def predict(regression: KernelRidge, inputs: Csr, bias: float, without: IntArray | None = None) -> FloatArray:
    """Return the scores (users, items) of a batch of histories, given as `weighted` inputs.

    With `without`, row r is predicted without training user u = without[r]: with M = (K + R)^-1 and m = k(z, X) M, that
    is m X - (m_u / M_uu) (M X)_u. It is exact if the inputs are all training users.
    """
    mixture = ntk(inputs, regression.inputs, bias) @ regression.solution  # (users, basis), or (users, items) if folded
    if not regression.targets.shape[0]:
        return mixture
    if without is not None:
        theirs = regression.solution[without]  # (users, basis)
        at = np.arange(len(without))
        mixture -= (mixture[at, without] / theirs[at, without])[:, None] * theirs
    return np.asarray(mixture @ regression.targets, np.float32)


def _variances(rows: Csr, bias: float) -> FloatArray:
    """Return q = S(a, a) of each row."""
    squares = csr_array((np.square(rows.data), rows.indices, rows.indptr), shape=rows.shape)
    return np.asarray(squares @ np.ones(rows.shape[1], np.float32) + np.float32(bias))


def _cholesky(k: FloatArray) -> FloatArray:
    """Return L with L L' = k, plus the smallest tried multiple of the identity that works (users may be equal)."""
    mean = float(np.diag(k).mean())
    with blas_threads(len(k)):
        for jitter in _JITTERS:
            shifted = k.copy(order="F")
            shifted[np.diag_indices(len(k))] += np.float32(jitter * mean)
            factor, failed = spotrf(shifted, lower=True, overwrite_a=True)
            if not failed:
                return np.asarray(factor)
    raise InputError("The kernel of the landmark users cannot be factored: raise bias or lower max_users.")


def kernel_bytes(shape: Shape, max_users: int) -> int:
    """Return the approximate peak bytes of a kernel regression, without the data."""
    data = 16 * shape.interactions + 24 * _CELLS_PER_BLOCK  # with the temporaries of a block of kernel values
    if shape.users <= max_users:
        return int(4 * 1.3 * shape.users**2) + data
    dense = max(shape.items, _CELLS_PER_STREAM)  # dense rows of users at once
    streamed = 4 * min(shape.users * max_users, _CELLS_PER_STREAM) + 2 * dense
    return int(4 * (3.2 * max_users**2 + 2 * max_users * shape.items + streamed)) + data
