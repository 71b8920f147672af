"""The reverse process of thinning as a ranking: one step or several, the likeliest items or drawn ones."""

import zlib
from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray, IntArray, row_numbers
from recfusion.evaluation.topk import top_k

SURVIVAL = 0.8  # the share of a user's ones that a history is taken to hold
_FIRST = np.float32(1e6)  # above any score: what an earlier step brings back stands before what later ones do


def reverse_scores(
    score: Callable[[Csr], FloatArray], history: Csr, *, steps: int = 1, temperature: float = 0.0, draw: int = 0
) -> FloatArray:
    """Return the scores (users, items) after `steps` reverse steps from x_t = history.

    A history of n items lacks n (1 - a) / a of them, a = .8. Each step but the last brings back an equal share of
    these: the items of the highest scores join the history, which itself stays as it is, and the next step scores
    with both. `temperature` above 0 adds Gumbel noise times it to the scores, which draws items without replacement
    with probabilities proportional to exp(score / temperature). The noise is a function of `draw` and the user's
    history, so that a user's list does not depend on who else is asked for.
    """
    scores = _noisy(score(history), history, temperature, draw)
    if steps == 1:
        return scores
    missing = np.diff(history.indptr) * (1 - SURVIVAL) / SURVIVAL
    joined: list[tuple[IntArray, IntArray, IntArray]] = []
    now, place = history, np.zeros(len(scores), np.int64)
    for step in range(1, steps):
        count = np.round(missing * step / steps) - np.round(missing * (step - 1) / steps)
        items, _ = top_k(scores, now, int(count.max(initial=0)) or 1)
        chosen = (np.arange(items.shape[1]) < count[:, None]) & (items >= 0)
        rows, within = np.nonzero(chosen)
        joined.append((rows, items[chosen], place[rows] + within))
        place += chosen.sum(1)
        now = _with(now, rows, items[chosen])
        scores = _noisy(score(now), now, temperature, draw)
    for rows, columns, places in joined:
        scores[rows, columns] = _FIRST - places
    return scores


def _noisy(scores: FloatArray, history: Csr, temperature: float, draw: int) -> FloatArray:
    if temperature:
        for row, values in enumerate(scores):
            own = history.indices[history.indptr[row] : history.indptr[row + 1]]
            rng = np.random.default_rng([draw, zlib.crc32(np.sort(own).astype(np.int64).tobytes())])
            values += np.float32(temperature) * rng.gumbel(size=len(values)).astype(np.float32)
    return scores


def _with(history: Csr, rows: IntArray, columns: IntArray) -> Csr:
    """Return the history with further items."""
    both_rows = np.concatenate([row_numbers(history), rows])
    both_columns = np.concatenate([history.indices, columns])
    ones = np.ones(len(both_rows), np.float32)
    return csr_array((ones, (both_rows, both_columns)), shape=history.shape)
