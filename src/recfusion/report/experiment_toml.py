"""Convert a comparison back to an experiment file that runs it again."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from recfusion.core.errors import InputError
from recfusion.data.options import Preparation, Source, SplitPlan
from recfusion.data.signals import BINARY, asked_signals
from recfusion.evaluation.metrics import DEFAULT_METRICS
from recfusion.experiments.candidate import TUNE
from recfusion.experiments.comparison import Comparison
from recfusion.experiments.comparison_parts import ModelSummary
from recfusion.models.registry import make_model
from recfusion.models.settings import setting_values

FILE = "again.toml"


def experiment_toml(comparison: Comparison) -> str | None:
    """Return an experiment with the same data, protocol, splits and models as TOML; defaults are left out.

    None with rules of `compare`, or if a model has no name or place for a file: one of an older registry, or of a
    notebook.
    """
    if comparison.protocol.rules:  # an experiment file has no rules
        return None
    card, seeds = comparison.protocol, list(comparison.seeds)
    metrics = {} if card.metrics == DEFAULT_METRICS else {"metrics": list(card.metrics)}
    tables: list[tuple[str, dict[str, Any]]] = [
        ("data", {"data": card.source.data, **_changed(card.source, Source())}),
        ("preparation", _changed(card.preparation, Preparation())),
        ("split", _changed(card.plan, SplitPlan())),
        ("run", {"seeds": len(seeds) if seeds == list(range(len(seeds))) else seeds, **metrics}),
    ]
    for label, model in comparison.models.items():
        values = _settings(model)
        if values is None:
            return None
        name = model.place or model.model
        named = {} if name == label else {"model": name}
        fewer = {} if model.seeds == comparison.seeds else {"seeds": list(model.seeds)}
        budget = {TUNE: model.settings[TUNE]} if TUNE in model.settings else {}
        tables.append((f"models.{_key(label)}", {**named, **fewer, **budget, **_given(values)}))
    asked = asked_signals(card.signals.used)
    signals = [] if asked == BINARY else [f"signals = {_toml(asked)}"]
    lines = ['name = "again"', *signals]
    for name, values in tables:
        if values or name.startswith("models."):
            lines += ["", f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"


def _settings(model: ModelSummary) -> dict[str, Any] | None:
    """Return the settings to write: all settings for a class that is not ours, because it is not imported here."""
    settings = {key: value for key, value in model.settings.items() if key != TUNE}
    if model.place:
        where, _, name = model.place.rpartition(":")
        return settings if name.isidentifier() and where != "__main__" else None
    try:
        defaults = setting_values(make_model(model.model))
        make_model(model.model, _given(settings))
    except InputError:
        return None
    return {key: value for key, value in settings.items() if value != defaults[key]}


def _changed(record: BaseModel, default: BaseModel) -> dict[str, Any]:
    """Return the values that differ from a record's defaults; TOML has no null, so no threshold is "none"."""
    usual = default.model_dump(mode="json")
    changed = {key: value for key, value in record.model_dump(mode="json").items() if value != usual[key]}
    if "min_rating" in changed and changed["min_rating"] is None:
        changed["min_rating"] = "none"
    return _given(changed)


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _key(name: str) -> str:
    bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if bare else _toml(name)


def _toml(value: object) -> str:
    """Return a value as TOML: inline tables, and all else as in JSON."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(str(key))} = {_toml(each)}" for key, each in _given(value).items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    return json.dumps(value, ensure_ascii=False)
