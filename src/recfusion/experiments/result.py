"""The result of one fit: a record in memory and in reports, and a line of an append-only store."""

import base64
import binascii
import json
import logging
import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator

from recfusion.core.arrays import IntArray
from recfusion.core.errors import validating
from recfusion.core.extras import is_installed
from recfusion.core.jsonl import JsonLines, json_line
from recfusion.data.interactions import Interactions
from recfusion.data.protocol import Protocol, check_same_data
from recfusion.evaluation.evaluate import PopularitySlices
from recfusion.evaluation.metrics import Values
from recfusion.models.code_digest import CodeState, code_digest, code_state
from recfusion.models.registry import MODELS
from recfusion.training.epoch import Curve

log = logging.getLogger(__name__)
_LINES = JsonLines(b'{"recfusion_result":', "result", "its fit counts as not run")
Seeds: TypeAlias = tuple[int, ...]
ResultKey: TypeAlias = tuple[str, str, str, str, str, int]  # protocol hash, label, model, source, settings, seed
_ADDED = {"min_improvement": 0.0}  # settings that older results lack, with the value that changes nothing


@dataclass(frozen=True)
class ExampleItem:
    """A recommended item, and whether it was held out."""

    title: str
    hit: bool


@dataclass(frozen=True)
class Example:
    """The list that a model recommends to one test user."""

    number: int  # 1, 2, ...: the same user for every model of a split
    history: tuple[str, ...]  # titles, the rarest items first
    more: int  # number of further items in the history
    places: tuple[ExampleItem, ...]
    user: str | None = None  # the user's id, if it may be shown


def _encoded(kind: str) -> Callable[[NDArray[Any]], str]:
    return lambda array: base64.b64encode(array.astype(kind).tobytes()).decode("ascii")


def _decoded(kind: str, wide: type[np.generic]) -> Callable[[object], object]:
    """Return the reader of such arrays; it rounds fresh arrays too, so that a result equals its stored line."""

    def decode(value: object) -> object:
        if isinstance(value, np.ndarray):
            return value.astype(kind).astype(wide)
        if not isinstance(value, str):
            return value
        try:
            values = np.frombuffer(base64.b64decode(value, validate=True), kind).astype(wide)
        except (binascii.Error, ValueError):
            raise ValueError(f"expected base64 of {kind} numbers") from None
        if not np.isfinite(values).all():
            raise ValueError("expected finite values")
        return values

    return decode


_NONE: IntArray = np.zeros(0, np.int64)
# JSON holds arrays as base64 of little-endian four-byte numbers.
_Ints = Annotated[IntArray, BeforeValidator(_decoded("<i4", np.int64)), PlainSerializer(_encoded("<i4"))]
_Floats = Annotated[Values, BeforeValidator(_decoded("<f4", np.float64)), PlainSerializer(_encoded("<f4"))]


class Result(BaseModel):
    """One candidate, fitted on the training users of one split and evaluated on its test users."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, allow_inf_nan=False)

    recfusion_result: Literal[2] = 2  # version of the format; must be first in a line
    label: str  # the name in tables
    model: str  # the name in the registry, or that of the class
    title: str = ""
    place: str = ""  # of a class that is not ours: "file.py:Class" or "package.module:Class"
    source: str = ""  # digest of the file of a class that is not ours
    code: str = ""  # digest of all code that the fit depends on; empty in older results
    commit: str = ""  # git commit of recfusion's source tree, with a + for uncommitted changes
    seed: int = Field(ge=0)
    settings: dict[str, Any]  # as requested: null if the fit was to choose
    chosen: dict[str, Any]  # the values that the fit chose
    parameters: int = Field(ge=0)
    trials: int | None = None  # of the fit's own search; null in older results
    curve: Curve
    fit_seconds: float
    cpu_seconds: float | None = None  # of all cores, with the search; null in older results
    energy_joules: float | None = None  # measured, of whole processor packages; null where it cannot be
    threads: int
    validation: dict[str, float]  # each metric's mean over the validation users
    # On the test users; trials of a search are never evaluated on them.
    score_seconds: float = 0.0
    overall: dict[str, float] = Field(default_factory=dict)  # metrics that have no value per user (coverage)
    slices: PopularitySlices = PopularitySlices((), (), {})
    users: _Ints = _NONE  # rows of the prepared data, one per value below
    history_size: _Ints = _NONE  # items of each user that the model was shown
    test: dict[str, _Floats] = Field(default_factory=dict)  # metric -> one value per user
    plain: dict[str, _Floats] = Field(default_factory=dict)  # the same without the rules of the protocol
    examples: tuple[Example, ...] = ()  # of a few test users
    versions: dict[str, str]
    finished: datetime  # UTC
    protocol: Protocol

    @model_validator(mode="after")
    def _lengths_agree(self) -> Self:
        for name, values in (("history_size", self.history_size), *self.test.items(), *self.plain.items()):
            if len(values) != len(self.users):
                raise ValueError(f"expected {len(self.users)} values of {name}, one per user, got {len(values)}")
        if len({len(part) for part in vars(self.curve).values()}) > 1:
            raise ValueError("expected one value per epoch, got a curve of unequal lengths")
        found, wanted, slices = [*self.test, *self.overall], self.protocol.metrics, self.slices
        if len(self.users) and set(found) != set(wanted):
            raise ValueError(f"expected values of {', '.join(wanted)}, got {', '.join(found)}")
        if len(self.users) and {len(each) for each in (slices.items, slices.held_out, *slices.hits.values())} != {3}:
            raise ValueError("expected three groups of items in slices, got another number")
        return self

    @property
    def key(self) -> ResultKey:
        """The identity of the fit."""
        return result_key(self.protocol, self.label, self.model, self.source, self.settings, self.seed)

    @property
    def code_state(self) -> CodeState:
        """Whether today's code made this result; "unknown" for older results and for classes that are not ours."""
        entry = None if self.place else MODELS.get(self.model)
        return code_state(self.code, code_digest(entry, self.settings) if entry and self.code else "")

    @property
    def epochs(self) -> int:
        """The number of training epochs; 0 for a closed form."""
        return len(self.curve.epoch)

    def mean(self) -> dict[str, float]:
        """Return each metric's mean over the test users."""
        return {name: float(values.mean()) for name, values in self.test.items()} | self.overall

    def to_frame(self, data: Interactions | None = None) -> pl.DataFrame:
        """Return one row per test user: row in the data, size of the history, and each metric.

        With the prepared `data` of the result, users have their ids instead of rows.
        """
        users: Any = self.users
        if data is not None:
            check_same_data(self.protocol, data, "of the result")
            users = data.users[self.users]
        return pl.DataFrame({"user": users, "history_size": self.history_size, **self.test})

    def __repr__(self) -> str:
        values = ", ".join(f"{name} {100 * mean:.2f}" for name, mean in self.mean().items())
        return f"Result({self.label}, split {self.seed}: {values})"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return self.to_frame()._repr_html_()


