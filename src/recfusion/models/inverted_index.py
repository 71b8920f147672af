"""An inverted file: items in cells of similar vectors, to find the best items of a user without scoring all.

Cells are found by k-means, and the vectors of a cell are stored together (Jegou, Douze and Schmid 2011, without their
codes). A search scores the items of the cells with the centres nearest to a user's code: items have their exact scores,
and items of other cells may be missed. A cell of scattered vectors may hold better items than its centre suggests, so
its spread counts too.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from recfusion.core.arrays import Csr, FloatArray, IntArray
from recfusion.core.errors import InputError

_LEAST = 200_000  # with at least so many items there is an index by default
_PER_ROOT = 2  # cells per root of the number of items
_SAMPLE, _ROUNDS = 40, 8  # items per cell for k-means, and its rounds
_AT_ONCE = 1 << 25  # products of items and centres held at once
_SHARE, _FEWEST, _ROOM = 1 / 32, 5_000, 4  # items scored, at least: a share, a number, times the list
_NEIGHBOURS = 4_000  # most items outside of these cells that are scored for their weights in `near`
_OPTIMISM = 0.1  # deviations of a cell added to its centre's product (.1 and .2 are best, 0 and .5 worse)


def usual_cells(n_items: int) -> int:
    """Return the default number of cells: none if scoring all items takes a few milliseconds."""
    return int(_PER_ROOT * n_items**0.5) if n_items >= _LEAST else 0


@dataclass(frozen=True)
class Index:
    """Item vectors in the order of their cells."""

    vectors: FloatArray  # (width, items): the quickest layout for a few users
    order: IntArray  # (items,): the item at each place
    starts: IntArray  # (cells + 1,): where each cell starts, and the end
    centres: FloatArray  # (cells, width + 1): the mean of each cell's vectors, and their deviation from it

    @classmethod
    def of(cls, vectors: FloatArray, count: int, rng: np.random.Generator) -> "Index":
        n_items, count = vectors.shape[1], min(count, vectors.shape[1])
        some = vectors[:, np.sort(rng.choice(n_items, min(n_items, _SAMPLE * count), replace=False))]
        centres = np.ascontiguousarray(some[:, np.sort(rng.choice(some.shape[1], count, replace=False))].T)
        for _ in range(_ROUNDS):
            own = _nearest(some, centres)
            sizes = np.bincount(own, minlength=count)
            there = np.flatnonzero(sizes)  # an empty cell stays where it was
            starts = (np.cumsum(sizes) - sizes)[there]
            sums = np.add.reduceat(some[:, np.argsort(own, kind="stable")], starts, axis=1)
            centres[there] = (sums / sizes[there].astype(np.float32)).T
        own = _nearest(vectors, centres)
        order = np.argsort(own, kind="stable")
        sizes = np.bincount(own, minlength=count)
        apart = ((part - centres[own[rows]].T) ** 2 for rows, part in _parts(vectors, len(centres)))
        squares = np.bincount(own, np.concatenate([part.sum(0) for part in apart]), minlength=count)
        spread = np.sqrt(squares / np.maximum(sizes, 1)).astype(np.float32)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        return cls(vectors.take(order, axis=1), order, starts, np.column_stack([centres, spread]))

    @property
    def parts(self) -> tuple[FloatArray, IntArray, IntArray, FloatArray]:
        return self.vectors, self.order, self.starts, self.centres

    @cached_property
    def places(self) -> IntArray:
        """The place of each item."""
        places = np.empty_like(self.order)
        places[self.order] = np.arange(len(places))
        return places

    def check(self, n_items: int) -> None:
        """Raise unless every item has exactly one place."""
        width, cells = len(self.vectors), self.starts.size - 1
        shapes = [part.shape for part in self.parts]
        if shapes != [(width, n_items), (n_items,), (cells + 1,), (cells, width + 1)] or cells < 1:
            raise ValueError(f"the parts of its index do not fit together: their shapes are {shapes}")
        there = np.zeros(n_items, bool)
        there[self.order] = True
        if not there.all() or (np.diff(self.starts) < 0).any() or self.starts[[0, -1]].tolist() != [0, n_items]:
            raise ValueError("the cells of its index do not hold each item once")

    def search(
        self, codes: FloatArray, k: int, seen: Csr, near: Csr, allowed: NDArray[np.bool_] | None = None
    ) -> tuple[IntArray, FloatArray]:
        """Return (items, scores) as `top_k` does, for scores that are products with codes (users, width) plus `near`.

        Items that were `seen` or are not `allowed` are left out. Items with large values in `near` (users, items) are
        scored whatever their cell.
        """
        users, n_items = len(codes), len(self.order)
        k = min(int(k), n_items)
        items, values = np.full((users, k), -1), np.full((users, k), -np.inf, np.float32)
        may = np.ones(n_items, bool) if allowed is None else allowed[self.order]
        sizes = np.diff(self.starts) if allowed is None else np.diff(np.append(0, np.cumsum(may))[self.starts])
        for user in range(users):
            own, close = (slice(*rows.indptr[user : user + 2]) for rows in (seen, near))
            added, places = near.data[close], self.places[near.indices[close]]
            room = _ROOM * (k + int(own.stop - own.start))
            found, scores = self._candidates(codes[user], may, sizes, max(_FEWEST, room), places, added)
            if len(places):
                beside = np.zeros(n_items, np.float32)
                beside[places] = added
                scores += beside[found]
            best, of_them = _best(self.order[found], scores, k, seen.indices[own])
            items[user, : len(best)], values[user, : len(best)] = best, of_them
        return items, values

    def _candidates(
        self, code: FloatArray, may: NDArray[np.bool_], sizes: IntArray, least: int, near: IntArray, added: FloatArray
    ) -> tuple[IntArray, FloatArray]:
        """Return the allowed places that are scored, and their products.

        These are the places of the nearest cells, until they have enough items by `sizes`, and of neighbours.
        """
        wanted = max(least, int(_SHARE * sizes.sum()))
        if sizes.sum() <= max(wanted, int(_SHARE * len(may))):  # so few that all of them are scored
            found = np.flatnonzero(may)
            return found, code @ (self.vectors if may.all() else self.vectors[:, found])
        hope = np.append(code, np.float32(_OPTIMISM) * np.linalg.norm(code))
        cells = np.argsort(-(self.centres @ hope), kind="stable")
        cells = np.sort(cells[: np.searchsorted(np.cumsum(sizes[cells]), wanted) + 1])
        parts = [slice(*self.starts[cell : cell + 2]) for cell in cells[sizes[cells] > 0]]
        near, added = near[may[near]], added[may[near]]
        if len(near) > _NEIGHBOURS:
            near = near[np.argpartition(-added, _NEIGHBOURS)[:_NEIGHBOURS]]
        looked = np.zeros(len(self.centres), bool)
        looked[cells] = True
        near = np.sort(near[~looked[np.searchsorted(self.starts, near, side="right") - 1]])
        found = np.concatenate([*(np.arange(part.start, part.stop) for part in parts), near])
        scores = np.concatenate([*(code @ self.vectors[:, part] for part in parts), code @ self.vectors[:, near]])
        return found[may[found]], scores[may[found]]


def _nearest(vectors: FloatArray, centres: FloatArray) -> IntArray:
    """Return the cell of each vector."""
    half = (centres * centres).sum(1) / 2
    return np.concatenate([np.argmax(part.T @ centres.T - half, axis=1) for _, part in _parts(vectors, len(centres))])


def _parts(vectors: FloatArray, count: int) -> Iterator[tuple[slice, FloatArray]]:
    """Yield the vectors in parts, small enough for `count` numbers per vector."""
    step = max(1, _AT_ONCE // count)
    slices = (slice(start, start + step) for start in range(0, vectors.shape[1], step))
    return ((part, vectors[:, part]) for part in slices)


def _best(items: IntArray, scores: FloatArray, k: int, seen: IntArray) -> tuple[IntArray, FloatArray]:
    """Return the K best unseen items, best first, ties by number, and their scores."""
    if np.isnan(scores).any():
        raise InputError("The model gave scores that are not numbers (NaN): train it again with other settings.")
    room = k + len(seen)
    if len(scores) > room:
        least = np.partition(scores, len(scores) - room)[len(scores) - room]
        items, scores = items[scores >= least], scores[scores >= least]
    new = ~np.isin(items, seen)
    items, scores = items[new], scores[new]
    order = np.lexsort((items, -scores))[:k]
    return items[order], scores[order]
