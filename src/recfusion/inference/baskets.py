"""Completing a basket, shelf or playlist: n further items that go together, not the n best one by one."""

from typing import Any

import numpy as np
import polars as pl

from recfusion.core.arrays import Csr, FloatArray, IntArray
from recfusion.core.errors import InputError
from recfusion.core.rng import make_rng
from recfusion.evaluation.metrics import Values
from recfusion.inference.bundle import COUNT, Bundle
from recfusion.inference.filters import Rules, check_count
from recfusion.inference.histories import histories_of
from recfusion.inference.lists import ListMaker
from recfusion.inference.reranking import check_share

_FEWEST, _PER_PLACE = 200, 5  # candidates: so many, or so many per item that is wanted
_SWEEPS = 20  # over the set, at the most; it seldom takes more than four
_TEMPERATURE = 0.1  # of draws, where relevance goes from 0 to 1


def complete(
    bundle: Bundle,
    basket: Any,
    n: int = 5,
    *,
    alternatives: int = 1,
    together: float = 0.25,
    rules: Rules | None = None,
    seed: int | None = None,
) -> pl.DataFrame:
    """Return n items that complete a basket (a sequence of ids), as rows `alternative`, `rank`, `item`, ...

    The set S is a mode of the reverse process with the basket clamped, in its pairwise form: it maximises the sum over
    S of relevance r_j (the model's score, 0 to 1 over the candidates) + `together` times the mean similarity of j to
    the rest of S, by exchanging one item at a time until no exchange helps. `together` = 0 gives the n best. Each
    further alternative does without the items of the earlier ones.

    With a `seed` each alternative is a draw instead: of the chance exp(that sum / .1), by Gibbs sampling from the best
    set. Draws may share items.
    """
    known = histories_of(bundle, basket)
    shown, found = bundle.items.drop(COUNT), []
    sets = completing_sets(
        *(bundle, known.matrix, n), alternatives=alternatives, together=together, rules=rules, seed=seed
    )
    for number, (columns, scores) in enumerate(sets, 1):
        places = {"alternative": np.full(len(columns), number), "rank": np.arange(1, len(columns) + 1)}
        rows = places | {"item": shown["item"][columns], "score": scores}
        found.append(pl.DataFrame(rows).hstack(shown.drop("item")[columns].get_columns()))
    return pl.concat(found)


def completing_sets(
    bundle: Bundle,
    basket: Csr,
    n: int,
    *,
    alternatives: int,
    together: float,
    rules: Rules | None,
    seed: int | None = None,
) -> list[tuple[IntArray, FloatArray]]:
    """Return the items and scores of each alternative for one basket (1, items); see `complete`."""
    check_count("item to add", n)
    check_count("alternative", alternatives)
    check_share("together", together)
    if rules is not None and rules.at_most:
        raise InputError("Expected rules without at_most for a completion: leave it out.")
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool) or seed < 0):
        raise InputError(f"Expected a whole number from 0 as seed, got {seed!r}.")
    if not basket.nnz:
        raise InputError("Expected at least one item that the model knows in the basket, got none.")
    wanted = max(_FEWEST, _PER_PLACE * n) + n * (alternatives - 1)
    lists = ListMaker.of(bundle, rules).lists(basket, min(wanted, len(bundle.items)))
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
    """Return the places of the set, best scores first."""
    n = min(n, len(scores))
    chosen = list(range(n))  # candidates come best first
    if n < 2 or not together:
        return chosen
    for _ in range(_SWEEPS):
        moved = False
        for place in range(n):
            value = _exchanged(scores, near, chosen, place, together)
            best = int(np.argmax(value))
            if value[best] > value[chosen[place]] + 1e-9:
                chosen[place], moved = best, True
        if not moved:
            break
    return sorted(chosen)


def _drawn_set(
    scores: Values, near: FloatArray, start: list[int], together: float, rng: np.random.Generator
) -> list[int]:
    """Return the places of a set drawn by Gibbs sampling from `start`: one item at a time, given the others."""
    chosen = list(start)
    for _ in range(_SWEEPS):
        for place in range(len(chosen)):
            value = _exchanged(scores, near, chosen, place, together)
            chosen[place] = int(np.argmax(value / _TEMPERATURE + rng.gumbel(size=len(value))))
    return sorted(chosen)


def _exchanged(scores: Values, near: FloatArray, chosen: list[int], place: int, together: float) -> Values:
    """Return what the set is worth with each candidate in a place, but for a constant; -inf for the others' own."""
    rest = chosen[:place] + chosen[place + 1 :]
    relevance = (scores - scores.min()) / max(float(scores.max() - scores.min()), 1e-12)
    pull = together * 2 / max(1, len(rest))  # j's pull on the rest and the rest's on j
    value: Values = relevance + pull * near[:, rest].sum(1)
    value[rest] = -np.inf
    return value
