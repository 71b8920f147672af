"""Positions for items in a row or on a map, with similar items next to each other, for convolutions."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds

from recfusion.core.arrays import Csr, IntArray, column_counts

Features = NDArray[np.float64]  # (items, directions)
_DIRECTIONS = 32


def item_features(train: Csr, directions: int = _DIRECTIONS) -> Features:
    """Return item vectors of length 1 from co-occurrence, (items, directions or fewer).

    They are the leading eigenvectors of S = N^-1/2 X'X N^-1/2, the cosines between items, each times the root of its
    eigenvalue. The first eigenvector is left out, because it is popularity. An item without users is all zeros.
    """
    counts = column_counts(train).astype(np.float64)
    scaled = csr_array(train.astype(np.float64) * (np.maximum(counts, 1) ** -0.5)[None])
    kept = min(directions + 1, *train.shape)
    if kept < min(train.shape):
        start = np.random.default_rng(0).standard_normal(min(train.shape))  # otherwise the solver draws its own start
        _, values, rows = svds(scaled, k=kept, v0=start)
        order = np.argsort(-values)
        values, rows = values[order], rows[order]
    else:
        _, values, rows = np.linalg.svd(scaled.toarray(), full_matrices=False)
    features = (rows[1:kept] * values[1:kept, None]).T
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    return features / np.where(lengths > 1e-9, lengths, 1)


def place_items(features: Features, height: int, width: int) -> IntArray:
    """Return each item's slot on a height x width map, counted row by row, (items,); 1 x width is a row.

    A kd-tree with slots as leaves: the longer side of a block is halved repeatedly, and the block's items are split
    along their first principal direction. The direction's sign puts each half next to the more similar neighbouring
    block. Empty slots are spread evenly.
    """
    means = np.zeros((height, width, features.shape[1]))  # mean features of each slot's block so far
    slots = np.zeros(len(features), np.int64)
    blocks = [(np.arange(len(features)), 0, 0, height, width)] if len(features) else []
    while blocks:  # level by level, so that neighbouring blocks have about the same size
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
    """Return the halves of a block that have items."""
    sideways = wide >= high
    length, across = (wide, high) if sideways else (high, wide)
    first = length // 2
    share = round(len(items) * first / length)
    share = min(max(share, len(items) - (length - first) * across), first * across)
    before, after = _neighbouring_means(means, features[items].mean(0), top, left, high, wide, sideways)
    along = features[items] @ _direction(features[items], after - before)
    order = items[np.argsort(along, kind="stable")]
    if sideways:
        both = [(order[:share], top, left, high, first), (order[share:], top, left + first, high, wide - first)]
    else:
        both = [(order[:share], top, left, first, wide), (order[share:], top + first, left, high - first, wide)]
    return [block for block in both if len(block[0])]


def _neighbouring_means(
    means: Features, own: NDArray[np.float64], top: int, left: int, high: int, wide: int, sideways: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean features before and after a block; beyond the edge, those of the block itself."""
    grid, start, stop = (means, left, left + wide) if sideways else (means.swapaxes(0, 1), top, top + high)
    rows = slice(top, top + high) if sideways else slice(left, left + wide)
    before = grid[rows, start - 1].mean(0) if start > 0 else own
    after = grid[rows, stop].mean(0) if stop < grid.shape[1] else own
    return before, after


def _direction(features: Features, towards: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the first principal direction with a non-negative product with `towards`."""
    if not features.shape[1]:
        return np.zeros(0)
    centred = features - features.mean(0)
    direction = np.linalg.eigh(centred.T @ centred)[1][:, -1]
    agreement = float(direction @ towards)
    if abs(agreement) < 1e-12:  # no neighbours yet: the sign of the largest component decides
        agreement = float(direction[np.argmax(np.abs(direction))])
    return direction if agreement > 0 else -direction
