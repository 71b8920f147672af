"""The space of a search: the ranges that the model's fields declare, or a TOML file instead."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recfusion.core.errors import InputError, choices
from recfusion.core.files import read_toml
from recfusion.models.abilities import skipped_settings
from recfusion.models.base import Recommender
from recfusion.models.registry import Entry
from recfusion.models.settings import checked, closed_values, hints, search_space, settings_of
from recfusion.training.search_space import Choice, Interval, Space

_KEYS = ("low", "high", "log", "choices")


def tuning_space(entry: Entry, given: Mapping[str, Any], file: Path | None = None) -> Space:
    """Return the search space of a model: its declared ranges, or exactly what `file` names.

    `given` settings are not searched, nor are self-tuned settings with a fixed value.
    """
    kind, model = entry.load(), entry.make(given)
    own = {name for name, each in settings_of(kind).items() if each.start is not None}
    fixed = {*given, *(name for name in own if getattr(model, name) is not None)}
    declared = {name: each for name, each in search_space(kind).items() if name not in skipped_settings(model)}
    if file is None:
        space: dict[str, Interval | Choice] = {name: each for name, each in declared.items() if name not in fixed}
        if not space:
            left = " except for settings with a fixed value" if declared else ""
            alone = not declared and "tune_trials" in settings_of(kind)
            itself = " (every fit tunes its settings)" if alone else ""
            raise InputError(
                f"Expected settings to search, but {entry.name} declares no range{left}{itself}: name some in a file "
                "with --space.",
                "space",
            )
        return space
    space = {}
    for name, wanted in _table(file).items():
        if name not in settings_of(kind):
            raise choices(f"setting of {entry.name} in '{file}'", name, settings_of(kind) or ["(it has none)"], name)
        if name in given:
            raise InputError(f"The setting {name} is both given and in the space '{file}': remove one of them.", name)
        try:
            space[name] = _dimension(kind, entry.name, name, wanted, declared.get(name))
        except InputError as error:
            raise InputError(f"In '{file}', {name}: {error}", name) from None
    if not space:
        raise InputError(f"Expected settings below [space] in '{file}', got none: name at least one.", "space")
    return space


def _table(file: Path) -> Mapping[str, Any]:
    document = read_toml(file)
    unknown = next((key for key in document if key != "space"), None)
    if unknown is not None:
        raise choices(f"key in '{file}'", unknown, ["[space]"])
    table = document.get("space", {})
    if not isinstance(table, dict):
        raise InputError(f"Expected a table [space] in '{file}', got {table!r}: correct it.", "space")
    return table


def _dimension(
    kind: type[Recommender], model: str, name: str, wanted: object, declared: Interval | Choice | None
) -> Interval | Choice:
    """Return one dimension; missing keys are as the model declares them."""
    if not isinstance(wanted, dict):
        raise InputError(f"expected {{low = ..., high = ...}} or {{choices = [...]}}, got {wanted!r}.")
    unknown = next((key for key in wanted if key not in _KEYS), None)
    if unknown is not None:
        raise choices("key", unknown, _KEYS)
    every = closed_values(hints(kind)[name])
    if "choices" in wanted or every:
        options = wanted.get("choices", list(every))
        if len(wanted) > ("choices" in wanted):
            raise InputError(f"expected either choices or low and high, got {dict(wanted)!r}.")
        if not isinstance(options, list) or not options:
            raise InputError(f"expected a list of at least one value, got {options!r}.")
        return Choice(tuple(checked(kind, name, option, called=model) for option in options))
    usual = declared if isinstance(declared, Interval) else None
    low, high = (_end(wanted.get(end, getattr(usual, end, None))) for end in ("low", "high"))
    for end in (low, high):
        checked(kind, name, end, called=model)
    log = wanted.get("log", usual.log if usual else False)
    if not isinstance(log, bool) or low >= high or (log and low <= 0):
        raise InputError(f"expected low < high (0 < low if log = true), got low = {low}, high = {high}, log = {log}.")
    return Interval(low, high, log=log, integer=hints(kind)[name] is int)


def _end(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"expected numbers for low and high, got {value!r}.")
    return value
