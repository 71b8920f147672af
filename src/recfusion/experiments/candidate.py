"""Candidates: models under labels of their own. Here, and nowhere below, names and places become instances."""

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
from recfusion.models.registry import Entry, find
from recfusion.models.settings import setting_values, settings_of

_LABEL = r"\w[\w .,+()=/-]{0,59}"
Models: TypeAlias = Mapping[str, str | Recommender | Mapping[str, Any]] | Iterable[str]


@dataclass(frozen=True)
class Candidate:
    """A model that is to be fitted and judged: an instance, ours or anybody's, and what tables call it."""

    label: str
    entry: Entry
    model: Recommender

    def __post_init__(self) -> None:
        if not isinstance(self.label, str) or re.fullmatch(_LABEL, self.label) is None:
            raise InputError(
                "Expected a label of at most 60 letters, digits, spaces and .,+()=/-_ that begins with a letter or "
                f"digit, got '{self.label}'."
            )
        _ = self.values

    @classmethod
    def of(cls, label: str, model: str | Recommender, settings: Mapping[str, Any] | None = None) -> "Candidate":
        """Return the candidate of an instance, or of a name or place with settings given as values or text."""
        if isinstance(model, Recommender):
            return cls(label, find(model), model)
        entry = find(model)
        return cls(label, entry, entry.make(settings))

    @property
    def values(self) -> dict[str, Any]:
        """Every setting with its value, as JSON holds it."""
        try:
            values: dict[str, Any] = json.loads(json.dumps(setting_values(self.model), allow_nan=False))
        except (TypeError, ValueError):
            raise InputError(
                f"Expected settings of {self.label} that are numbers, texts, truth values, lists or tables of them, "
                f"got {setting_values(self.model)}."
            ) from None
        return values


def candidates(models: Models) -> list[Candidate]:
    """Return the candidates of a mapping or list.

    A mapping takes a label to an instance, a name or a place, or to the settings of the model that has that name.
    """
    if isinstance(models, str | Recommender) or not isinstance(models, Iterable):
        raise InputError(f"Expected models as a list of names or a mapping from labels, got {models!r}.")
    if not isinstance(models, Mapping):
        names = list(models)
        for name in names:
            if not isinstance(name, str):
                raise InputError(f"Expected names in a list of models, got {name!r}: give it a label, as in a mapping.")
        models = {name: name for name in unique(names)}
    found = [
        Candidate.of(label, label, model) if isinstance(model, Mapping) else Candidate.of(label, model)
        for label, model in models.items()
    ]
    if not found:
        raise InputError("Expected at least one model, got none.")
    return found


def unique(labels: list[str]) -> list[str]:
    """Return the labels; one that stands there twice is an error."""
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise InputError(f"Expected each label once, got '{twice[0]}' twice: give one of them another (label=model).")
    return labels


def parse_models(text: str, settings: Mapping[str, str], trials: int | None = None) -> list[Candidate]:
    """Return the candidates of a command line: "ease,mine=file.py:MyModel" and settings such as mine.l2.

    `trials` is the length of the models' own searches, for those that have one.
    """
    pairs = [_labelled(part.strip()) for part in text.split(",") if part.strip()]
    if not pairs:
        raise InputError(f"Expected at least one model in --models, got '{text}'.")
    labels = unique([label for label, _ in pairs])
    given: dict[str, dict[str, str]] = {label: {} for label in labels}
    for key, value in settings.items():
        label, dot, setting = key.rpartition(".")
        if not dot:
            raise InputError(f"Expected --set MODEL.NAME=VALUE, got '{key}={value}': say which model it is for.")
        if label not in given:
            raise choices("model in --set", label, labels)
        given[label][setting] = value
    return [Candidate(label, *_made(find(place), given[label], trials)) for label, place in pairs]


def make_one(name: str, settings: Mapping[str, str], trials: int | None = None) -> Candidate:
    """Return the one candidate of a command: a name or place, perhaps with a label before it."""
    label, place = _labelled(name)
    return Candidate(label, *_made(find(place), settings, trials))


def _made(entry: Entry, settings: Mapping[str, str], trials: int | None) -> tuple[Entry, Recommender]:
    searches = trials is not None and "tune_trials" in settings_of(entry.load())
    return entry, entry.make({**({"tune_trials": trials} if searches else {}), **settings})


def _labelled(text: str) -> tuple[str, str]:
    """Return the label and the place of "label=place", or a label made of the place: a class's own name."""
    label, given, place = text.partition("=")
    if given:
        return label.strip(), place.strip()
    return (text.rpartition(":")[2] if ":" in text else text), text


@dataclass(frozen=True)
class Packed:
    """A job as worker processes get it: they load the files of other people's models before they unpack it."""

    files: tuple[Path, ...]
    packed: bytes

    @classmethod
    def of(cls, job: Job, kinds: Iterable[type]) -> "Packed":
        """Return a job packed for its way to other processes; `kinds` are the classes of its models."""
        files = {file for kind in kinds if (file := home_file(kind)) is not None}
        return cls(tuple(sorted(files)), pickle.dumps(job))

    def start(self) -> RunTask:
        for file in self.files:
            load_file(file)
        job: Job = pickle.loads(self.packed)
        return job.start()
