"""A fit and what it came to: the one record of it, in memory, in reports, and as a line of an append-only store."""

import base64
import binascii
import json
import logging
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError, model_validator

from recfusion.core.arrays import IntArray
from recfusion.core.errors import InputError
from recfusion.core.jsonl import Lines, json_line
from recfusion.data.protocol import Protocol
from recfusion.evaluation.evaluate import PopularitySlices
from recfusion.evaluation.metrics import Values
from recfusion.models.registry import MODELS
from recfusion.models.settings import without_retired
from recfusion.training.epoch import Curve

log = logging.getLogger(__name__)
_LINES = Lines(b'{"recfusion_result":', "result", "its fit counts as not run")
ResultKey = tuple[str, str, str, str, str, int]  # protocol hash, label, model, source, settings, seed


@dataclass(frozen=True)
class Place:
    """A recommended item, and whether it was held out."""

    title: str
    hit: bool


@dataclass(frozen=True)
class Example:
    """What a model recommends to one test user."""

    number: int  # 1, 2, ...: the same user for every model of a split
    history: tuple[str, ...]  # titles, the rarest items first
    more: int  # items of the history beyond those
    places: tuple[Place, ...]
    user: str | None = None  # the user's id, where it may be shown


def _encoded(kind: str) -> Callable[[NDArray[Any]], str]:
    return lambda array: base64.b64encode(array.astype(kind).tobytes()).decode("ascii")


def _decoded(kind: str, wide: type[np.generic]) -> Callable[[object], object]:
    """Return the reader of such arrays; it rounds a fresh array too, so that a result equals what is read of it."""

    def decode(value: object) -> object:
        if isinstance(value, np.ndarray):
            return value.astype(kind).astype(wide)
        if not isinstance(value, str):
            return value
        try:
            found = np.frombuffer(base64.b64decode(value, validate=True), kind).astype(wide)
        except (binascii.Error, ValueError):
            raise ValueError(f"is no base64 of {kind} numbers") from None
        if not np.isfinite(found).all():
            raise ValueError("holds values that are not finite")
        return found

    return decode


def _none() -> IntArray:
    return np.zeros(0, np.int64)


# Arrays stand in JSON as base64 of little-endian four-byte numbers.
_Ints = Annotated[IntArray, BeforeValidator(_decoded("<i4", np.int64)), PlainSerializer(_encoded("<i4"))]
_Floats = Annotated[Values, BeforeValidator(_decoded("<f4", np.float64)), PlainSerializer(_encoded("<f4"))]


class Result(BaseModel):
    """One candidate fitted on one split and judged on the users that were kept from it."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, allow_inf_nan=False)

    recfusion_result: Literal[2] = 2  # the format's version; stands first in a line
    label: str  # what tables call it
    model: str  # its name in the registry, or that of its class
    title: str = ""  # what it is
    place: str = ""  # where its class is, of a model that is not ours
    source: str = ""  # a digest of that class's code
    seed: int = Field(ge=0)
    settings: dict[str, Any]  # as asked for: null where the fit was to choose
    chosen: dict[str, Any]  # what the fit chose of them
    parameters: int = Field(ge=0)
    trials: int | None = None  # of the fit's own search; null in results of version 1
    curve: Curve
    fit_seconds: float
    threads: int
    validation: dict[str, float]  # each metric's mean over the validation users
    # Of the test users; a trial of a search is never judged on them.
    score_seconds: float = 0.0
    overall: dict[str, float] = Field(default_factory=dict)  # metrics that have no value per user (coverage)
    slices: PopularitySlices = PopularitySlices((), (), {})
    users: _Ints = Field(default_factory=_none)  # rows of the prepared data, one per value below
    history_size: _Ints = Field(default_factory=_none)  # items that the model was shown of each
    test: dict[str, _Floats] = Field(default_factory=dict)  # metric -> one value per user
    examples: tuple[Example, ...] = ()  # lists of a few of them
    versions: dict[str, str]
    finished: datetime  # UTC
    protocol: Protocol

    @model_validator(mode="after")
    def _lengths_agree(self) -> Self:
        for name, values in {"history_size": self.history_size, **self.test}.items():
            if len(values) != len(self.users):
                raise ValueError(f"expected {len(self.users)} values of {name}, one per user, got {len(values)}")
        if len({len(part) for part in vars(self.curve).values()}) > 1:
            raise ValueError("expected a value for each epoch, got a curve of unequal lengths")
        found, wanted, slices = [*self.test, *self.overall], self.protocol.metrics, self.slices
        if len(self.users) and set(found) != set(wanted):
            raise ValueError(f"expected values of {', '.join(wanted)}, got {', '.join(found)}")
        if len(self.users) and {len(each) for each in (slices.items, slices.held_out, *slices.hits.values())} != {3}:
            raise ValueError("expected three groups of items in slices, got another number")
        return self

    @property
    def key(self) -> ResultKey:
        """What makes this result this one and no other."""
        return result_key(self.protocol, self.label, self.model, self.source, self.settings, self.seed)

    @property
    def epochs(self) -> int:
        """How many epochs the training took; 0 for a closed form."""
        return len(self.curve.epoch)

    def mean(self) -> dict[str, float]:
        """Return each metric's mean over the test users."""
        return {name: float(values.mean()) for name, values in self.test.items()} | self.overall

    def to_frame(self) -> pl.DataFrame:
        """Return a row per test user: its row in the data, the size of its history, and each metric."""
        return pl.DataFrame({"user": self.users, "history_size": self.history_size, **self.test})

    def __repr__(self) -> str:
        values = ", ".join(f"{name} {100 * mean:.2f}" for name, mean in self.mean().items())
        return f"Result({self.label}, split {self.seed}: {values})"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return self.to_frame()._repr_html_()


