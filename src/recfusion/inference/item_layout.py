"""The map of items: two numbers for each item, from the model's similarity, stable from one training to the next.

Each item is joined to its most similar items. The eigenvectors of this graph are the first layout; the forces of t-SNE
(van der Maaten and Hinton 2008) refine it, with uniform affinities (Böhm, Berens and Kobak 2022). Repulsion is a
convolution on a grid (Linderman et al. 2019): no chance is involved.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array

from recfusion.core.arrays import Csr, FloatArray, IntArray
from recfusion.evaluation.metrics import Values
from recfusion.evaluation.topk import batch_rows
from recfusion.inference.similarity import Similarity

MOST = 20_000  # items on a map, the most popular ones
_TRIED = 1000  # items: if none of them has a similar one, no item has
_NEIGHBOURS = 15
_EARLY, _LATE = (12.0, 80), (1.0, 220)  # exaggeration of attraction, and steps with it
_CELL, _LEAST_CELLS, _MOST_CELLS = 1.0, 20, 300  # width of a grid cell, and cells on a side
_LONGEST = 5.0  # a step of an item, so that none leaves the map
_HEAVY = 2.0  # mass of the most popular item beyond that of the least popular one
_KNOWN = 0.5  # share of the items with an earlier place from which these places are the start
_SCALE = 0.3  # standard deviation of a refined layout, over the root of its number of items
_SMALL = 1e-4  # standard deviation of the first layout: larger ones stay tangled
_EXACT = 200  # items up to which repulsion is the sum over all pairs
_DENSE = 64  # items up to which eigenvectors are computed from a dense matrix


@dataclass(frozen=True)
class Layout:
    """Places of some items on the map, each coordinate between 0 and 1."""

    items: IntArray  # columns of the model
    places: FloatArray  # (these items, 2)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays for a file."""
        return {"items": self.items.astype(np.int64), "places": self.places.astype(np.float32)}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]], n_items: int) -> "Layout":
        """Return the layout in a file; raise if it does not fit a model of `n_items` items."""
        items, places = arrays["items"], arrays["places"]
        fits = items.dtype.kind == "i" and places.dtype.kind == "f" and places.shape == (len(items), 2)
        if not fits or not np.all((items >= 0) & (items < n_items)) or len(np.unique(items)) < len(items):
            raise ValueError("its layout does not fit its items")
        return cls(items, places)


def make_layout(similarity: Similarity, counts: IntArray, before: Mapping[int, FloatArray] | None = None) -> Layout:
    """Return the map of the most popular items; items without a similar one have no place.

    `before` has earlier places of some items: the new ones start there and are turned to fit them.
    """
    popular = np.sort(np.argsort(-counts, kind="stable")[:MOST])
    graph = _graph(similarity, popular, len(counts))
    joined = np.diff(graph.indptr) > 0
    items, graph = popular[joined], graph[joined][:, joined]
    if len(items) < 2:
        return Layout(items[:0], np.zeros((0, 2), np.float32))
    before = before or {}
    known = np.array([item in before for item in items.tolist()])
    old = np.array([before.get(item, (0, 0)) for item in items.tolist()], np.float64)
    logs = np.log1p(counts[items])
    masses = 1 + _HEAVY * ((logs - logs.min()) / max(float(np.ptp(logs)), 1e-12)) ** 4
    if known.mean() >= _KNOWN:
        places = _turned(_refined(_filled(old, known, graph), graph, masses, [_LATE]), old, known)
    else:
        places = _refined(_spectral(graph), graph, masses)
    low, high = places.min(0), places.max(0)
    centred = (places - (low + high) / 2) / max(float((high - low).max()), 1e-12)
    return Layout(items, (0.5 + 0.98 * centred).astype(np.float32))


