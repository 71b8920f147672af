"""Complete a basket or playlist: n further items that go together, instead of the n best single items."""

from typing import Any

import numpy as np
import polars as pl

from recfusion.core.arrays import FloatArray, IntArray
from recfusion.core.errors import InputError
from recfusion.core.rng import make_rng
from recfusion.evaluation.metrics import Values
from recfusion.inference.bundle import COUNT, Bundle
from recfusion.inference.filters import check_count, check_item_filters
from recfusion.inference.histories import Histories, parse_histories
from recfusion.inference.lists import ListMaker
from recfusion.inference.request import ItemFilters

_FEWEST, _PER_PLACE = 200, 5  # candidates: at least 200, or 5 for each item to add
_SWEEPS = 20  # largest number of passes over the set; more than four are rare
_TEMPERATURE = 0.1  # of draws, with relevance between 0 and 1


def complete(
    bundle: Bundle,
    basket: Any,
    n: int = 5,
    *,
    alternatives: int = 1,
    together: float = 0.25,
    filters: ItemFilters | None = None,
    seed: int | None = None,
) -> pl.DataFrame:
    """Return n items that complete a basket, given like a history, as rows `alternative`, `rank`, `item`, ...

    The set S is a mode of the reverse process with the basket clamped, in its pairwise form: it maximises the sum over
    S of relevance r_j (the model's score, 0 to 1 over the candidates) + `together` times the mean similarity of j to
    the rest of S, by exchanging one item at a time until no exchange helps. `together` = 0 gives the n best. Each
    further alternative excludes the items of the earlier ones.

    With a `seed` each alternative is drawn instead, with probability proportional to exp(that sum / .1), by Gibbs
    sampling from the best set. Draws may share items.
    """
    table, frames = bundle.items.drop(COUNT), []
    sets = complete_sets(bundle, parse_histories(bundle, basket), n, alternatives, together, filters, seed)
    for number, (columns, scores) in enumerate(sets, 1):
        places = {"alternative": np.full(len(columns), number), "rank": np.arange(1, len(columns) + 1)}
        rows = places | {"item": table["item"][columns], "score": scores}
        frames.append(pl.DataFrame(rows).hstack(table.drop("item")[columns].get_columns()))
    return pl.concat(frames)


def complete_sets(
    bundle: Bundle,
    basket: Histories,
    n: int,
    alternatives: int,
    together: float,
    filters: ItemFilters | None,
    seed: int | None = None,
) -> list[tuple[IntArray, FloatArray]]:
    """Return the items and scores of each alternative for one basket; see `complete`."""
    check_count("n", "item to add", n)
    check_count("alternatives", "alternative", alternatives)
    if isinstance(together, bool) or not isinstance(together, int | float) or not 0 <= together <= 1:
        raise InputError(f"Expected together between 0 and 1, got {together!r}.", "together")
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool) or seed < 0):
        raise InputError(f"Expected a whole number from 0 as seed, got {seed!r}.", "seed")
    filters = check_item_filters(filters, "a completion")
    if not basket.matrix.nnz:
        raise InputError("Expected at least one item that the model knows in the basket, got none.", "history")
    wanted = max(_FEWEST, _PER_PLACE * n) + n * (alternatives - 1)
    lists = ListMaker.of(bundle, filters).lists(basket, min(wanted, len(bundle.items)))
    candidates, scores = lists.items[0], lists.scores[0].astype(np.float64)
    candidates, scores = candidates[candidates >= 0], scores[candidates >= 0]
    near = bundle.similarity.among(candidates) if together else np.zeros((len(candidates),) * 2, np.float32)
    found = []
    left, rng = np.arange(len(candidates)), None if seed is None else make_rng(seed)
    for _ in range(alternatives):
        if not len(left):
            break
        chosen = left[_best_set(scores[left], near[np.ix_(left, left)], n, together)]
        if rng is not None:
            chosen = np.array(_drawn_set(scores, near, chosen.tolist(), together, rng))
        found.append((candidates[chosen], scores[chosen].astype(np.float32)))
        left = np.setdiff1d(left, chosen) if rng is None else left
    return found


def _best_set(scores: Values, near: FloatArray, n: int, together: float) -> list[int]:
    """Return the positions of the best set among the candidates, best scores first."""
    n = min(n, len(scores))
    chosen = list(range(n))  # candidates come best first
    if n < 2 or not together:
        return chosen
    for _ in range(_SWEEPS):
        moved = False
        for place in range(n):
            value = _exchange_values(scores, near, chosen, place, together)
            best = int(np.argmax(value))
            if value[best] > value[chosen[place]] + 1e-9:
                chosen[place], moved = best, True
        if not moved:
            break
    return sorted(chosen)


def _drawn_set(
    scores: Values, near: FloatArray, start: list[int], together: float, rng: np.random.Generator
) -> list[int]:
    """Return the positions of a set drawn by Gibbs sampling from `start`: one item at a time, given the others."""
    chosen = list(start)
    for _ in range(_SWEEPS):
        for place in range(len(chosen)):
            value = _exchange_values(scores, near, chosen, place, together)
            chosen[place] = int(np.argmax(value / _TEMPERATURE + rng.gumbel(size=len(value))))
    return sorted(chosen)


def _exchange_values(scores: Values, near: FloatArray, chosen: list[int], place: int, together: float) -> Values:
    """Return the value of the set with each candidate in a place, up to a constant; -inf for items of the set."""
    rest = chosen[:place] + chosen[place + 1 :]
    relevance = (scores - scores.min()) / max(float(scores.max() - scores.min()), 1e-12)
    pull = together * 2 / max(1, len(rest))  # similarity of j to the rest, and of the rest to j
    value: Values = relevance + pull * near[:, rest].sum(1)
    value[rest] = -np.inf
    return value
