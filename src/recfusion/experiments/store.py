"""The results store: an append-only file of JSON lines, one complete line for each finished fit."""

import base64
import binascii
import json
import logging
import platform
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError, model_validator

from recfusion.core.arrays import IntArray
from recfusion.core.errors import InputError
from recfusion.core.jsonl import Lines, json_line
from recfusion.data.protocol import Protocol
from recfusion.evaluation.evaluate import Evaluation
from recfusion.evaluation.metrics import Values
from recfusion.evaluation.slices import PopularitySlices
from recfusion.experiments.compare import Curve, Run
from recfusion.experiments.examples import Example

log = logging.getLogger(__name__)

_LINES = Lines(b'{"recfusion_result":', "result", "its fit counts as not run")

RowKey = tuple[str, str, str, str, int]  # protocol hash, label, model, settings, seed


def _encoded(kind: str) -> Callable[[NDArray[Any]], str]:
    return lambda array: base64.b64encode(array.astype(kind).tobytes()).decode("ascii")


def _decoded(kind: str, wide: type[np.generic]) -> Callable[[object], object]:
    """Return the reader of such arrays; it rounds a fresh array too, so that a row equals what is read of it."""

    def decode(value: object) -> object:
        if isinstance(value, np.ndarray):
            return value.astype(kind).astype(wide)
        if not isinstance(value, str):
            return value
        try:
            return np.frombuffer(base64.b64decode(value, validate=True), kind).astype(wide)
        except (binascii.Error, ValueError):
            raise ValueError(f"is no base64 of {kind} numbers") from None

    return decode


# Arrays stand in JSON as base64 of little-endian four-byte numbers.
_Ints = Annotated[IntArray, BeforeValidator(_decoded("<i4", np.int64)), PlainSerializer(_encoded("<i4"))]
_Floats = Annotated[Values, BeforeValidator(_decoded("<f4", np.float64)), PlainSerializer(_encoded("<f4"))]


class Row(BaseModel):
    """One finished fit, as a line of the store holds it."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    recfusion_result: Literal[1] = 1  # the format's version; stands first in a line
    label: str
    model: str
    seed: int = Field(ge=0)
    settings: dict[str, Any]
    chosen: dict[str, Any]
    parameters: int = Field(ge=0)
    curve: Curve
    fit_seconds: float
    score_seconds: float
    validation: dict[str, float]
    overall: dict[str, float]  # metrics of the test users that have no value per user (coverage)
    slices: PopularitySlices
    users: _Ints  # rows of the prepared data, one per value below
    history_size: _Ints
    test: dict[str, _Floats]  # metric -> one value per user
    examples: tuple[Example, ...] = ()
    threads: int
    versions: dict[str, str]
    finished: datetime  # UTC
    protocol: Protocol

    @model_validator(mode="after")
    def _lengths_agree(self) -> Self:
        for name, values in {"history_size": self.history_size, **self.test}.items():
            if len(values) != len(self.users):
                raise ValueError(f"expected {len(self.users)} values of {name}, one per user, got {len(values)}")
        return self

    @classmethod
    def of(cls, run: Run, *, threads: int) -> "Row":
        """Return the row of a run that has just ended in this process, with what it ran on."""
        values = {
            "label": run.name,
            "model": run.model,
            "seed": run.seed,
            "settings": json.loads(json.dumps(run.settings)),
            "chosen": json.loads(json.dumps(run.chosen)),
            "parameters": run.parameters,
            "curve": run.curve,
            "fit_seconds": run.fit_seconds,
            "score_seconds": run.test.seconds,
            "validation": run.validation,
            "overall": run.test.overall,
            "slices": run.slices,
            "users": run.test.users,
            "history_size": run.history_size,
            "test": run.test.per_user,
            "examples": run.examples,
            "threads": threads,
            "versions": package_versions(),
            "finished": datetime.now(UTC),
            "protocol": run.protocol,
        }
        return cls.model_validate(values)

    def run(self) -> Run:
        """Return the run; its values per user have the precision of four-byte numbers."""
        return Run(
            protocol=self.protocol,
            name=self.label,
            model=self.model,
            seed=self.seed,
            settings=self.settings,
            chosen=self.chosen,
            parameters=self.parameters,
            curve=self.curve,
            fit_seconds=self.fit_seconds,
            test=Evaluation(self.users, self.test, self.overall, self.score_seconds),
            history_size=self.history_size,
            slices=self.slices,
            validation=self.validation,
            examples=self.examples,
        )

    @property
    def key(self) -> RowKey:
        """What makes this result this one and no other."""
        return row_key(self.protocol, self.label, self.model, self.settings, self.seed)

    def line(self) -> bytes:
        """Return the row as one line of JSON."""
        return json_line(self.model_dump(mode="json"))


def row_key(protocol: Protocol, label: str, model: str, settings: Mapping[str, Any], seed: int) -> RowKey:
    """Return the key of a result; `settings` are the full values, so that no default can change unnoticed."""
    return protocol.hash, label, model, json.dumps(settings, sort_keys=True), seed


def is_store(path: str | Path) -> bool:
    """Return whether a file begins as a store does; an empty one may become one."""
    return _LINES.begins(path)


def read_rows(path: str | Path) -> list[Row]:
    """Return the rows of a store in their order; no file is a store without rows.

    A torn last line is left out and reported, and so are all but the first of several rows with one key.
    """
    rows: dict[RowKey, Row] = {}
    for number, line in enumerate(_LINES.read(Path(path)), start=1):
        row = _parse(line, f"{path}, line {number}")
        if rows.setdefault(row.key, row) is not row:
            log.warning("Line %d of '%s' repeats %s, split %d: the first counts.", number, path, row.label, row.seed)
    return list(rows.values())


def append_row(path: str | Path, row: Row) -> None:
    """Add `row` to the store and return when it is on the disk; a torn last line is removed before."""
    _LINES.append(Path(path), row.line(), _parse)


def _parse(line: bytes, where: str) -> Row:
    document = _LINES.parse(line, where)
    card = Protocol.parse(document.get("protocol"), where)
    try:
        return Row.model_validate({**document, "protocol": card})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InputError(
            f"Expected a result of format 1 in '{where}': {place or 'line'}: {first['msg']}; "
            "remove the line, or name another file."
        ) from None


def package_versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    packages = {name: version(name) for name in ("recfusion", "numpy", "torch")}
    return packages | {"python": platform.python_version()}
