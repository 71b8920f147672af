"""Places for items in a row or on a map, such that neighbours are alike: what gives a convolution something to see."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds

from recfusion.core.arrays import Csr, IntArray, column_counts

Features = NDArray[np.float64]  # (items, directions)
_DIRECTIONS = 32


def item_features(train: Csr, directions: int = _DIRECTIONS) -> Features:
    """Return what items are like, by who has them: rows of length 1, (items, directions or fewer).

    With S = N^-1/2 X'X N^-1/2, the cosines between items, they are its leading eigenvectors after the first, which is
    popularity again, each times the root of its eigenvalue. An item that nobody has is all zeros.
    """
    counts = column_counts(train).astype(np.float64)
    scaled = csr_array(train.astype(np.float64) * (np.maximum(counts, 1) ** -0.5)[None])
    kept = min(directions + 1, *train.shape)
    if kept < min(train.shape):
        start = np.random.default_rng(0).standard_normal(min(train.shape))  # else the solver would draw its own
        _, values, rows = svds(scaled, k=kept, v0=start)
        order = np.argsort(-values)
        values, rows = values[order], rows[order]
    else:
        _, values, rows = np.linalg.svd(scaled.toarray(), full_matrices=False)
    features = (rows[1:kept] * values[1:kept, None]).T
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    return features / np.where(lengths > 1e-9, lengths, 1)


def place_items(features: Features, height: int, width: int) -> IntArray:
    """Return a slot of a height x width map for each item, counted row by row, (items,); 1 x width is a row.

    The map's longer side is halved again and again. The items of a block are divided along the direction in which they
    differ most, and that is turned so that each half lies beside the neighbouring block that it resembles: a kd-tree
    whose leaves are slots. Blank slots are spread evenly.
    """
    means = np.zeros((height, width, features.shape[1]))  # what the block of each slot is like so far
    slots = np.zeros(len(features), np.int64)
    blocks = [(np.arange(len(features)), 0, 0, height, width)] if len(features) else []
    while blocks:  # level by level, so that neighbours are about as fine
        smaller = []
        for items, top, left, high, wide in blocks:
            if high * wide == 1:
                slots[items] = top * width + left
                continue
            smaller += _halves(features, means, items, top, left, high, wide)
        for items, top, left, high, wide in smaller:
            means[top : top + high, left : left + wide] = features[items].mean(0)
        blocks = smaller
    return slots


_Block = tuple[IntArray, int, int, int, int]  # items, and top, left, height and width on the map


def _halves(
    features: Features, means: Features, items: IntArray, top: int, left: int, high: int, wide: int
) -> list[_Block]:
    """Return the two halves of a block, without those that have no items."""
    sideways = wide >= high
    length, across = (wide, high) if sideways else (high, wide)
    first = length // 2
    share = round(len(items) * first / length)
    share = min(max(share, len(items) - (length - first) * across), first * across)
    before, after = _beside(means, features[items].mean(0), top, left, high, wide, sideways)
    along = features[items] @ _direction(features[items], after - before)
    order = items[np.argsort(along, kind="stable")]
    if sideways:
        both = [(order[:share], top, left, high, first), (order[share:], top, left + first, high, wide - first)]
    else:
        both = [(order[:share], top, left, first, wide), (order[share:], top + first, left, high - first, wide)]
    return [block for block in both if len(block[0])]


def _beside(
    means: Features, own: NDArray[np.float64], top: int, left: int, high: int, wide: int, sideways: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what lies before and behind a block, on the average; beyond the map's edge it is like the block itself."""
    grid, start, stop = (means, left, left + wide) if sideways else (means.swapaxes(0, 1), top, top + high)
    rows = slice(top, top + high) if sideways else slice(left, left + wide)
    before = grid[rows, start - 1].mean(0) if start > 0 else own
    after = grid[rows, stop].mean(0) if stop < grid.shape[1] else own
    return before, after


def _direction(features: Features, towards: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the first principal direction, pointing `towards` as far as it can."""
    if not features.shape[1]:
        return np.zeros(0)
    centred = features - features.mean(0)
    direction = np.linalg.eigh(centred.T @ centred)[1][:, -1]
    agreement = float(direction @ towards)
    if abs(agreement) < 1e-12:  # nothing beside it yet: its largest part decides
        agreement = float(direction[np.argmax(np.abs(direction))])
    return direction if agreement > 0 else -direction
