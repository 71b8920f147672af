"""Sparse Markov random field: EASE on neighbourhoods of correlated items (Steck, NeurIPS 2019)."""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from recfusion.core.arrays import Csr, FloatArray, column_counts
from recfusion.core.rng import RngLike
from recfusion.data.split import Fold
from recfusion.models.base import Recommender, Shape
from recfusion.models.linear.gram import blas_threads, gram, gram_bytes, require_gram_memory
from recfusion.models.settings import learned, setting

_MATRICES = 2.1  # items x items matrices held at the peak
_SHARED_DOC = "share of a neighbourhood that one solve serves; 0 solves for every item"


@dataclass
class SparseMRF(Recommender):
    """Item-item weights with the zeros of a thresholded covariance matrix.

    With C the covariance of the items, S_ij = C_ij / (C_ii C_jj)^(alpha/2) and N_j the items with |S_ij| >= threshold,
    the `neighbours` largest at most, P = (S_NN + l2 I)^-1 gives the weights B_Nj = -P_.j / P_jj. As in the paper, one
    inverse serves the nearest share `shared` of N_j, items with large neighbourhoods first, and several solutions of
    one weight are averaged. Scores are r D^-alpha B D^alpha, D_j = C_jj^(1/2).
    """

    l2: float = setting(6.0, "weight of the squared penalty", at_least=1e-6, search=(0.1, 100.0), log=True)
    alpha: float = setting(0.75, "power of the standard deviation that divides an item", search=(0.0, 1.0))
    threshold: float = setting(0.11, "least absolute covariance after scaling", at_least=0, search=(0.0, 1.0))
    neighbours: int = setting(1000, "most neighbours of an item", at_least=1, at_most=100_000)
    shared: float = setting(0.5, _SHARED_DOC, at_least=0, search=(0.0, 0.5))
    weights_: Csr = learned()  # (items, items)

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        n_users, n_items = train.shape
        require_gram_memory(n_items, "A sparse MRF", _MATRICES)
        counts = column_counts(train).astype(np.float64)
        variance = counts - counts**2 / max(1, n_users)  # times the number of users
        scale = np.where(variance > 0, np.maximum(variance, 1e-9) ** (-self.alpha / 2), 0).astype(np.float32)
        s = np.ascontiguousarray(gram(train))
        s -= np.outer(counts / max(1, n_users), counts).astype(np.float32)
        s *= scale[:, None]
        s *= scale
        near = [neighbourhood(s[:, item], item, self.threshold, self.neighbours) for item in range(n_items)]
        s[np.diag_indices(n_items)] += np.float32(self.l2)
        with blas_threads(n_items):
            weights = solve_blocks(s, near, self.shared)
        back = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
        self.weights_ = csr_array(weights.multiply(scale[:, None]).multiply(back), dtype=np.float32)
        return self

    def score(self, history: Csr) -> FloatArray:
        return (history @ self.weights_).toarray()

    def fit_bytes(self, shape: Shape) -> int:
        return gram_bytes(shape.items, _MATRICES, shape.interactions)


def neighbourhood(column: FloatArray, item: int, threshold: float, most: int) -> NDArray[np.intp]:
    """Return an item and the others from the threshold on, nearest first and the item itself at the head."""
    size = np.abs(column)
    size[item] = np.inf
    found = np.flatnonzero(size >= threshold)
    return found[np.argsort(-size[found], kind="stable")][: most + 1]


def solve_blocks(s: FloatArray, near: list[NDArray[np.intp]], shared: float) -> Csr:
    """Return the weights (items, items) on the neighbourhoods `near` of the items, 0 on the diagonal."""
    waiting = np.ones(len(near), bool)
    rows, columns, values = [], [], []
    for item in np.argsort([-len(block) for block in near], kind="stable"):
        if waiting[item]:
            block = near[item]
            served = block[: max(1, math.ceil(len(block) * shared))]
            waiting[served] = False
            p = np.linalg.inv(s[np.ix_(block, block)].astype(np.float64))[:, : len(served)]
            rows.append(np.repeat(block, len(served)))
            columns.append(np.tile(served, len(block)))
            values.append((-p / np.diag(p)).ravel())
    places = (np.concatenate(rows), np.concatenate(columns))
    total, times = (
        coo_array((data, places), shape=s.shape).tocsr() for data in (np.concatenate(values), np.ones(len(places[0])))
    )
    total.data /= times.data
    sizes = [len(block) for block in near]
    pattern = coo_array(
        (np.ones(sum(sizes)), (np.concatenate(near), np.repeat(range(len(near)), sizes))), shape=s.shape
    )
    total = total.multiply(pattern.tocsr()).tocoo()
    off = total.row != total.col
    return csr_array(coo_array((total.data[off], (total.row[off], total.col[off])), shape=s.shape))
