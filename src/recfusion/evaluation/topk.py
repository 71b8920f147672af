"""The K best unseen items of each user; the one place where seen items are masked."""

import numpy as np

from recfusion.core.arrays import Csr, FloatArray, IntArray, row_numbers
from recfusion.core.errors import InputError

CELLS_PER_BATCH = 1 << 20  # users x items scored at once: 4 MB of scores, which stays in cache


def batch_rows(n_items: int) -> int:
    """Return how many users to score at once, so that memory does not grow with their number."""
    return max(1, CELLS_PER_BATCH // max(1, n_items))


def top_k(scores: FloatArray, history: Csr, k: int, disliked: Csr | None = None) -> tuple[IntArray, FloatArray]:
    """Return (items, scores) of the K best items per row, best first; seen items and items at -inf never appear.

    What was seen is the history, and what was `disliked` where that is known. Equal scores keep the order of the
    columns. A row with fewer than K candidates ends in item -1 with score -inf. `scores` (users, items) is overwritten.
    """
    n_items = scores.shape[1]
    k = min(k, n_items)
    for seen in (history,) if disliked is None else (history, disliked):
        scores[row_numbers(seen), seen.indices] = -np.inf
    if np.isnan(scores).any():
        raise InputError("The model gave scores that are not numbers (NaN): train it again with other settings.")
    best = np.partition(_ordered_keys(scores), n_items - k, axis=1)[:, n_items - k :]
    best.sort(axis=1)
    best = best[:, ::-1]
    items = n_items - 1 - (best & 0xFFFFFFFF)
    values = np.take_along_axis(scores, items, axis=1)
    return np.where(values == -np.inf, -1, items), values


def _ordered_keys(scores: FloatArray) -> IntArray:
    """Return distinct integers in the order of (score, column from last to first).

    The bits of a float, with the lower ones turned over where it is negative, order like the float itself. With the
    column below them no two keys of a row are equal, so a partial sort is exact and its ties are stable.
    """
    n_items = scores.shape[1]
    bits = (scores + np.float32(0)).view(np.int32)  # + 0 makes -0.0 equal to 0.0
    bits ^= (bits >> 31) & np.int32(0x7FFFFFFF)
    keys = bits.astype(np.int64)
    keys <<= 32
    keys |= np.arange(n_items - 1, -1, -1)
    return keys
