"""Completing a basket, shelf or playlist: n further items that go together, not the n best one by one."""

from typing import Any

import numpy as np
import polars as pl

from recfusion.core.arrays import Csr, FloatArray, IntArray
from recfusion.core.errors import InputError
from recfusion.evaluation.metrics import Values
from recfusion.serving.bundle import COUNT, Bundle
from recfusion.serving.histories import histories_of
from recfusion.serving.knobs import check_share
from recfusion.serving.lists import ListMaker
from recfusion.serving.rules import Rules, check_count

_FEWEST, _PER_PLACE = 200, 5  # candidates: so many, or so many per item that is wanted
_SWEEPS = 20  # over the set, at the most; it seldom takes more than four


def complete(
    bundle: Bundle,
    basket: Any,
    n: int = 5,
    *,
    alternatives: int = 1,
    together: float = 0.25,
    rules: Rules | None = None,
) -> pl.DataFrame:
    """Return n items that complete a basket (a sequence of ids), as rows `alternative`, `rank`, `item`, ...

    The set S is a mode of the reverse process with the basket clamped, in its pairwise form: it maximises the sum over
    S of relevance r_j (the model's score, 0 to 1 over the candidates) + `together` times the mean similarity of j to
    the rest of S, by exchanging one item at a time until no exchange helps. `together` = 0 gives the n best. Each
    further alternative does without the items of the earlier ones.
    """
    known = histories_of(bundle, basket)
    shown, found = bundle.items.drop(COUNT), []
    sets = completing_sets(bundle, known.matrix, n, alternatives=alternatives, together=together, rules=rules)
    for number, (columns, scores) in enumerate(sets, 1):
        places = {"alternative": np.full(len(columns), number), "rank": np.arange(1, len(columns) + 1)}
        rows = places | {"item": shown["item"][columns], "score": scores}
        found.append(pl.DataFrame(rows).hstack(shown.drop("item")[columns].get_columns()))
    return pl.concat(found)


def completing_sets(
    bundle: Bundle, basket: Csr, n: int, *, alternatives: int, together: float, rules: Rules | None
) -> list[tuple[IntArray, FloatArray]]:
    """Return the items and scores of each alternative for one basket (1, items); see `complete`."""
    check_count("item to add", n)
    check_count("alternative", alternatives)
    check_share("together", together)
    if rules is not None and rules.at_most:
        raise InputError("Expected rules without at_most for a completion: leave it out.")
    if not basket.nnz:
        raise InputError("Expected at least one item that the model knows in the basket, got none.")
    wanted = max(_FEWEST, _PER_PLACE * n) + n * (alternatives - 1)
    lists = ListMaker.of(bundle, rules).lists(basket, min(wanted, len(bundle.items)))
    candidates, scores = lists.items[0], lists.scores[0].astype(np.float64)
    candidates, scores = candidates[candidates >= 0], scores[candidates >= 0]
    near = bundle.similarity.among(candidates) if together else np.zeros((len(candidates),) * 2, np.float32)
    found = []
    left = np.arange(len(candidates))
    for _ in range(alternatives):
        if not len(left):
            break
        chosen = left[_best_set(scores[left], near[np.ix_(left, left)], n, together)]
        found.append((candidates[chosen], scores[chosen].astype(np.float32)))
        left = np.setdiff1d(left, chosen)
    return found


def _best_set(scores: Values, near: FloatArray, n: int, together: float) -> list[int]:
    """Return the places of the set, best scores first."""
    n = min(n, len(scores))
    chosen = list(range(n))  # candidates come best first
    if n < 2 or not together:
        return chosen
    relevance = (scores - scores.min()) / max(float(scores.max() - scores.min()), 1e-12)
    pull = together * 2 / (n - 1) * near  # j's pull on the rest and the rest's on j
    for _ in range(_SWEEPS):
        moved = False
        for place in range(n):
            rest = chosen[:place] + chosen[place + 1 :]
            value = relevance + pull[:, rest].sum(1)
            value[rest] = -np.inf
            best = int(np.argmax(value))
            if value[best] > value[chosen[place]] + 1e-9:
                chosen[place], moved = best, True
        if not moved:
            break
    return sorted(chosen)
