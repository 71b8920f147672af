"""The space of a search: the ranges that the model's fields declare, or a TOML file instead."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from recfusion.core.errors import InputError, choices
from recfusion.core.files import read_toml
from recfusion.experiments.experiment_file import refusal
from recfusion.models.abilities import skipped_settings
from recfusion.models.base import Recommender
from recfusion.models.registry import Entry
from recfusion.models.settings import checked, closed_values, hints, search_space, settings_of
from recfusion.training.search_space import Choice, Interval, Space


class _Range(BaseModel):
    model_config = ConfigDict(extra="forbid")

    low: float | int | None = None
    high: float | int | None = None
    log: bool | None = None
    choices: list[Any] | None = Field(None, min_length=1)


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid")

    space: dict[str, _Range] = Field(min_length=1)


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
    for name, wanted in _read(file).items():
        if name not in settings_of(kind):
            raise choices(f"setting of {entry.name} in '{file}'", name, settings_of(kind) or ["(it has none)"], name)
        if name in given:
            raise InputError(f"The setting {name} is both given and in the space '{file}': remove one of them.", name)
        try:
            space[name] = _dimension(kind, entry.name, name, wanted, declared.get(name))
        except InputError as error:
            raise InputError(f"In '{file}', {name}: {error}", name) from None
    return space


def _read(file: Path) -> dict[str, _Range]:
    try:
        return _Document.model_validate(read_toml(file), strict=True).space
    except ValidationError as error:
        raise refusal(str(file), error, _Document) from None


def _dimension(
    kind: type[Recommender], model: str, name: str, wanted: _Range, declared: Interval | Choice | None
) -> Interval | Choice:
    """Return one dimension; missing keys are as the model declares them."""
    every = closed_values(hints(kind)[name])
    if wanted.choices is not None or every:
        if wanted.model_fields_set - {"choices"}:
            raise InputError("expected either choices or low and high, got both.")
        options = list(every) if wanted.choices is None else wanted.choices
        return Choice(tuple(checked(kind, name, option, called=model) for option in options))
    usual = declared if isinstance(declared, Interval) else None
    low, high = wanted.low, wanted.high
    if usual is not None:
        low, high = usual.low if low is None else low, usual.high if high is None else high
    if low is None or high is None:
        raise InputError(f"expected numbers for low and high, got low = {low}, high = {high}.")
    for end in (low, high):
        checked(kind, name, end, called=model)
    log = wanted.log if wanted.log is not None else usual is not None and usual.log
    if low >= high or (log and low <= 0):
        raise InputError(f"expected low < high (0 < low if log = true), got low = {low}, high = {high}, log = {log}.")
    return Interval(low, high, log=log, integer=hints(kind)[name] is int)
