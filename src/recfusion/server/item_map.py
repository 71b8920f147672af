"""The document of `/map`: the place, name, number of users and category of each item on the map."""

import json
from typing import Any

import numpy as np

from recfusion.inference.bundle import COUNT, Bundle
from recfusion.server.compression import Packed
from recfusion.server.model_info import column

_COLUMNS, _VALUES = 3, 7  # columns to colour by, and the most frequent values of each that get a colour
_LONGEST = 80  # characters of a name
OLD = "This model folder has no map: train the model again to get one."
ALONE = "This model finds no items similar, so there is no map of them."


def packed_map(bundle: Bundle, label: str) -> Packed:
    """Return the map of a model, compressed, from a cache."""

    def make() -> Packed:
        text = json.dumps(item_map(bundle, label), ensure_ascii=False, separators=(",", ":"))
        return Packed(text.encode(), "application/json")

    return bundle.cached("map", make)


def item_map(bundle: Bundle, label: str) -> dict[str, Any]:
    """Return the items on the map, the most popular first, as lists of equal length."""
    layout = bundle.layout
    items, places = (np.zeros(0, np.int64), np.zeros((0, 2))) if layout is None else (layout.items, layout.places)
    order = np.argsort(-bundle.counts[items], kind="stable")
    items, places = items[order], places[order]
    names = [bundle.names[item] for item in items.tolist()]
    return {
        "model": label,
        "note": OLD if layout is None else None if len(items) else ALONE,
        "without": len(bundle.items) - len(items),
        "items": [item for item, _ in names],
        "names": [name[:_LONGEST] for _, name in names],
        "x": [round(x, 4) for x in places[:, 0].tolist()],
        "y": [round(y, 4) for y in places[:, 1].tolist()],
        "users": bundle.counts[items].tolist(),
        "columns": _columns(bundle, items),
    }


def _columns(bundle: Bundle, items: np.ndarray[Any, np.dtype[np.int64]]) -> list[dict[str, Any]]:
    """Return for some columns their most frequent values, and the number of each item's value; -1 for another one.

    An item with several values gets the rarest of them, which says most about it.
    """
    found: list[dict[str, Any]] = []
    for name in bundle.items.columns if len(items) else ():
        if name in ("item", COUNT) or len(found) == _COLUMNS:
            continue
        described = column(bundle, name)
        if described["kind"] != "categories" or len(described["values"]) < 2:
            continue
        values, categories = described["values"][:_VALUES], bundle.categories(name)
        has = categories.matrix[items][:, [categories.number(value) for value in values]].toarray() > 0
        last = len(values) - 1 - np.argmax(has[:, ::-1], axis=1)
        found.append({"name": name, "values": values, "of": np.where(has.any(1), last, -1).tolist()})
    return found
