"""The K best unseen items of each user; seen items are masked only here."""

import numpy as np
from numpy.typing import NDArray

from recfusion.core.arrays import Csr, FloatArray, IntArray, row_numbers
from recfusion.core.errors import InputError

CELLS_PER_BATCH = 1 << 20  # users x items scored at once: 4 MB of scores, which stay in cache
_FEW = 0.9  # with a smaller share of possible items, the others are removed before the selection


def batch_rows(n_items: int) -> int:
    """Return how many users to score at once, so that memory does not grow with their number."""
    return max(1, CELLS_PER_BATCH // max(1, n_items))


def top_k(scores: FloatArray, history: Csr, k: int, disliked: Csr | None = None) -> tuple[IntArray, FloatArray]:
    """Return (items, scores) of the K best items per row, best first; seen items and items at -inf never appear.

    Seen items are the history and the `disliked` items. Ties keep the order of the columns. A row with fewer than K
    candidates ends in item -1 with score -inf. `scores` (users, items) is overwritten.
    """
    for seen in (history,) if disliked is None else (history, disliked):
        scores[row_numbers(seen), seen.indices] = -np.inf
    k = min(k, scores.shape[1])
    items, values = np.full((len(scores), k), -1), np.full((len(scores), k), -np.inf, np.float32)
    if not scores.size:
        return items, values
    there = None
    # Items at -inf for all users are removed: numpy's selection is twenty times slower among many equal values.
    possible = (scores if len(scores) == 1 else scores.max(axis=0, keepdims=True))[0] != -np.inf
    if np.count_nonzero(possible) < _FEW * len(possible):
        there = np.flatnonzero(possible)
        scores = scores[:, there]
    if own := min(k, scores.shape[1]):
        columns, values[:, :own] = _best(scores, own)
        found = columns if there is None else there[columns]
        items[:, :own] = np.where(values[:, :own] == -np.inf, -1, found)
    return items, values


def popular_first(
    items: IntArray, values: FloatArray, scores: FloatArray, popularity: FloatArray
) -> tuple[IntArray, FloatArray]:
    """Return the lists of `top_k` with the more popular of items with equal scores first."""
    if not items.size:
        return items, values
    least = np.min(values, axis=1, where=values > -np.inf, initial=np.inf)
    tied = np.any((values[:, 1:] == values[:, :-1]) & (values[:, 1:] > -np.inf), axis=1)
    tied |= np.count_nonzero(scores >= least[:, None], axis=1) > np.count_nonzero(items >= 0, axis=1)
    for row in np.flatnonzero(tied):
        found = np.flatnonzero(scores[row] >= least[row])
        best = found[np.lexsort((-popularity[found], -scores[row, found]))][: items.shape[1]]
        items[row, : len(best)], values[row, : len(best)] = best, scores[row, best]
    return items, values


def by_popularity(items: IntArray, values: FloatArray, popularity: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return lists with the more popular of their items with equal scores first; items outside do not enter."""
    order = np.lexsort((-np.where(items >= 0, popularity[items], -np.inf), -values), axis=1)
    return np.take_along_axis(items, order, 1), np.take_along_axis(values, order, 1)


def _best(scores: FloatArray, k: int) -> tuple[IntArray, FloatArray]:
    """Return the columns and scores of the K best of each row, best first."""
    n_items = scores.shape[1]
    best = np.partition(scores, n_items - k, axis=1)[:, n_items - k :]  # NaN counts as the largest
    if np.isnan(best).any():
        raise InputError("The model gave scores that are not numbers (NaN): train it again with other settings.")
    items = (np.flatnonzero(_chosen(scores, best[:, :1].copy(), k)) % n_items).reshape(-1, k)
    values = np.take_along_axis(scores, items, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    return np.take_along_axis(items, order, axis=1), np.take_along_axis(values, order, axis=1)


def _chosen(scores: FloatArray, least: FloatArray, k: int) -> NDArray[np.bool_]:
    """Return which K cells of each row are the best; `least` is the lowest of them, ties go to the first columns."""
    chosen = scores >= least
    tied = np.flatnonzero(np.count_nonzero(chosen, axis=1) > k)
    if len(tied):
        above = scores[tied] > least[tied]
        equal = chosen[tied] ^ above
        room = k - np.count_nonzero(above, axis=1, keepdims=True)
        chosen[tied] = above | (equal & (np.cumsum(equal, axis=1, dtype=np.int32) <= room))
    return chosen
