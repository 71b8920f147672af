"""The space of a search: what the model's own fields declare, or what a TOML file says in its place."""

import tomllib
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recfusion.core.errors import InputError, choices
from recfusion.models.base import Recommender, build, closed_values, search_space, settings_of
from recfusion.models.registry import entry, make_model
from recfusion.search.space import Choice, Interval, Space

_KEYS = ("low", "high", "log", "choices")


def tuning_space(model: str, given: Mapping[str, Any], file: Path | None = None) -> Space:
    """Return what is searched for a model of the registry: its declared ranges, or exactly what `file` names.

    Settings that are `given` are not searched.
    """
    kind = entry(model).load()
    idle = make_model(model, given).idle
    declared = {name: each for name, each in search_space(kind).items() if name not in idle}
    if file is None:
        space: dict[str, Interval | Choice] = {name: each for name, each in declared.items() if name not in given}
        if not space:
            left = " but those that are set" if declared else ""
            alone = not declared and "tune_trials" in settings_of(kind)
            itself = " (it searches on its own whenever it is fitted)" if alone else ""
            raise InputError(
                f"The search space of {model} is empty: it declares no range{left}{itself}; name one in a file with "
                "--space."
            )
        return space
    table = _table(file)
    space = {}
    for name, wanted in table.items():
        if name not in settings_of(kind):
            raise choices(f"setting of {model} in '{file}'", name, settings_of(kind) or ["(it has none)"])
        if name in given:
            raise InputError(f"The setting {name} is both set and to be searched ('{file}'): leave out one of them.")
        try:
            space[name] = _dimension(kind, model, name, wanted, declared.get(name))
        except InputError as error:
            raise InputError(f"In '{file}', {name}: {error}") from None
    if not space:
        raise InputError(f"The search space in '{file}' is empty: name at least one setting below [space].")
    return space


def space_document(space: Space) -> dict[str, Any]:
    """Return a space as JSON data, in the words of the TOML file."""
    return {
        name: {"choices": list(each.options)}
        if isinstance(each, Choice)
        else {"low": each.low, "high": each.high, "log": each.log, "integer": each.integer}
        for name, each in space.items()
    }


def holds(space: Space, settings: Mapping[str, Any]) -> bool:
    """Return whether settings lie in a space, so that a search over it can learn from them."""
    return all(name in settings and _holds(each, settings[name]) for name, each in space.items())


def _holds(dimension: Interval | Choice, value: Any) -> bool:
    if isinstance(dimension, Choice):
        return value in dimension.options
    return value is not None and dimension.low <= value <= dimension.high


def _table(file: Path) -> Mapping[str, Any]:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"Cannot read the space '{file}': {error.strerror or error}; check the name.") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"Expected TOML in '{file}', got something else: {error}.") from None
    unknown = next((key for key in document if key != "space"), None)
    if unknown is not None:
        raise choices(f"key in '{file}'", unknown, ["[space]"])
    table = document.get("space", {})
    if not isinstance(table, dict):
        raise InputError(f"Expected a table [space] in '{file}', got {table!r}.")
    return table


def _dimension(
    kind: type[Recommender], model: str, name: str, wanted: object, declared: Interval | Choice | None
) -> Interval | Choice:
    """Return one dimension; what is not said of it is as the model declares it."""
    if not isinstance(wanted, dict):
        raise InputError(f"expected {{low = ..., high = ...}} or {{choices = [...]}}, got {wanted!r}.")
    unknown = next((key for key in wanted if key not in _KEYS), None)
    if unknown is not None:
        raise choices("key", unknown, _KEYS)
    hint = typing.get_type_hints(kind)[name]
    if "choices" in wanted or closed_values(hint):
        return Choice(_options(kind, model, name, wanted, closed_values(hint)))
    usual = declared if isinstance(declared, Interval) else None
    low = _end(wanted.get("low", usual.low if usual else None))
    high = _end(wanted.get("high", usual.high if usual else None))
    for end in (low, high):
        _checked(kind, model, name, end)
    log = wanted.get("log", usual.log if usual else False)
    if not isinstance(log, bool) or low >= high or (log and low <= 0):
        raise InputError(
            f"expected low < high (with log = true, 0 < low), got low = {low}, high = {high}, log = {log}."
        )
    return Interval(low, high, log=log, integer=hint is int)


def _end(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"expected numbers for low and high, got {value!r}.")
    return value


def _options(
    kind: type[Recommender], model: str, name: str, wanted: Mapping[str, Any], every: tuple[Any, ...]
) -> tuple[Any, ...]:
    options = wanted.get("choices", list(every))
    if len(wanted) > ("choices" in wanted):
        raise InputError(f"expected either choices or low and high, got {dict(wanted)!r}.")
    if not isinstance(options, list) or not options:
        raise InputError(f"expected a list of at least one value, got {options!r}.")
    return tuple(_checked(kind, model, name, option) for option in options)


def _checked(kind: type[Recommender], model: str, name: str, value: Any) -> Any:
    """Return a value as the setting's own type; one that the model does not take is an error."""
    return getattr(build(kind, model, {**entry(model).settings, name: value}, text=False), name)
