"""How to run a comparison again: its document turned back into the experiment file that would make it."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from recfusion.core.errors import InputError
from recfusion.data.settings import Preparation, Source, SplitPlan
from recfusion.evaluation.metrics import DEFAULT_METRICS
from recfusion.models.base import setting_values
from recfusion.models.registry import make_model
from recfusion.report.document import Document

FILE = "again.toml"


def experiment_toml(document: Document) -> str | None:
    """Return an experiment of the same data, protocol, splits and models as TOML.

    What stands at its default is left out. None for a document that does not say enough: one of other models than
    the registry's, or without a protocol.
    """
    protocol, seeds = document.get("protocol") or {}, list(document.get("seeds") or ())
    if not {"source", "preparation", "plan", "metrics"} <= protocol.keys() or not seeds:
        return None
    tables: list[tuple[str, dict[str, Any]]] = [
        ("data", {"data": protocol["source"].get("data"), **_changed(protocol["source"], Source())}),
        ("preparation", _changed(protocol["preparation"], Preparation())),
        ("split", _changed(protocol["plan"], SplitPlan())),
        ("run", {"seeds": len(seeds) if seeds == list(range(len(seeds))) else seeds, **_metrics(protocol["metrics"])}),
    ]
    for label, entry in document["models"].items():
        model = entry.get("model", label)
        try:
            defaults = setting_values(make_model(model))
            make_model(model, _given(entry.get("settings") or {}))
        except InputError:
            return None
        values = {key: value for key, value in (entry.get("settings") or {}).items() if value != defaults[key]}
        named = {} if model == label else {"model": model}
        fewer = {} if entry.get("seeds", seeds) == seeds else {"seeds": entry["seeds"]}
        tables.append((f"models.{_key(label)}", {**named, **fewer, **_given(values)}))
    lines = [f"name = {_toml('again')}", *(line for name, values in tables for line in _table(name, values))]
    return "\n".join(lines) + "\n"


def _changed(values: Mapping[str, Any], default: BaseModel) -> dict[str, Any]:
    """Return what differs from a record's defaults; TOML has no null, and the word for no threshold is none."""
    changed = {key: value for key, value in values.items() if value != default.model_dump(mode="json").get(key)}
    if "min_rating" in changed and changed["min_rating"] is None:
        changed["min_rating"] = "none"
    return _given(changed)


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _metrics(names: list[str]) -> dict[str, list[str]]:
    return {} if list(names) == list(DEFAULT_METRICS) else {"metrics": list(names)}


def _table(name: str, values: Mapping[str, Any]) -> list[str]:
    if not values and not name.startswith("models."):
        return []
    return ["", f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in values.items())]


def _key(name: str) -> str:
    bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if bare else _toml(name)


def _toml(value: object) -> str:
    """Return a value as TOML: records in its own form, all else as in JSON."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(str(key))} = {_toml(each)}" for key, each in _given(value).items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    return json.dumps(value, ensure_ascii=False)
