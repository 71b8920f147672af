"""Closed forms with features of items: the columns of all items in one inverse, and those of items that are new."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from recfusion.core.arrays import Csr, FloatArray
from recfusion.models.gram import invert_in_place

_SAMPLE = 500  # users by whom the scores of new and known items are made comparable
_LIST = 100  # places of the lists in which they are


@dataclass(frozen=True)
class Solved:
    """Weights of items, and the part of them that features have."""

    weights: FloatArray  # (items, items): W, 0 on the diagonal
    shared: FloatArray  # (features, items): C, where W = B + F C


def solve_with_features(
    g: FloatArray, item_l2: FloatArray, noise: FloatArray, features: Csr, feature_l2: float
) -> Solved:
    """Return the weights of items and of a history's features that predict each item; `g` is overwritten.

    For target j, w = B_.j + F C_.j over the items but j minimises the loss of thinned rows,
    w'(G + diag noise)w - 2 w'G_.j, plus sum_i item_l2_i B_ij^2 + feature_l2 |C_.j|^2. With
    K^-1 = diag(item_l2) - H H', the penalty that is left of the latter two for w, and P = (G + noise + K^-1)^-1:

        W_ij = P_ij (e_j - s_j item_l2_j) + s_j (P H H')_ij

    where s_j and e_j put right that j is no part of the history (docs/features.md).
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
    weights = p.T  # P is symmetric: its transpose is P itself, in the order that scoring wants
    weights *= (e - s * d).astype(np.float32)
    if h.shape[1]:
        weights += ph @ (h32 * s[:, None].astype(np.float32)).T
    np.fill_diagonal(weights, s - 1)  # what features alone say of the item itself: a part of C
    shared = np.zeros((0, n), np.float32)
    if h.shape[1]:
        shared = solve_triangular(lower, (h32.T @ weights).astype(np.float64), lower=True, trans="T").astype(np.float32)
    np.fill_diagonal(weights, 0)
    return Solved(weights, shared)


@dataclass(frozen=True)
class AsNew:
    """The ridge regression of the known items' columns on their features, F (F'F + l2)^-1, and what to undo of it."""

    map: FloatArray  # (items, features); 0 for items that nobody has
    features: Csr
    leverage: FloatArray  # (items,): how much of its own column an item's prediction has

    def left_out(self, scores: FloatArray) -> FloatArray:
        """Return the scores (users, items) that each item would have if it were new: predicted from the others.

        The regression without item j, exactly: (y^_j - h_j y_j) / (1 - h_j).
        """
        predicted = np.asarray(self.features @ (scores @ self.map).T).T  # (users, items)
        predicted -= scores * self.leverage
        predicted /= 1 - self.leverage
        return np.ascontiguousarray(predicted, np.float32)


def as_new(features: Csr, known: NDArray[np.bool_], l2: float) -> AsNew:
    """Return the map from columns of known items to columns of items by their features alone."""
    dense = np.asarray(features.multiply(known[:, None]).todense(), np.float64)  # (items, features)
    inner = dense.T @ dense + l2 * np.eye(dense.shape[1])
    mapped = np.linalg.solve(inner, dense.T).T if dense.shape[1] else dense
    leverage = np.sum(mapped * dense, axis=1)
    return AsNew(mapped.astype(np.float32), features, np.minimum(leverage, 0.999).astype(np.float32))


def fair_lift(history: Csr, weights: FloatArray, scale: FloatArray, own: float, new: AsNew) -> float:
    """Return the factor at which items that are scored as new have as many places in lists as they have as known ones.

    A regression shrinks what it predicts: without a factor new items stand below known ones for what is not known of
    them, and hardly any is ever seen. `history` (users, items) are users that the model has not learned from.
    """
    known = np.flatnonzero(new.map.any(axis=1))
    rows = np.unique(np.linspace(0, history.shape[0] - 1, min(_SAMPLE, history.shape[0])).astype(np.int64))
    history, k = history[rows], min(_LIST, len(known) // 2)
    if not k:
        return 1.0
    seen = history.toarray()
    plain = (history @ weights) * scale
    guessed = new.left_out(plain + np.float32(own) * seen * scale)[:, known]
    unseen = seen[:, known] == 0
    last = np.partition(np.where(unseen, plain[:, known], -np.inf), -k, axis=1)[:, [-k]]  # (users, 1): ends of lists
    enters = (last / np.where(unseen & (guessed > 0) & (last > 0), guessed, np.nan)).ravel()
    enters = enters[np.isfinite(enters)]  # the factors at which a new item reaches a list
    places = k * len(rows)
    return float(np.partition(enters, places - 1)[places - 1]) if len(enters) >= places else 1.0
