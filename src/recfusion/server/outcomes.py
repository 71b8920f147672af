"""Click-through, conversion and revenue of models and placements, with intervals that may be checked every day.

The intervals are asymptotic confidence sequences with a Gaussian mixture boundary (Waudby-Smith, Arbour, Sinha, Kennedy
and Ramdas, "Time-uniform central limit theory and asymptotic confidence sequences", Annals of Statistics 52(6), 2024):
with 95 % probability they contain the true value at all times at once, so an experiment may be watched and ended at any
time. Lists of one user are alike, so the standard error is that of a ratio over 256 buckets of users, assigned by a
hash; tests/server/test_outcomes.py simulates experiments with such users.
"""

from dataclasses import dataclass
from itertools import combinations
from typing import Literal, get_args

import numpy as np

from recfusion.core.arrays import FloatArray
from recfusion.server.event_store import Store
from recfusion.server.loaded_models import model_tag
from recfusion.server.placements import placement_tag

Measure = Literal["click-through", "conversion", "revenue"]
Group = Literal["model", "placement"]
_ALPHA = 0.05
_BEST_AT = 10_000  # lists, for which the intervals are narrowest
_RHO2 = (-2 * np.log(_ALPHA) + np.log(1 - 2 * np.log(_ALPHA))) / _BEST_AT
# The first matching event counts a list once; returns are subtracted from the revenue.
_QUERIES: dict[Measure, str] = {
    "click-through": "SELECT recommendation, 1 FROM events WHERE kind NOT IN ('skip', 'dislike', 'return')",
    "conversion": "SELECT recommendation, 1 FROM events WHERE kind IN ('purchase', 'have')",
    "revenue": "SELECT recommendation, sum(CASE kind WHEN 'return' THEN -1 ELSE 1 END * price * coalesce(quantity, 1)) "
    "FROM events WHERE kind IN ('purchase', 'have', 'return') AND price IS NOT NULL",
}


@dataclass(frozen=True)
class Outcome:
    """What the lists of a model or placement led to: lists with an event, or their revenue; the rate is per list."""

    measure: Measure
    name: str
    lists: int
    total: float
    rate: float
    ci95: tuple[float, float]


@dataclass(frozen=True)
class Difference:
    """The difference of two rates."""

    measure: Measure
    name: str
    than: str
    difference: float
    ci95: tuple[float, float]


def compare_outcomes(store: Store, by: Group = "model") -> tuple[list[Outcome], list[Difference]]:
    """Return each measure of each model or placement, and the differences of pairs; revenue if events have prices."""
    shown = store.rows(f"SELECT {by}, bucket, sum(lists) FROM shown GROUP BY {by}, bucket ORDER BY {by}, bucket")
    tag, digits = (model_tag, slice(0, 6)) if by == "model" else (placement_tag, slice(8, 14))
    outcomes: list[Outcome] = []
    differences: list[Difference] = []
    for measure in get_args(Measure):
        query = f"{_QUERIES[measure]} AND recommendation IS NOT NULL GROUP BY recommendation"
        values: dict[tuple[str, int], float] = {}
        for list_id, value in store.rows(query):
            key = (list_id[digits], int(list_id[6:8], 16))  # the model or placement, and the bucket of the user
            values[key] = values.get(key, 0.0) + value
        if measure == "revenue" and not values:
            continue
        own, errors = [], {}
        for label in dict.fromkeys(row[0] for row in shown):
            rows = [(lists, values.get((tag(label), bucket), 0.0)) for name, bucket, lists in shown if name == label]
            lists, totals = np.array(rows, np.float64).T  # (buckets,) each
            if measure != "revenue":
                totals = np.minimum(lists, totals)
            n, total = int(lists.sum()), float(totals.sum())
            errors[label] = error = _standard_error(lists, totals, is_share=measure != "revenue")
            interval = _interval(total / n, error, n, *((0.0, 1.0) if measure != "revenue" else ()))
            own.append(Outcome(measure, label, n, total, total / n, interval))
        outcomes += own
        for a, b in combinations(own, 2):
            error = float(np.hypot(errors[a.name], errors[b.name]))
            bounds = (-1.0, 1.0) if measure != "revenue" else ()
            interval = _interval(b.rate - a.rate, error, a.lists + b.lists, *bounds)
            differences.append(Difference(measure, b.name, a.name, b.rate - a.rate, interval))
    return outcomes, differences


def _standard_error(lists: FloatArray, totals: FloatArray, *, is_share: bool) -> float:
    """Return the standard error of sum(totals) / sum(lists) over buckets, for a share at least that of single lists."""
    n, rate, buckets = lists.sum(), totals.sum() / lists.sum(), len(lists)
    variance = buckets / max(1, buckets - 1) * float(((totals - rate * lists) ** 2).sum()) / n**2
    if is_share:
        smoothed = (totals.sum() + 1) / (n + 2)  # a model without any click may have had bad luck
        variance = max(variance, smoothed * (1 - smoothed) / n)
    return float(np.sqrt(variance))


def _interval(value: float, error: float, n: int, least: float = -np.inf, most: float = np.inf) -> tuple[float, float]:
    """Return value -+ error * sqrt(2 (n rho^2 + 1) / (n rho^2) * log(sqrt(n rho^2 + 1) / alpha)), within bounds."""
    information = n * _RHO2
    half = error * float(np.sqrt(2 * (information + 1) / information * np.log(np.sqrt(information + 1) / _ALPHA)))
    return max(least, value - half), min(most, value + half)
