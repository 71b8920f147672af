"""Scoring terms of the re-ranking controls; the fields and their bounds are in `request.Reranking`.

A control that changes the scores of single items is one function in `TERMS`. Three stages need more than an item's
score: adventurousness extends the history (`lists`); diversity and target shares choose item by item
(`greedy_selection`).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from recfusion.core.arrays import Csr, FloatArray, row_numbers
from recfusion.inference.bundle import Bundle
from recfusion.inference.request import Reranking, errors_about

_LEAST_SHOWN = 0.2  # the share of a user's taste that a history is taken to show at the highest adventurousness
_EXPONENT = 1.5  # of popularity at a weight of 1
_DELTA = 0.01  # where a score counts as near the median, in distances from the median to the best
_SMOOTH = 0.05  # chance that an item's category differs from the table: keeps logarithms finite
_GUIDANCE = 0.3  # exponent of a wish of 1: more, and only items with the wished value are left

Terms = Iterable[tuple[str, FloatArray]]  # the name that an explanation gives a term, and the term (items,)


def _popularity(bundle: Bundle, weight: float) -> Terms:
    logs = np.log(bundle.counts + max(float(bundle.counts.mean()), 1e-12))
    yield "popularity", _EXPONENT * weight * (logs - logs.mean())


def _wish(bundle: Bundle, wish: Mapping[str, Mapping[str, float]]) -> Terms:
    for column, weights in wish.items():
        with errors_about(f"reranking.wish.{column}"):
            categories = bundle.categories(column)
            numbers = [categories.number(value) for value in weights]
        for number, (value, weight) in zip(numbers, weights.items(), strict=True):
            smooth = _SMOOTH / len(categories.names) + (1 - _SMOOTH) * categories.chance(number)
            yield f"{column}: {value}", _GUIDANCE * weight * (np.log(smooth) - np.log(smooth.mean()))


# The field of `Reranking` -> the function that returns its terms, which are added to the logarithm of relevance.
TERMS: dict[str, Callable[[Bundle, Any], Terms]] = {
    "popularity": _popularity,
    "wish": _wish,
}


def scoring_terms(reranking: Reranking, bundle: Bundle) -> dict[str, FloatArray]:
    """Return the terms (items,) of all controls that are set, by the names that explanations give them."""
    found: dict[str, FloatArray] = {}
    for field, terms in TERMS.items():
        if value := getattr(reranking, field):
            found |= {name: term.astype(np.float32) for name, term in terms(bundle, value) if np.any(term)}
    return found


def n_assumed_items(lengths: FloatArray, adventurousness: float) -> FloatArray:
    """Return n (1 - a) / a, rounded, for histories of n items: the number of items that extend a history."""
    a = 1 - (1 - _LEAST_SHOWN) * adventurousness
    return np.round(lengths * (1 - a) / a)


def log_relevance(scores: FloatArray, seen: Csr) -> FloatArray:
    """Return the logarithm of how far scores lie above the user's median, the best unseen item at 0; (users, items).

    In t = (score - median) / (best - median) it is log((t + root(t^2 + d^2)) / 2), d = .01: log t for items worth
    recommending, and still in order below the median. -inf stays.
    """
    unseen = scores.copy()
    unseen[row_numbers(seen), seen.indices] = -np.inf
    best = unseen.max(1, keepdims=True)
    middle = _median(scores)
    lowest = np.min(scores, axis=1, keepdims=True, where=np.isfinite(scores), initial=np.inf)
    middle = np.where(np.isfinite(middle), middle, np.where(np.isfinite(lowest), lowest, 0))
    t = (scores - middle) / np.maximum(np.where(np.isfinite(best), best - middle, 1), 1e-12)
    far = np.abs(t) + np.hypot(t, _DELTA)
    with np.errstate(divide="ignore"):
        return np.log(np.where(t > 0, far, _DELTA**2 / far) / 2).astype(np.float32)


def _median(scores: FloatArray) -> FloatArray:
    """Return the median of each row, (users, 1), by one selection: numpy's own takes ten times as long."""
    half = scores.shape[1] // 2
    parted = np.partition(scores, half, axis=1)
    upper = parted[:, half : half + 1]
    lower = parted[:, :half].max(axis=1, keepdims=True) if scores.shape[1] % 2 == 0 else upper
    return ((upper + lower) / 2).astype(np.float32)
