"""What a service says of its models and of the columns that lists can be filtered by."""

from typing import Any

import polars as pl

from recfusion.core.errors import InputError
from recfusion.inference.bundle import COUNT, Bundle
from recfusion.inference.single import plain_values
from recfusion.models.abilities import keeps_histories
from recfusion.server.loaded_models import Served, Shelf, age

_VALUES = 50  # of a column that are listed
_CATEGORIES = 500  # more different values, and a column is taken for free text
_GRANTED = "adventurousness"  # takes items for granted, of which a model that reads grades or times knows neither
KNOBS: dict[str, dict[str, float]] = {
    "adventurousness": {"min": 0, "max": 1, "rest": 0},
    "popularity": {"min": -1, "max": 1, "rest": 0},
    "diversity": {"min": 0, "max": 1, "rest": 0},
    "calibration": {"min": 0, "max": 1, "rest": 0.9},
    "wish": {"min": -1, "max": 1, "rest": 0},
    "shares": {"min": 0, "max": 1, "rest": 0},
}


def describe(shelf: Shelf) -> dict[str, Any]:
    """Return the models, the item table's columns and the knobs with their ranges."""
    bundle = shelf.main.bundle
    return {
        "models": [_model(one) for one in shelf.every],
        "share": shelf.share,
        "items": len(bundle.items),
        "columns": [column(bundle, name) for name in bundle.items.columns if name not in ("item", COUNT)],
        "knobs": {
            name: told for name, told in KNOBS.items() if name != "adventurousness" or not shelf.main.reads_entries
        },
    }


def _model(served: Served) -> dict[str, Any]:
    bundle = served.bundle
    protocol = bundle.protocol
    return {
        "name": served.label,
        "model": bundle.name,
        "title": bundle.entry.title,
        "version": served.version,
        "age_seconds": round(age(served)),
        "trained_on": {
            "data": protocol.name,
            "users": bundle.train_users,
            "items": len(bundle.items),
            "interactions": protocol.interactions,
            "all_users": bundle.all_users,
            "preparation": list(protocol.assumptions()),
        },
        "holds_histories": keeps_histories(bundle.model),
        "fit_seconds": round(bundle.fit_seconds, 1),
        "metrics": [
            told | {"judged_on": who, "metric": metric, "words": words(metric, told["mean"], who)}
            for who, own in bundle.metrics.items()
            for metric, told in own.items()
        ],
        "licence": protocol.licence,
    }


def words(metric: str, mean: float, who: str) -> str:
    """Return a result in words for people who do not know the metric."""
    kind, _, length = metric.partition("@")
    if who == "against":
        more = "more" if mean >= 0 else "less"
        return f"{abs(100 * mean):.1f} points {more} than the model before it, in {metric}."
    if kind in ("recall", "calibrated_recall"):
        return (
            f"Of the items that were hidden from it, {round(100 * mean)} in 100 of those that a list of {length} can "
            "hold are in it."
        )
    if kind == "ndcg":
        return f"Its order is worth {round(100 * mean)} in 100 of a perfect one, over the first {length} places."
    return f"{metric}: {mean:.3f}."


def column(bundle: Bundle, name: str) -> dict[str, Any]:
    """Return what a column of the item table holds: number, boolean, categories or text."""
    series = bundle.items[name]
    kind = series.dtype
    if kind == pl.Boolean:
        return {"name": name, "kind": "boolean", "values": [True, False], "min": None, "max": None}
    if kind.is_numeric():
        low, high = plain_values([series.min(), series.max()])
        return {"name": name, "kind": "number", "values": [], "min": low, "max": high}
    text: dict[str, Any] = {"name": name, "kind": "text", "values": [], "min": None, "max": None}
    try:
        found = bundle.categories(name)
    except (InputError, pl.exceptions.PolarsError):
        return text
    if not 0 < len(found.names) <= min(_CATEGORIES, max(2, len(series) // 2)):
        return text
    counts = found.matrix.sum(axis=0)
    order = sorted(range(len(found.names)), key=lambda place: (-counts[place], found.names[place]))
    values = [found.names[place] for place in order[:_VALUES]]
    return text | {"kind": "categories", "values": values}
