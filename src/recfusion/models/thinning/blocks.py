"""The closed form of a denoiser with blocks of features of the items, such as dislikes, and with item features."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.sparse import csr_array, hstack

from recfusion.core.arrays import Csr, FloatArray, binary_csr
from recfusion.data.signals import valued
from recfusion.evaluation.metrics import Values
from recfusion.models.linear.gram import invert_in_place
from recfusion.models.sequence.recency import recent_counts

Transform = Literal["binary", "units", "log", "saturating"]


@dataclass(frozen=True)
class Solved:
    """Weights of the history's entries, and the part of them that comes from item features."""

    weights: FloatArray | Csr  # (entries in blocks, items): W, 0 for an item's own entries
    shared: FloatArray  # (features, items): C, where W = B + F C for likes


@dataclass(frozen=True)
class Prior:
    """The penalty K^-1 = diag(d) - H H' of the weights of likes, after minimising over weights of item features."""

    d: Values  # (items,)
    h: Values  # (items, features)
    h32: FloatArray
    ph: FloatArray  # (entries, features): P H


def solve_blocks(
    g: FloatArray, ridge: FloatArray, noise: FloatArray, features: Csr, feature_l2: float, zy: FloatArray | None = None
) -> Solved:
    """Return the weights of entries and of the history's features that predict each like; `g` is overwritten.

    For target j, w = B_.j + F C_.j over the entries but those of item j minimises the loss of thinned rows,
    w'(G + diag noise)w - 2 w'G_.j, plus sum_i ridge_i B_ij^2 + feature_l2 |C_.j|^2. With K^-1 = diag(ridge) - H H', the
    penalty of w after minimising over B and C, and P = (G + noise + K^-1)^-1, `own_excluded` solves it for all j.
    `zy` replaces G_.j if the targets are not the likes themselves (docs/explanation/signals.md).
    """
    n = features.shape[0]
    g[np.diag_indices(len(g))] += noise + ridge
    if not features.nnz:
        p = invert_in_place(g)
        return Solved(own_excluded(p, None if zy is None else p @ zy, n, overwrite=True)[0], np.zeros((0, n), "f4"))
    d = ridge[:n].astype(np.float64)
    scaled = np.asarray(features.multiply(d[:, None]).todense(), np.float64)
    inner = features.T @ scaled
    inner[np.diag_indices(len(inner))] += feature_l2
    lower = cholesky(inner, lower=True)
    h = solve_triangular(lower, scaled.T, lower=True).T  # (items, features)
    h32 = h.astype(np.float32)
    g[:n, :n] -= h32 @ h32.T
    p = invert_in_place(g)
    prior = Prior(d, h, h32, p[:, :n] @ h32)
    weights, own = own_excluded(p, None if zy is None else p @ zy, n, prior, overwrite=True)
    np.fill_diagonal(weights, own)
    known = (h32.T @ weights[:n]).astype(np.float64)
    np.fill_diagonal(weights, 0)
    return Solved(weights, solve_triangular(lower, known, lower=True, trans="T").astype(np.float32))


