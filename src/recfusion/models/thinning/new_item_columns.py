"""The closed form with item features: one inverse gives the columns of all items."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from recfusion.core.arrays import Csr, FloatArray
from recfusion.models.linear.gram import invert_in_place


@dataclass(frozen=True)
class Solved:
    """Weights of items, and the part of them that comes from features."""

    weights: FloatArray  # (items, items): W, 0 on the diagonal
    shared: FloatArray  # (features, items): C, where W = B + F C


def solve_with_features(
    g: FloatArray, item_l2: FloatArray, noise: FloatArray, features: Csr, feature_l2: float
) -> Solved:
    """Return the weights of items and of the history's features that predict each item; `g` is overwritten.

    For target j, w = B_.j + F C_.j over the items but j minimises the loss of thinned rows,
    w'(G + diag noise)w - 2 w'G_.j, plus sum_i item_l2_i B_ij^2 + feature_l2 |C_.j|^2. With
    K^-1 = diag(item_l2) - H H', the penalty of w after minimising over B and C, and P = (G + noise + K^-1)^-1:

        W_ij = P_ij (e_j - s_j item_l2_j) + s_j (P H H')_ij

    where s_j and e_j account for item j not being in the history (docs/features.md).
    """
    n, d = len(g), item_l2.astype(np.float64)
    place = np.diag_indices(n)
    scaled = np.asarray(features.multiply(d[:, None]).todense(), np.float64) if features.nnz else np.zeros((n, 0))
    inner = features.T @ scaled if scaled.size else np.zeros((scaled.shape[1],) * 2)
    inner[np.diag_indices(len(inner))] += feature_l2
    lower = cholesky(inner, lower=True) if len(inner) else inner
    h = solve_triangular(lower, scaled.T, lower=True).T if len(inner) else scaled  # (items, features)
    h32 = h.astype(np.float32)
    g[place] += noise + item_l2
    if h.shape[1]:
        g -= h32 @ h32.T
    p = invert_in_place(g)
    ph = p @ h32  # (items, features)
    diagonal, kept = np.diag(p).astype(np.float64), np.sum(ph * h, axis=1)
    a = d * diagonal - kept  # (P K^-1)_jj
    q = d * a - d * kept + np.sum((h @ (h.T @ ph)) * h, axis=1)  # (K^-1 P K^-1)_jj
    s = a / (a**2 + diagonal * (d - np.sum(h**2, axis=1) - q))
    e = (s * a - 1) / diagonal
    weights = p.T  # P is symmetric: its transpose is P in the memory order for scoring
    weights *= (e - s * d).astype(np.float32)
    if h.shape[1]:
        weights += ph @ (h32 * s[:, None].astype(np.float32)).T
    np.fill_diagonal(weights, s - 1)  # the item's own prediction from features alone: part of C
    shared = np.zeros((0, n), np.float32)
    if h.shape[1]:
        shared = solve_triangular(lower, (h32.T @ weights).astype(np.float64), lower=True, trans="T").astype(np.float32)
    np.fill_diagonal(weights, 0)
    return Solved(weights, shared)
