"""What a file of events tells afterwards: rows for retraining, and how often lists were clicked."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from recfusion.core.rng import make_rng
from recfusion.server.event_store import Store
from recfusion.server.loaded_models import model_tag

_DRAWS = 4000
_SCHEMA: dict[str, type[pl.DataType]] = {"user": pl.String, "item": pl.String, "time": pl.Int64}


def rows_for_training(store: Store) -> pl.DataFrame:
    """Return user, item and time of what users have by the events: what was given back is left out."""
    told = (
        "SELECT user, item, kind, cast(time AS INTEGER) FROM events "
        "WHERE id IN (SELECT max(id) FROM events WHERE kind != 'click' GROUP BY user, item) ORDER BY id"
    )
    rows = [(user, item, time) for user, item, kind, time in store.rows(told) if kind == "have"]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def every_row(store: Store) -> pl.DataFrame:
    """Return all events as they were recorded."""
    told = "SELECT user, item, cast(time AS INTEGER), kind, recommendation FROM events ORDER BY id"
    more: dict[str, type[pl.DataType]] = {"kind": pl.String, "recommendation_id": pl.String}
    return pl.DataFrame(store.rows(told), schema=_SCHEMA | more, orient="row")


@dataclass(frozen=True)
class ClickThrough:
    """How many of a model's lists led to an event, with a 95 % interval over buckets of users."""

    model: str
    lists: int
    clicked: int
    rate: float
    ci95: tuple[float, float]


@dataclass(frozen=True)
class Difference:
    """How much more often the lists of one model led to an event than those of another."""

    model: str
    than: str
    difference: float
    ci95: tuple[float, float]


def click_through(store: Store) -> tuple[list[ClickThrough], list[Difference]]:
    """Return the click-through of each model, and of each pair of models the difference.

    A list counts once, however many events name it. Users lie in 256 buckets, by a hash; drawing buckets with
    replacement says how much the rates depend on who happened to come, since lists of one user are alike.
    """
    shown = store.rows("SELECT model, bucket, sum(lists) FROM shown GROUP BY model, bucket ORDER BY model, bucket")
    told = "SELECT DISTINCT recommendation FROM events WHERE recommendation IS NOT NULL"
    clicked: dict[tuple[str, int], int] = {}
    for (one,) in store.rows(told):
        key = one[:6], int(one[6:8], 16)
        clicked[key] = clicked.get(key, 0) + 1
    rng = make_rng(0)
    rates, drawn = [], {}
    for model in dict.fromkeys(row[0] for row in shown):
        own = [
            (lists, min(lists, clicked.get((model_tag(model), bucket), 0))) for m, bucket, lists in shown if m == model
        ]
        lists, clicks = np.array(own).T  # (buckets,) each
        draws = rng.integers(0, len(own), (_DRAWS, len(own)))
        drawn[model] = clicks[draws].sum(1) / lists[draws].sum(1)
        total, hits = int(lists.sum()), int(clicks.sum())
        rates.append(ClickThrough(model, total, hits, hits / total, _interval(drawn[model])))
    pairs = [(a, b) for place, a in enumerate(rates) for b in rates[place + 1 :]]
    differences = [
        Difference(b.model, a.model, b.rate - a.rate, _interval(drawn[b.model] - drawn[a.model])) for a, b in pairs
    ]
    return rates, differences


def _interval(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> tuple[float, float]:
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)
