"""The document of `/model`: the models, the columns to filter by and the re-ranking controls."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from recfusion.core.errors import InputError
from recfusion.data.column_roles import Role
from recfusion.inference.bundle import COUNT, Bundle
from recfusion.inference.bundle_files import CONTROL
from recfusion.inference.request import describe_controls
from recfusion.models.abilities import keeps_histories
from recfusion.server.loaded_models import LoadedModel, LoadedModels, json_values

_VALUES = 50  # most frequent values of a column that are listed
_CATEGORIES, _LONGEST = 500, 100  # a column with more different values, or longer ones, is free text
_SHOWN: tuple[Role, ...] = ("title", "image", "link", "date", "text")  # columns to look at, not to choose from


def describe(models: LoadedModels, image_origins: Sequence[str] = ()) -> dict[str, Any]:
    """Return the models, the columns of the item table with their roles, and the re-ranking controls."""
    bundle = models.main.bundle
    return {
        "models": [_model(one) for one in models.every],
        "share": models.share,
        "items": len(bundle.items),
        "columns": [column(bundle, name) for name in bundle.items.columns if name not in ("item", COUNT)],
        "roles": bundle.roles,
        "image_origins": list(image_origins),
        "controls": describe_controls(),
    }


def _model(model: LoadedModel) -> dict[str, Any]:
    bundle = model.bundle
    protocol = bundle.protocol
    return {
        "name": model.label,
        "model": bundle.name,
        "title": bundle.entry.title,
        "version": model.version,
        "age_seconds": round(model.age),
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
            value | {"judged_on": users, "metric": metric, "words": words(metric, value["mean"], users)}
            for users, metrics in bundle.metrics.items()
            if not users.startswith(CONTROL)
            for metric, value in metrics.items()
        ],
        "costs": {
            group.removeprefix(CONTROL): [
                {"at": float(at), "ndcg": value["mean"], "popularity": value.get("popularity")}
                for at, value in points.items()
            ]
            for group, points in bundle.metrics.items()
            if group.startswith(CONTROL)
        },
        "licence": protocol.licence,
    }


def words(metric: str, mean: float, users: str) -> str:
    """Return a result in words for readers who do not know the metric."""
    kind, _, length = metric.partition("@")
    if users == "against":
        more = "more" if mean >= 0 else "less"
        return f"{abs(100 * mean):.1f} points {more} than the model before it, in {metric}."
    if kind in ("recall", "calibrated_recall"):
        return f"A list of {length} has {round(100 * mean)} in 100 of the hidden items that fit into it."
    if kind == "ndcg":
        return f"Its order is worth {round(100 * mean)} in 100 of a perfect one, over the first {length} places."
    return f"{metric}: {mean:.3f}."


def column(bundle: Bundle, name: str) -> dict[str, Any]:
    """Return the kind of a column (number, boolean, categories or text), its values and its range."""
    series = bundle.items[name]
    text: dict[str, Any] = {"name": name, "kind": "text", "values": [], "min": None, "max": None}
    if series.dtype == pl.Boolean:
        return text | {"kind": "boolean", "values": [True, False]}
    if series.dtype.is_numeric():
        low, high = json_values([series.min(), series.max()])
        return text | {"kind": "number", "min": low, "max": high}
    if series.dtype.is_temporal() or name in [bundle.roles.get(role) for role in _SHOWN]:
        return text
    try:
        found = bundle.categories(name)
    except (InputError, pl.exceptions.PolarsError):
        return text
    if not 0 < len(found.names) <= min(_CATEGORIES, max(2, len(series) // 2)) or max(map(len, found.names)) > _LONGEST:
        return text
    counts = found.matrix.sum(axis=0)
    order = sorted(range(len(found.names)), key=lambda place: (-counts[place], found.names[place]))
    return text | {"kind": "categories", "values": [found.names[place] for place in order[:_VALUES]]}