def _graph(similarity: Similarity, items: IntArray, n_items: int) -> Csr:
    """Return the symmetric graph that joins each item to its most similar ones, (items, items), 0/1."""
    size, near = len(items), min(_NEIGHBOURS, max(1, len(items) - 1))
    rows: list[IntArray] = []
    columns: list[IntArray] = []
    for start in range(0, size, step := batch_rows(n_items)):
        if start >= _TRIED and not any(map(len, rows)):
            break  # as for popularity, which finds no items similar
        found = similarity.rows(items[start : start + step])[:, items]
        best = np.argpartition(found, -near, axis=1)[:, -near:]
        row, place = np.nonzero(np.take_along_axis(found, best, 1) > 0)
        rows.append(row + start)
        columns.append(best[row, place])
    both = np.concatenate(rows), np.concatenate(columns)
    graph = csr_array((np.ones(len(both[0]), np.float32), both), shape=(size, size))
    graph = graph.maximum(graph.T).tocsr()
    graph.sort_indices()
    return graph


def _spectral(graph: Csr) -> Values:
    """Return the second and third eigenvector of the random walk on a graph, as a first layout."""
    root = 1 / np.sqrt(np.maximum(graph.sum(1), 1e-12))
    walk = diags_array(root) @ graph.astype(np.float64) @ diags_array(root)
    if graph.shape[0] <= _DENSE:
        vectors = np.linalg.eigh(walk.toarray())[1][:, ::-1]
    else:
        from scipy.sparse.linalg import eigsh  # takes long to import, and loading a model needs no new map

        vectors = eigsh(walk, 3, which="LA", v0=np.sqrt(graph.sum(1)), tol=1e-4, maxiter=2000)[1][:, ::-1]
    vectors = np.pad(vectors, ((0, 0), (0, 2)))[:, 1:3] * root[:, None]
    vectors = vectors * np.where(vectors[np.abs(vectors).argmax(0), [0, 1]] < 0, -1, 1)  # eigh may return either sign
    scaled = np.clip(vectors / np.maximum(vectors.std(0), 1e-12), -4, 4)
    return _SMALL * (scaled + 0.05 * _spiral(len(vectors)))


def _spiral(size: int) -> Values:
    """Return points of a disc: added to a layout, they tell equal places apart, as in another component of a graph."""
    turn, radius = 2.399963 * np.arange(size), np.sqrt((1 + np.arange(size)) / size)
    return np.stack([radius * np.cos(turn), radius * np.sin(turn)], 1)


def _filled(old: Values, known: NDArray[np.bool_], graph: Csr) -> Values:
    """Return earlier places on the scale of a refined layout; new items are at the mean of their neighbours."""
    places = np.where(known[:, None], old - old[known].mean(0), 0)
    near = graph @ known.astype(np.float64)
    means = (graph @ places) / np.maximum(near, 1)[:, None]
    places = np.where(known[:, None], places, means) + 1e-3 * _spiral(len(old))
    return places * (_SCALE * np.sqrt(len(old)) / max(float(places.std()), 1e-12))


def _turned(places: Values, old: Values, known: NDArray[np.bool_]) -> Values:
    """Return places turned and mirrored to fit the earlier ones of the same items (orthogonal Procrustes)."""
    here, there = places[known] - places[known].mean(0), old[known] - old[known].mean(0)
    left, _, right = np.linalg.svd(here.T @ there)
    return np.asarray((places - places[known].mean(0)) @ (left @ right))


