"""Similarity of items according to a model."""

import numpy as np
from scipy.sparse import csr_array

from recfusion.core.arrays import FloatArray, IntArray, binary_csr
from recfusion.evaluation.topk import batch_rows
from recfusion.models.base import Recommender

_POWER = 0.25  # of popularity, by which similarity is divided
_NEIGHBOURS = 200  # most similar items that are cached for each item


class Similarity:
    """How much item i alone raises the score of j: r_ij = max(0, score({i})_j - score({})_j) (n_j / mean n)^-1/4.

    For a linear model that is its weight from i to j. Results are cached.
    """

    def __init__(self, model: Recommender, counts: IntArray) -> None:
        self._model, self._n = model, len(counts)
        self._prior = (np.maximum(counts, 1) / max(float(np.mean(counts)), 1e-12)) ** -_POWER
        self._near = min(_NEIGHBOURS, len(counts))
        self._base: FloatArray | None = None
        self._cache: dict[int, tuple[IntArray, FloatArray]] = {}  # item -> its most similar items, r / largest r

    def rows(self, items: IntArray) -> FloatArray:
        """Return r of some items, (these items, items); r_ii is 0."""
        if self._base is None:
            self._base = self._model.score(csr_array((1, self._n), dtype=np.float32))[0]
        found = self._model.score(binary_csr(np.arange(len(items) + 1), items, self._n))
        found = np.maximum(found - self._base, 0) * self._prior.astype(np.float32)
        found[np.arange(len(items)), items] = 0
        return found

    def nearest(self, item: int) -> tuple[IntArray, FloatArray]:
        """Return the most similar items and their similarity, 1 for the first; other items have similarity 0."""
        self._fill_cache(np.array([item]))
        return self._cache[item]

    def among(self, items: IntArray) -> FloatArray:
        """Return the similarity of some items among themselves, 0 to 1, symmetric."""
        self._fill_cache(items)
        place = np.full(self._n, -1)
        place[items] = np.arange(len(items))
        matrix = np.zeros((len(items), len(items)), np.float32)
        for row, item in enumerate(items.tolist()):
            near, value = self._cache[item]
            inside = place[near] >= 0
            matrix[row, place[near[inside]]] = value[inside]
        return np.maximum(matrix, matrix.T)

    def _fill_cache(self, items: IntArray) -> None:
        """Compute and cache the most similar items of items that are not cached yet."""
        missing = np.array([item for item in items.tolist() if item not in self._cache], np.int64)
        for start in range(0, len(missing), rows := batch_rows(self._n)):
            some = missing[start : start + rows]
            for item, row in zip(some.tolist(), self.rows(some), strict=True):
                near = np.argpartition(row, -self._near)[-self._near :]
                near = near[row[near] > 0]
                self._cache[item] = near, row[near] / max(float(row[near].max(initial=0)), 1e-12)
