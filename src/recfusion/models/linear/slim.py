"""SLIM: sparse, non-negative item-item weights (Ning and Karypis, 2011)."""

import logging
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray, IntArray
from recfusion.core.rng import RngLike
from recfusion.data.split import Fold
from recfusion.models.base import Recommender, Shape
from recfusion.models.linear.gram import gram, gram_bytes, require_gram_memory
from recfusion.models.reasons import Reasons, exact
from recfusion.models.settings import learned, setting

log = logging.getLogger(__name__)
_MATRICES = 3.2  # of items by items, held at once at most
_FIRST_CANDIDATES = 64  # candidates that a target starts with, and most that it gains in a round
_CELLS_PER_CHUNK = 1 << 24  # targets x candidates x candidates at once: 64 MB


@dataclass
class SLIM(Recommender):
    """Item-item weights W >= 0 that minimise |X - XW|^2 / 2 + l2 |W|^2 / 2 + l1 |W|_1 with diag(W) = 0.

    The columns of W are independent problems with few non-zero weights each. Every round solves them on a short list of
    candidates by coordinate descent, many columns at once, then adds the items with a gradient towards a positive
    weight. If there are none, the whole problem is solved.
    """

    l1: float = setting(10.0, "weight of the absolute penalty, for sparsity", at_least=0, search=(1, 100), log=True)
    l2: float = setting(200.0, "weight of the squared penalty", at_least=0, search=(10.0, 2000.0), log=True)
    max_rounds: int = setting(20, "most rounds of adding candidates", at_least=1, at_most=100_000)
    max_sweeps: int = setting(200, "most passes of coordinate descent in a round", at_least=1, at_most=100_000)
    tolerance: float = setting(1e-4, "a round ends when no weight moves further than this in a pass", at_least=0)
    weights_: Csr = learned()  # (items, items)

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        n_items = train.shape[1]
        require_gram_memory(n_items, "SLIM", _MATRICES)
        g = gram(train)
        w = csr_array((n_items, n_items), dtype=np.float32)  # row j: the weights of target j
        for round_number in range(1, self.max_rounds + 1):
            wanted = self._wanted(g, w)
            if not wanted.nnz:
                break
            w = self._solve(g, w, wanted)
            log.debug("SLIM round %d: %d candidates wanted, %d weights", round_number, wanted.nnz, w.nnz)
        self.weights_ = w.T.tocsr()
        return self

    def fit_bytes(self, shape: Shape) -> int:
        return gram_bytes(shape.items, _MATRICES, shape.interactions)

    def score(self, history: Csr) -> FloatArray:
        return np.asarray((history @ self.weights_).toarray(), np.float32)

    def reasons(self, history: Csr, items: IntArray) -> Reasons:
        return exact(history, self.weights_, items)

    def _wanted(self, g: FloatArray, w: Csr) -> Csr:
        """Return the items without a weight that would gain most by one, for each target (row)."""
        n_items = len(g)
        most = min(_FIRST_CANDIDATES, n_items)
        curvature = np.diag(g) + np.float32(self.l2) + np.float32(1e-6)
        rows, columns, values = [], [], []
        block = max(1, _CELLS_PER_CHUNK // (4 * n_items))
        for start in range(0, n_items, block):
            targets = np.arange(start, min(start + block, n_items))
            pull = g[targets] - w[targets] @ g - np.float32(self.l1)  # (targets, items)
            pull[np.arange(len(targets)), targets] = 0
            weighted = w[targets].tocoo()
            pull[weighted.row, weighted.col] = 0
            pull[pull <= self.tolerance * curvature] = 0  # its weight would not move further than the tolerance
            pull /= np.sqrt(curvature)  # the objective gains pull^2 / curvature
            best = np.argpartition(pull, n_items - most, axis=1)[:, n_items - most :]
            gains = np.take_along_axis(pull, best, axis=1)
            target, place = np.nonzero(gains)
            rows.append(targets[target])
            columns.append(best[target, place])
            values.append(gains[target, place])
        found = (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns)))
        return csr_array(found, shape=(n_items, n_items))

    def _solve(self, g: FloatArray, w: Csr, wanted: Csr) -> Csr:
        """Return the weights after solving each target with wanted items on these and its present items."""
        lists = (w + wanted).tocsr()  # both are positive where stored, so no candidate cancels out
        lengths = np.diff(lists.indptr) * (np.diff(wanted.indptr) > 0)
        settled = w.tocoo()
        kept = lengths[settled.row] == 0
        solved = [(settled.row[kept], settled.col[kept], settled.data[kept])]
        order = np.argsort(lengths, kind="stable")
        order = order[lengths[order] > 0]
        while len(order):
            n_targets = max(1, _CELLS_PER_CHUNK // int(lengths[order[-1]]) ** 2)
            targets, order = order[-n_targets:], order[:-n_targets]
            candidates, start = _padded(lists[targets], w[targets], targets)
            weights = self._descend(g, targets, candidates, start)
            target, place = np.nonzero(weights)
            solved.append((targets[target], candidates[target, place], weights[target, place]))
        rows, columns, values = (np.concatenate(parts) for parts in zip(*solved, strict=True))
        return csr_array((values, (rows, columns)), shape=w.shape)

    def _descend(self, g: FloatArray, targets: IntArray, candidates: IntArray, w: FloatArray) -> FloatArray:
        """Coordinate descent on w (targets, candidates), all targets at once, one candidate place after another."""
        h = g[candidates.T[:, :, None], candidates[None, :, :]]  # (candidates, targets, candidates)
        b = g[candidates, targets[:, None]] - np.float32(self.l1)
        b[candidates == targets[:, None]] = -np.inf  # padding, and the diagonal, which must stay zero
        residual = b - np.einsum("ptk,tp->tk", h, w)
        own = g[candidates, candidates]
        for _ in range(self.max_sweeps):
            moved = 0.0
            for place in range(candidates.shape[1]):
                pull = residual[:, place] + own[:, place] * w[:, place]
                new = np.maximum(0, pull / (own[:, place] + np.float32(self.l2)))
                change = new - w[:, place]
                w[:, place] = new
                residual -= h[place] * change[:, None]
                moved = max(moved, float(np.abs(change).max()))
            if moved <= self.tolerance:
                break
        return w


def _padded(lists: Csr, w: Csr, targets: IntArray) -> tuple[IntArray, FloatArray]:
    """Return candidates (targets, longest list), padded with the target itself, and their present weights."""
    lengths = np.diff(lists.indptr)
    filled = np.arange(lengths.max())[None, :] < lengths[:, None]
    candidates = np.repeat(targets[:, None], filled.shape[1], axis=1)
    candidates[filled] = lists.indices
    weights = np.take_along_axis(w.toarray(), candidates, axis=1)
    weights[~filled] = 0
    return candidates, weights