def own_excluded(
    p: FloatArray, a: FloatArray | None, n_items: int, prior: Prior | None = None, *, overwrite: bool = False
) -> tuple[FloatArray, Values]:
    """Return the weights (entries, items) of a denoiser without each item's own entries, and its share by features.

    The first block of entries has the likes of the items; further blocks of the same length say something else about
    the same items, such as dislikes. S_j are the entries of item j itself, one in each block. With
    P = (Z'Z + diag Lambda)^-1 and A = P Z'Y, column j minimises

        |y_j - Z b|^2 + b' diag(Lambda) b   with b = 0 on S_j:      b = A_.j + P_.S x,   P_SS x = -A_Sj

    Without `a` the targets are the first block itself: A_.j = e_j - Lambda_j P_.j, and P_SS x = -e_1. With a prior, the
    own like of item j counts in the penalty alone, with the best weight u: b = A_.j + P_.S x - u P K^-1 e_j, where
    (K^-1 b)_j + u (K^-1)_jj = 0. Without `a` u + 1 takes the place of u. `overwrite` allows to use the memory of P.
    """
    items = np.arange(n_items)
    places = np.arange(len(p) // n_items * n_items).reshape(-1, n_items)  # (blocks, items): S_j by columns
    inner = p[places[:, None], places[None]].transpose(2, 0, 1).astype(np.float64)  # (items, blocks, blocks): P_SS
    right = np.zeros((n_items, len(places))) if a is None else -a[places, items].T.astype(np.float64)
    if a is None:
        right[:, 0] = -1
    if prior is not None:
        d, h, ph = prior.d, prior.h, prior.ph
        kept = np.stack([np.sum(ph[at : at + n_items] * h, axis=1) for at in places[:, 0]])  # (blocks, items)
        q = d * p[places, items].astype(np.float64) - kept  # (P K^-1)_Sj
        twice = d * q[0] - d * kept[0] + np.sum((h @ (h.T @ ph[:n_items])) * h, axis=1)  # (K^-1 P K^-1)_jj
        corner = d - np.sum(h**2, axis=1) - twice
        inner = np.block([[inner, -q.T[:, :, None]], [q.T[:, None], corner[:, None, None]]])
        last = 0 * d if a is None else np.sum(h * (a[:n_items].T @ h), axis=1) - d * a[items, items]
        right = np.column_stack([right, last])
    shares = np.linalg.solve(inner, right[:, :, None])[:, :, 0]  # (items, blocks), then u
    by_features = shares[:, -1].copy()
    if prior is not None:
        shares[:, 0] -= by_features * prior.d
    mine = p.T[:, :n_items]  # P is symmetric: its transpose is P in the memory order for scoring
    factors = shares.astype(np.float32)
    if a is None:
        weights = np.multiply(mine, factors[:, 0], out=mine if overwrite and len(places) == 1 else None)
    else:
        weights = a
        weights += mine * factors[:, 0]
    for block in range(1, len(places)):
        weights += p.T[:, block * n_items : (block + 1) * n_items] * factors[:, block]
    if prior is not None:
        weights += prior.ph @ (prior.h32 * factors[:, [-1]]).T
    weights[places, items] = 0
    return np.asarray(weights, np.float32), np.asarray(by_features - (a is None), np.float64)


def graded(grades: Csr | None, transform: Transform, median: float, unit: float) -> FloatArray:
    """Return the weight of each stored entry, divided by `unit`; an unknown rating counts as the median.

    A count below 0 cannot be thinned and has weight 0. Thinning of units: n stars or plays are n units that each
    survive with probability a, so that B(n, a) survive. Then E[z_i z_k] = a^2 n_i n_k and E[z_i^2] = a^2 n_i^2 +
    a (1 - a) n_i: the Gram matrix of the counts, and on its diagonal the noise kappa times the sum of the units; for
    thinned ones it is kappa times their number (docs/explanation/signals.md).
    """
    n = np.maximum(np.asarray(median if grades is None else grades.data, np.float64), 0)
    if transform == "binary":
        return np.ones(n.shape, np.float32)
    if transform == "log":
        n = np.log1p(n)
    elif transform == "saturating":
        n = n / np.maximum(n + max(median, 1e-12), 1e-12)
    return np.asarray(n / max(unit, 1e-12), np.float32)


def with_dislikes(likes: Csr, disliked: Csr | None, n_blocks: int) -> Csr:
    """Return rows of likes and, with two blocks, of dislikes beside them."""
    if n_blocks == 1:
        return likes
    empty = np.zeros(likes.shape[0] + 1, np.int32)
    indptr, indices = (empty, empty[:0]) if disliked is None else (disliked.indptr, disliked.indices)
    return csr_array(hstack([likes, binary_csr(indptr, indices, likes.shape[1])], format="csr"))


def root_weights(train: Csr, b: float) -> FloatArray:
    """Return the roots of the user weights |u|^-b, rescaled to keep the sum over all likes, (users,)."""
    lengths = np.diff(train.indptr).astype(np.float64)
    weights = np.maximum(lengths, 1) ** -b
    return np.sqrt(weights * lengths.sum() / max((weights * lengths).sum(), 1e-12)).astype(np.float32)


def rows_times(rows: Csr, scale: FloatArray) -> Csr:
    return valued(rows, rows.data * np.repeat(scale, np.diff(rows.indptr)))


def trends(train: Csr, times: Csr | None) -> FloatArray:
    """Return each item's recent over its whole popularity, 1 on average; all 1 without times."""
    if times is None or not times.nnz:
        return np.ones(train.shape[1], np.float32)
    whole = np.bincount(train.indices, minlength=train.shape[1])
    share = recent_counts(times) / np.maximum(whole, 1)
    return np.asarray(np.where(whole > 0, share / share[whole > 0].mean(), 1), np.float32)
