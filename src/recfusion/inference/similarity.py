"""How alike items are in a model's own eyes."""

import numpy as np
from scipy.sparse import csr_array

from recfusion.core.arrays import FloatArray, IntArray, binary_csr
from recfusion.evaluation.topk import batch_rows
from recfusion.models.base import Recommender

_POWER = 0.25  # of popularity, by which likeness is divided
_NEIGHBOURS = 200  # of each item that are kept


class Similarity:
    """How much an item alone speaks for another: r_ij = max(0, score({i})_j - score({})_j) (n_j / mean n)^-1/4.

    For a linear model that is its own weight from i to j. What is asked for again is not computed again.
    """

    def __init__(self, model: Recommender, counts: IntArray) -> None:
        self._model, self._n = model, len(counts)
        self._prior = (np.maximum(counts, 1) / max(float(np.mean(counts)), 1e-12)) ** -_POWER
        self._near = min(_NEIGHBOURS, len(counts))
        self._base: FloatArray | None = None
        self._kept: dict[int, tuple[IntArray, FloatArray]] = {}  # item -> its nearest items, and r / largest r

    def rows(self, items: IntArray) -> FloatArray:
        """Return r for some items, (items asked for, items); r_ii is 0."""
        if self._base is None:
            self._base = self._model.score(csr_array((1, self._n), dtype=np.float32))[0]
        found = self._model.score(binary_csr(np.arange(len(items) + 1), items, self._n))
        found = np.maximum(found - self._base, 0) * self._prior.astype(np.float32)
        found[np.arange(len(items)), items] = 0
        return found

    def nearest(self, item: int) -> tuple[IntArray, FloatArray]:
        """Return the items nearest to an item, and how alike they are: 1 for the nearest, 0 for all others."""
        self._keep(np.array([item]))
        return self._kept[item]

    def among(self, items: IntArray) -> FloatArray:
        """Return the similarity of some items among themselves, 0 to 1, symmetric."""
        self._keep(items)
        place = np.full(self._n, -1)
        place[items] = np.arange(len(items))
        matrix = np.zeros((len(items), len(items)), np.float32)
        for row, item in enumerate(items.tolist()):
            near, value = self._kept[item]
            inside = place[near] >= 0
            matrix[row, place[near[inside]]] = value[inside]
        return np.maximum(matrix, matrix.T)

    def _keep(self, items: IntArray) -> None:
        """Compute what is asked for for the first time."""
        missing = np.array([item for item in items.tolist() if item not in self._kept], np.int64)
        for start in range(0, len(missing), rows := batch_rows(self._n)):
            some = missing[start : start + rows]
            for item, row in zip(some.tolist(), self.rows(some), strict=True):
                near = np.argpartition(row, -self._near)[-self._near :]
                near = near[row[near] > 0]
                self._kept[item] = near, row[near] / max(float(row[near].max(initial=0)), 1e-12)
