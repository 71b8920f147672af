"""Reports from stored events: rows for retraining, and click-through rates of the models."""

from collections import Counter
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import polars as pl

from recfusion.core.rng import make_rng
from recfusion.server.event_store import Store
from recfusion.server.loaded_models import model_tag

_DRAWS = 4000
_SCHEMA: dict[str, type[pl.DataType]] = {"user": pl.String, "item": pl.String, "time": pl.Int64}


def rows_for_training(store: Store) -> pl.DataFrame:
    """Return user, item and time of the items that users have by the events, without those given back."""
    query = (
        "SELECT user, item, kind, cast(time AS INTEGER) FROM events "
        "WHERE id IN (SELECT max(id) FROM events WHERE kind != 'click' GROUP BY user, item) ORDER BY id"
    )
    rows = [(user, item, time) for user, item, kind, time in store.rows(query) if kind == "have"]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def all_rows(store: Store) -> pl.DataFrame:
    """Return all events as they were recorded."""
    query = "SELECT user, item, cast(time AS INTEGER), kind, recommendation FROM events ORDER BY id"
    more: dict[str, type[pl.DataType]] = {"kind": pl.String, "recommendation_id": pl.String}
    return pl.DataFrame(store.rows(query), schema=_SCHEMA | more, orient="row")


@dataclass(frozen=True)
class ClickThrough:
    """The share of a model's lists that led to an event, with a 95 % interval over buckets of users."""

    model: str
    lists: int
    clicked: int
    rate: float
    ci95: tuple[float, float]


@dataclass(frozen=True)
class Difference:
    """The difference of two models' click-through rates."""

    model: str
    than: str
    difference: float
    ci95: tuple[float, float]


def click_through(store: Store) -> tuple[list[ClickThrough], list[Difference]]:
    """Return the click-through rate of each model and the difference of each pair of models.

    A list counts once, however many events refer to it. Lists of one user are alike, so the intervals come from a
    bootstrap over 256 buckets of users, assigned by a hash.
    """
    shown = store.rows("SELECT model, bucket, sum(lists) FROM shown GROUP BY model, bucket ORDER BY model, bucket")
    query = "SELECT DISTINCT recommendation FROM events WHERE recommendation IS NOT NULL"
    clicked = Counter((list_id[:6], int(list_id[6:8], 16)) for (list_id,) in store.rows(query))
    rng = make_rng(0)
    rates, drawn = [], {}
    for model in dict.fromkeys(row[0] for row in shown):
        tag = model_tag(model)
        counts = [(lists, min(lists, clicked[tag, bucket])) for name, bucket, lists in shown if name == model]
        lists, clicks = np.array(counts).T  # (buckets,) each
        draws = rng.integers(0, len(counts), (_DRAWS, len(counts)))
        drawn[model] = clicks[draws].sum(1) / lists[draws].sum(1)
        total, hits = int(lists.sum()), int(clicks.sum())
        rates.append(ClickThrough(model, total, hits, hits / total, _interval(drawn[model])))
    differences = [
        Difference(b.model, a.model, b.rate - a.rate, _interval(drawn[b.model] - drawn[a.model]))
        for a, b in combinations(rates, 2)
    ]
    return rates, differences


def _interval(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> tuple[float, float]:
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)
