"""Scoring terms of the re-ranking controls; the fields and their bounds are in `request.Reranking`.

A control that changes the scores of single items is one function in `TERMS`. Some stages need more than an item's
score: adventurousness also extends the history (`lists`); diversity, target shares, pins and the least share of new
items choose item by item (`greedy_selection`).
"""

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from recfusion.core.arrays import Csr, FloatArray, row_numbers
from recfusion.core.errors import InputError, choices
from recfusion.inference.bundle import Bundle
from recfusion.inference.request import Reranking, errors_about

_LEAST_SHOWN = 0.2  # the share of a user's taste that a history is taken to show at the highest adventurousness
_EXPONENT = 1.5  # of popularity at a weight of 1
_DELTA = 0.01  # where a score counts as near the median, in distances from the median to the best
_SMOOTH = 0.05  # chance that an item's category differs from the table: keeps logarithms finite
_MOST_NUMBERS = 100  # distinct whole numbers, such as years or sizes, that may be categories
_GUIDANCE = 0.3  # exponent of a wish of 1: more, and only items with the wished value are left
_BOOST = float(np.log(10))  # of a boost of 1: the item with the highest value against the one with the lowest
_DAY = 86400e6  # microseconds

Terms = Iterable[tuple[str, FloatArray]]  # the name that an explanation gives a term, and the term (items,)


def _popularity(bundle: Bundle, weight: float) -> Terms:
    yield "popularity", _EXPONENT * weight * _log_counts(bundle)


def _log_counts(bundle: Bundle) -> FloatArray:
    """Return log(n_j + mean n), centred, (items,)."""
    logs = np.log(bundle.counts + max(float(bundle.counts.mean()), 1e-12))
    return np.asarray(logs - logs.mean())


def _check_category(bundle: Bundle, column: str) -> None:
    """Raise if a column measures something: a wish is for one of few values."""
    values = bundle.items[column] if column in bundle.items.columns else None
    if values is None or not (values.dtype.is_numeric() or values.dtype.is_temporal()):
        return
    if not values.dtype.is_integer() or values.n_unique() > _MOST_NUMBERS:
        kind = "numbers" if values.dtype.is_numeric() else "dates"
        raise InputError(
            f"Expected a column of categories for a wish, and {column!r} holds {kind}: use a condition (--where) such "
            f"as {column} < {values.drop_nulls()[0] if values.count() else 1}."
        )


def _wish(bundle: Bundle, wish: Mapping[str, Mapping[str, float]]) -> Terms:
    for column, weights in wish.items():
        with errors_about(f"reranking.wish.{column}"):
            _check_category(bundle, column)
            categories = bundle.categories(column)
            numbers = [categories.number(value) for value in weights]
        for number, (value, weight) in zip(numbers, weights.items(), strict=True):
            smooth = _SMOOTH / len(categories.names) + (1 - _SMOOTH) * categories.chance(number)
            yield f"{column}: {value}", _GUIDANCE * weight * (np.log(smooth) - np.log(smooth.mean()))


def _boost(bundle: Bundle, boost: Mapping[str, float]) -> Terms:
    for column, weight in boost.items():
        with errors_about(f"reranking.boost.{column}"):
            ranks = bundle.cached(f"ranks {column}", partial(_ranks, bundle, column))
        yield f"{column} boost", _BOOST * weight * (ranks - 0.5)


def _ranks(bundle: Bundle, column: str) -> FloatArray:
    """Return the share of items with a smaller value, and half of those with an equal one; 1/2 for a missing value."""
    values = _column(bundle, column)
    if not (values.dtype.is_numeric() or values.dtype.is_temporal() or values.dtype == pl.Boolean):
        raise InputError(f"Expected a column of numbers or dates for a boost, and {column!r} holds texts: use a wish.")
    values = values.fill_nan(None) if values.dtype.is_float() else values
    ranks = (values.rank("average") - 0.5) / max(1, values.count())
    return ranks.fill_null(0.5).to_numpy()


def ages(bundle: Bundle, column: str) -> FloatArray:
    """Return the age of each item in days by a column of dates, from a cache; infinite for a missing date.

    Ages are counted back from the latest date that is not in the future: items with a later one have age 0.
    """
    with errors_about("reranking.new_column"):
        return bundle.cached(f"ages {column}", partial(_ages, bundle, column))


def _ages(bundle: Bundle, column: str) -> FloatArray:
    values = _column(bundle, column)
    if values.dtype.base_type() not in (pl.Date, pl.Datetime):
        raise InputError(f"Expected a column of dates, and {column!r} holds {values.dtype}: name another column.")
    days = values.cast(pl.Datetime("us")).dt.epoch("us").cast(pl.Float64) / _DAY
    today = time.time() * 1e6 / _DAY
    past = days.filter(days <= today).max()
    latest = today if past is None else float(past)  # type: ignore[arg-type]
    return np.maximum(latest - days.fill_null(-np.inf).to_numpy(), 0)


def _column(bundle: Bundle, column: str) -> pl.Series:
    if column not in bundle.items.columns:
        raise choices("column of the item table", column, bundle.items.columns)
    return bundle.items[column]


# The field of `Reranking` -> the function that returns its terms, which are added to the logarithm of relevance.
TERMS: dict[str, Callable[[Bundle, Any], Terms]] = {
    "adventurousness": lambda bundle, weight: [("adventurousness", -weight * _log_counts(bundle))],
    "popularity": _popularity,
    "wish": _wish,
    "boost": _boost,
}


def scoring_terms(reranking: Reranking, bundle: Bundle) -> dict[str, FloatArray]:
    """Return the terms (items,) of all controls that are set, by the names that explanations give them."""
    found: dict[str, FloatArray] = {}
    for field, terms in TERMS.items():
        if value := getattr(reranking, field):
            found |= {name: term.astype(np.float32) for name, term in terms(bundle, value) if np.any(term)}
    if reranking.new_boost and reranking.new_column is not None:
        halved = 0.5 ** (ages(bundle, reranking.new_column) / reranking.new_days)
        found["new"] = (_BOOST * reranking.new_boost * halved).astype(np.float32)
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