def _refined(
    places: Values, graph: Csr, masses: Values, phases: Sequence[tuple[float, int]] = (_EARLY, _LATE)
) -> Values:
    """Return the places after gradient descent on the t-SNE loss with momentum and gains.

    Items repel each other by their masses: popular ones have larger dots and need more room.
    """
    degrees = np.diff(graph.indptr)
    rows, columns, size = np.repeat(np.arange(len(degrees)), degrees), graph.indices, len(degrees)
    shares = 1 / np.sqrt(
        degrees[rows] * degrees[columns].astype(np.float64)
    )  # an item that many are joined to pulls each less
    shares /= shares.sum()
    speed, gains, grid = np.zeros_like(places), np.ones_like(places), _Grid()
    for number, (exaggeration, steps) in enumerate(phases):
        momentum = 0.5 if number == 0 else 0.8
        rate = max(size / exaggeration, 10.0)
        for _ in range(steps):
            apart = places[rows] - places[columns]
            apart *= (shares / (1 + (apart**2).sum(1)))[:, None]
            pulled = np.stack([np.bincount(rows, apart[:, axis], size) for axis in (0, 1)], 1)
            slope = 4 * (exaggeration * pulled - grid.repulsion(places, masses))
            gains = np.maximum(np.where(slope * speed < 0, gains + 0.2, gains * 0.8), 0.01)
            speed = momentum * speed - rate * gains * slope
            speed *= min(1.0, _LONGEST / max(float(np.abs(speed).max()), 1e-12))
            places = places + speed
            places = places - places.mean(0)
    return places


class _Grid:
    """A grid over the places, with the transforms of its kernels from a cache."""

    def __init__(self) -> None:
        from scipy import fft  # takes long to import, and loading a model needs no new map

        self._fft = fft
        self._kernels: dict[tuple[int, float], tuple[NDArray[Any], NDArray[Any]]] = {}

    def repulsion(self, places: Values, masses: Values) -> Values:
        """Return m_i sum_j m_j q_ij^2 (y_i - y_j) / sum_kl q_kl with q = 1 / (1 + distance^2), (items, 2).

        Masses are spread on the four corners of their cells; sums over items are convolutions of the grid. For few
        items the sum is exact.
        """
        if len(places) <= _EXACT:
            apart = places[:, None] - places[None]
            q = 1 / (1 + (apart**2).sum(2))
            return (
                masses[:, None]
                * np.einsum("ij,ijk->ik", masses * q**2, apart)
                / max(float(q.sum()) - len(places), 1e-12)
            )
        low = places.min(0)
        span = max(float((places.max(0) - low).max()), 1e-12)
        width = max(span / _MOST_CELLS, min(_CELL, span / _LEAST_CELLS))
        cells = int(np.ceil(span / width)) + 2
        at = (places - low) / width
        first = at.astype(np.int64)
        rest = at - first
        corners = [
            ((first[:, 0] + i) * cells + first[:, 1] + j, abs(1 - i - rest[:, 0]) * abs(1 - j - rest[:, 1]))
            for i in (0, 1)
            for j in (0, 1)
        ]
        size = self._fft.next_fast_len(-(-2 * cells // 32) * 32, real=True)
        kernel, squared = self._transforms(size, width)

        def spread(values: Values) -> NDArray[Any]:
            grid = sum(np.bincount(cell, share * values, cells * cells) for cell, share in corners)
            return self._fft.rfft2(np.asarray(grid).reshape(cells, cells), (size, size))

        def gathered(transform: NDArray[Any]) -> Values:
            grid = self._fft.irfft2(transform, (size, size))[:cells, :cells].ravel()
            return np.asarray(sum(share * grid[cell] for cell, share in corners))

        total = gathered(spread(np.ones(len(places))) * kernel).sum() - len(places)
        near = gathered(spread(masses) * squared)
        sums = [places[:, axis] * near - gathered(spread(masses * places[:, axis]) * squared) for axis in (0, 1)]
        return (
            masses[:, None] * np.stack(sums, 1) / max(float(total), 0.01 * len(places))
        )  # a coarse grid may lose the others

    def _transforms(self, size: int, width: float) -> tuple[NDArray[Any], NDArray[Any]]:
        if (size, width) not in self._kernels:
            steps = width * np.minimum(np.arange(size), size - np.arange(size))
            kernel = 1 / (1 + steps[:, None] ** 2 + steps[None] ** 2)
            self._kernels = {(size, width): (self._fft.rfft2(kernel), self._fft.rfft2(kernel**2))}
        return self._kernels[size, width]