def result_key(
    protocol: Protocol, label: str, model: str, source: str, settings: Mapping[str, Any], seed: int
) -> ResultKey:
    """Return the key of a result; `settings` are all values, so that a changed default gives another key."""
    named = {name: value for name, value in settings.items() if (name, value) not in _ADDED.items()}
    return protocol.hash, label, model, source, json.dumps(named, sort_keys=True), seed


def package_versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    used = [name for name in ("recfusion", "numpy", "torch") if is_installed(name)]
    return {name: version(name) for name in used} | {"python": platform.python_version()}


def is_store(path: str | Path) -> bool:
    """Return whether a file is a store, plain or packed, judged by its first bytes; an empty file is."""
    return _LINES.begins(path)


def read_results(path: str | Path) -> list[Result]:
    """Return the results of a store, plain or packed, in their order; a missing file has none.

    A cut last line is skipped with a warning. Of several results of one fit, see `best_rows`.
    """
    lines = _LINES.read(path)
    results = best_rows(_parse(line, f"{path}, line {number}") for number, line in enumerate(lines, start=1))
    if len(results) < len(lines):
        log.info("'%s' also holds %d earlier results of the same fits.", path, len(lines) - len(results))
    return list(results.values())


def read_new_results(path: str | Path, offset: int) -> tuple[list[Result], int]:
    """Return the results that were appended to a store after `offset` bytes, and the bytes up to the last of them."""
    lines, end = _LINES.read_new(path, offset)
    return [_parse(line, str(path)) for line in lines if line.startswith(_LINES.start)], end


def complete_bytes(path: str | Path) -> int:
    """Return the bytes of the complete lines of a store; the next writer removes an incomplete last line."""
    return _LINES.read_new(path, 0)[1]


def best_rows(results: Iterable[Result]) -> dict[ResultKey, Result]:
    """Return one result for each fit: one of today's code if there is one, else the newest."""
    found: dict[ResultKey, Result] = {}
    for result in results:
        known = found.get(result.key)
        if known is None or _rank(result) >= _rank(known):
            found[result.key] = result
    return found


def newest_source(results: Iterable[Result]) -> list[Result]:
    """Return the results without those of an earlier source of an edited class that is not ours."""
    stored = list(results)
    # Protocol hash, label, model and settings -> source.
    newest = {(*one.key[:3], one.key[4]): one.source for one in sorted(stored, key=lambda one: one.finished)}
    return [one for one in stored if one.source == newest[(*one.key[:3], one.key[4])]]


def _rank(result: Result) -> tuple[bool, datetime]:
    return result.code_state == "current", result.finished


def append_result(path: str | Path, result: Result) -> None:
    """Add a result to the store and return when it is on the disk; a cut last line is removed first."""
    _LINES.append(path, json_line(result.model_dump(mode="json")), _parse)


def pack_store(path: str | Path) -> Path:
    """Compress a store, and return the path of the packed file; `read_results` reads both forms."""
    return _LINES.pack(path, _parse)


def _parse(line: bytes, where: str) -> Result:
    document = _LINES.parse(line, where)
    card = Protocol.parse(document.get("protocol"), where)
    with validating(f"a result of format 2 in '{where}'", "remove the line, or name another file"):
        return Result.model_validate({**document, "protocol": card})
