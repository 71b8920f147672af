"""An inverted file: items in cells of like vectors, so that the best for somebody are found without scoring all.

Cells are found by k-means, and the vectors of a cell lie side by side (Jegou, Douze and Schmid 2011, without their
codes). A search looks into the cells whose centres have the largest products with somebody's code, and scores what lies
there exactly: what it finds has its true score, and what lies elsewhere may be missed. A cell of scattered vectors
may hold better ones than its centre tells, so that its spread counts too.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from recfusion.core.arrays import Csr, FloatArray, IntArray
from recfusion.core.errors import InputError

_LEAST = 200_000  # items from which on there is an index, unless one is asked for
_PER_ROOT = 2  # cells for each root of the items
_SAMPLE, _ROUNDS = 40, 8  # items of a cell by which its centre is found, and rounds in which it moves
_AT_ONCE = 1 << 25  # products of items and centres that are held
_SHARE, _FEWEST, _ROOM = 1 / 32, 5_000, 4  # looked at, of the items that may come: a share, a number, times the list
_NEIGHBOURS = 4_000  # that are looked at in whatever cell
_OPTIMISM = 0.1  # deviations of a cell that are added to its centre's product (.1 and .2 do best, 0 and .5 worse)


def usual_cells(n_items: int) -> int:
    """Return how many cells so many items have: none where all scores take a few milliseconds."""
    return int(_PER_ROOT * n_items**0.5) if n_items >= _LEAST else 0


@dataclass(frozen=True)
class Index:
    """Vectors of items in the order of their cells."""

    vectors: FloatArray  # (width, items): products with the codes of a few users are quickest so
    order: IntArray  # (items,): the item of each place
    starts: IntArray  # (cells + 1,): where each cell starts, and the end
    centres: FloatArray  # (cells, width + 1): the mean of each cell's vectors, and their deviation from it

    @classmethod
    def of(cls, vectors: FloatArray, count: int, rng: np.random.Generator) -> "Index":
        """Return an index of so many cells."""
        n_items, count = vectors.shape[1], min(count, vectors.shape[1])
        some = vectors[:, np.sort(rng.choice(n_items, min(n_items, _SAMPLE * count), replace=False))]
        centres = np.ascontiguousarray(some[:, np.sort(rng.choice(some.shape[1], count, replace=False))].T)
        for _ in range(_ROUNDS):
            own = _nearest(some, centres)
            sizes = np.bincount(own, minlength=count)
            there = np.flatnonzero(sizes)  # a cell that has lost all of its items stays where it was
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
        """The arrays that it consists of."""
        return self.vectors, self.order, self.starts, self.centres

    @cached_property
    def places(self) -> IntArray:
        """The place of each item."""
        places = np.empty_like(self.order)
        places[self.order] = np.arange(len(places))
        return places

    def check(self, n_items: int) -> None:
        """Raise unless every item has one place, in one cell."""
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
        """Return (items, scores) as `top_k` does, of scores that are products with codes (users, width) plus `near`.

        No item comes that was `seen`, or is not `allowed`. Who has large numbers in `near` (users, items) is looked at
        in whatever cell.
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
        """Return the places that are looked at, of those that `may` come, and their products.

        They are those of the nearest cells, until these have enough by `sizes`, and of the nearest neighbours.
        """
        wanted = max(least, int(_SHARE * sizes.sum()))
        if sizes.sum() <= max(wanted, int(_SHARE * len(may))):  # as few as would be looked at without rules
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
    """Yield the vectors in parts that may have `count` numbers each beside them."""
    step = max(1, _AT_ONCE // count)
    slices = (slice(start, start + step) for start in range(0, vectors.shape[1], step))
    return ((part, vectors[:, part]) for part in slices)


def _best(items: IntArray, scores: FloatArray, k: int, seen: IntArray) -> tuple[IntArray, FloatArray]:
    """Return the K best items that were not seen, best first, of equals the first, and their scores."""
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