def result_key(
    protocol: Protocol, label: str, model: str, source: str, settings: Mapping[str, Any], seed: int
) -> ResultKey:
    """Return the key of a result; `settings` are the full values, so that no default can change unnoticed."""
    return protocol.hash, label, model, source, json.dumps(settings, sort_keys=True), seed


def upgraded(document: dict[str, Any]) -> dict[str, Any]:
    """Return a result of version 1 in the form of today.

    Searches had a limit of time besides that of trials, and examples named users by their ids.
    """
    examples = document.get("examples") or []
    if isinstance(examples, list) and all(isinstance(example, dict) for example in examples):
        examples = [{**example, "number": place, "user": None} for place, example in enumerate(examples, 1)]
    settings, chosen = (without_retired(document.get(part)) for part in ("settings", "chosen"))
    known = MODELS.get(str(document.get("model")))
    title = {"title": known.title} if known else {}
    return {**document, **title, "recfusion_result": 2, "examples": examples, "settings": settings, "chosen": chosen}


def package_versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    packages = {name: version(name) for name in ("recfusion", "numpy", "torch")}
    return packages | {"python": platform.python_version()}


def is_store(path: str | Path) -> bool:
    """Return whether a file begins as a store does; an empty one may become one."""
    return _LINES.begins(path)


def read_results(path: str | Path) -> list[Result]:
    """Return the results of a store in their order; a file that is not there is a store without any.

    A torn last line is left out and reported, and so are all but the first of several results with one key.
    """
    results: dict[ResultKey, Result] = {}
    for number, line in enumerate(_LINES.read(Path(path)), start=1):
        found = _parse(line, f"{path}, line {number}")
        if results.setdefault(found.key, found) is not found:
            log.warning(
                "Line %d of '%s' repeats %s, split %d: the first counts.", number, path, found.label, found.seed
            )
    return list(results.values())


def append_result(path: str | Path, result: Result) -> None:
    """Add a result to the store and return when it is on the disk; a torn last line is removed before."""
    _LINES.append(Path(path), json_line(result.model_dump(mode="json")), _parse)


def _parse(line: bytes, where: str) -> Result:
    document = _LINES.parse(line, where)
    if document.get("recfusion_result") == 1:
        document = upgraded(document)
    card = Protocol.parse(document.get("protocol"), where)
    try:
        return Result.model_validate({**document, "protocol": card})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InputError(
            f"Expected a result of format 2 in '{where}': {place or 'line'}: {first['msg']}; "
            "remove the line, or name another file."
        ) from None
