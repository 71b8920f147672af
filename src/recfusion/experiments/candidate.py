"""Candidates: labelled models to fit and evaluate. Names and places of models become instances here."""

import json
import pickle
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from recfusion.core.errors import InputError, choices
from recfusion.core.pool import Job, RunTask
from recfusion.models.base import Recommender
from recfusion.models.class_loading import home_file, load_file
from recfusion.models.code_digest import code_digest
from recfusion.models.registry import Entry, find
from recfusion.models.settings import setting_values, settings_of

TUNE = "tune"  # a key beside the settings: trials of a search
_MOST_TRIALS = 10_000
_LABEL = r"\w[\w .,+()=/-]{0,59}"
Models: TypeAlias = Mapping[str, str | Recommender | Mapping[str, Any]] | Iterable[str]


@dataclass(frozen=True)
class Candidate:
    """A model to fit and evaluate, and its name in tables."""

    label: str
    entry: Entry
    model: Recommender
    tune: int = 0  # trials of a search for its settings on each split, for a model that does not search itself

    def __post_init__(self) -> None:
        check_label(self.label)
        _ = self.values

    @classmethod
    def of(cls, label: str, model: str | Recommender, settings: Mapping[str, Any] | None = None) -> "Candidate":
        """Return the candidate for an instance, or for a name or place with settings as values or text."""
        if isinstance(model, Recommender):
            return cls(label, find(model), model)
        entry = find(model)
        return cls(label, entry, entry.make(settings))

    @property
    def values(self) -> dict[str, Any]:
        """Every setting with its value, as in JSON; and `tune`, if settings are searched."""
        budget = {TUNE: self.tune} if self.tune else {}
        try:
            values: dict[str, Any] = json.loads(json.dumps(setting_values(self.model) | budget, allow_nan=False))
        except (TypeError, ValueError):
            raise InputError(
                f"Expected settings of {self.label} that JSON can hold (numbers, texts, booleans, lists, tables), "
                f"got {setting_values(self.model)}: change them."
            ) from None
        return values

    @property
    def code(self) -> str:
        """The digest of the code that fits it today."""
        return code_digest(self.entry, self.values)


def check_label(label: str) -> None:
    """Raise if a label cannot stand in a table."""
    if not isinstance(label, str) or re.fullmatch(_LABEL, label) is None:
        raise InputError(
            "Expected a label of at most 60 letters, digits, spaces and .,+()=/-_ that begins with a letter or "
            f"digit, got '{label}': give it another.",
            "label",
        )


def candidates(models: Models) -> list[Candidate]:
    """Return the candidates of a list of names, or of a mapping from labels.

    A label maps to an instance, a name or a place, or to the settings of the model with that name.
    """
    if isinstance(models, str | Recommender) or not isinstance(models, Iterable):
        raise InputError(f"Expected models as a list of names or a mapping from labels, got {models!r}.", "models")
    if not isinstance(models, Mapping):
        names = list(models)
        for name in names:
            if not isinstance(name, str):
                raise InputError(f"Expected names in a list of models, got {name!r}: use {{label: model}}.", "models")
        models = {name: name for name in unique(names)}
    found = [
        Candidate.of(label, label, model) if isinstance(model, Mapping) else Candidate.of(label, model)
        for label, model in models.items()
    ]
    if not found:
        raise InputError("Expected at least one model, got none: name one.", "models")
    return found


def unique(labels: list[str]) -> list[str]:
    """Return the labels; raise if one occurs twice."""
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise InputError(f"Expected each label once, got '{twice[0]}' twice: rename one (label=model).", "models")
    return labels


def parse_models(
    text: str, settings: Mapping[str, str], trials: int | None = None, tune: int | None = None
) -> list[Candidate]:
    """Return the candidates of a command line: "ease,mine=file.py:MyModel" and settings such as mine.l2.

    `trials` is the number of trials of the models that search their own settings, `tune` that of all models.
    """
    pairs = [_labelled(part.strip()) for part in text.split(",") if part.strip()]
    if not pairs:
        raise InputError(f"Expected at least one model in --models, got '{text}': name one.", "models")
    labels = unique([label for label, _ in pairs])
    given: dict[str, dict[str, str]] = {label: {} for label in labels}
    for key, value in settings.items():
        label, dot, setting = key.rpartition(".")
        if not dot:
            raise InputError(f"Expected --set MODEL.NAME=VALUE, got '{key}={value}': name the model.", "settings")
        if label not in given:
            raise choices("model in --set", label, labels, "settings")
        given[label][setting] = value
    return [_made(label, place, given[label], trials, tune) for label, place in pairs]


def parse_model(name: str, settings: Mapping[str, str], trials: int | None = None) -> Candidate:
    """Return the candidate of a command with one model: a name or place, optionally with LABEL= before it."""
    return _made(*_labelled(name), settings, trials)


def _made(
    label: str, place: str, settings: Mapping[str, Any], trials: int | None, tune: int | None = None
) -> Candidate:
    entry = find(place)
    if trials is not None and "tune_trials" in settings_of(entry.load()):
        settings = {"tune_trials": trials, **settings}
    return budgeted(label, entry, settings, tune)


def budgeted(label: str, entry: Entry, settings: Mapping[str, Any], tune: object, *, text: bool = True) -> Candidate:
    """Return a candidate with a budget of trials: its own search has it, or a search around its fit on each split."""
    if tune is not None and (not isinstance(tune, int) or isinstance(tune, bool) or not 1 <= tune <= _MOST_TRIALS):
        raise InputError(f"Expected tune to be a number of trials from 1 to {_MOST_TRIALS:,}, got {tune!r}.", TUNE)
    itself = "tune_trials" in settings_of(entry.load())
    if tune is not None and itself:
        settings = {"tune_trials": tune, **settings}
    return Candidate(label, entry, entry.make(settings, text=text), 0 if itself or tune is None else tune)


def _labelled(text: str) -> tuple[str, str]:
    """Return the label and the place of "label=place"; the default label is the name, or the class's name."""
    label, given, place = text.partition("=")
    if given:
        return label.strip(), place.strip()
    return (text.rpartition(":")[2] if ":" in text else text), text


@dataclass(frozen=True)
class PackedJob:
    """A job as worker processes get it: they import the files of other people's models before they unpickle it."""

    files: tuple[Path, ...]
    packed: bytes

    @classmethod
    def of(cls, job: Job, kinds: Iterable[type]) -> "PackedJob":
        """Pickle a job for other processes; `kinds` are the classes of its models."""
        files = {file for kind in kinds if (file := home_file(kind)) is not None}
        return cls(tuple(sorted(files)), pickle.dumps(job))

    def start(self) -> RunTask:
        for file in self.files:
            load_file(file)
        job: Job = pickle.loads(self.packed)
        return job.start()
