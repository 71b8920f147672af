"""The trials file: an append-only file of JSON lines, one for each trial that ended, on whatever engine."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from recfusion.core.errors import InputError
from recfusion.core.jsonl import Lines, json_line
from recfusion.experiments.compare import Curve
from recfusion.tuning.trial import Outcome, Status

_LINES = Lines(b'{"recfusion_trial":', "trial", "it counts as not run")


class Search(BaseModel):
    """What trials must share to be trials of one search."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    protocol: str  # its hash
    seed: int  # of the split and of the fits
    model: str
    metric: str
    fixed: dict[str, Any]  # settings that are not searched, as given
    space: dict[str, Any]


# What a difference is called, the most telling first.
_NAMES = {
    "protocol": "another protocol (other data, preparation, split or metrics)",
    "model": "another model",
    "metric": "another metric",
    "seed": "another seed",
    "fixed": "other given settings",
    "space": "another search space",
}


class Record(BaseModel):
    """One ended trial, as a line of the file holds it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    recfusion_trial: Literal[1] = 1  # the format's version; stands first in a line
    number: int = Field(ge=0)
    status: Status
    score: float | None
    settings: dict[str, Any]
    chosen: dict[str, Any]
    reason: str
    seconds: float
    curve: Curve
    finished: datetime  # UTC
    search: Search

    def outcome(self) -> Outcome:
        """Return what the trial came to."""
        return Outcome(
            number=self.number,
            status=self.status,
            settings=self.settings,
            chosen=self.chosen,
            score=self.score,
            reason=self.reason,
            curve=self.curve,
            seconds=self.seconds,
        )


def read_trials(path: Path, search: Search) -> dict[int, Outcome]:
    """Return the ended trials of a file by number; trials of another search are refused."""
    found: dict[int, Outcome] = {}
    for number, line in enumerate(_LINES.read(path), start=1):
        record = _parse(line, f"{path}, line {number}")
        different = next((name for name in _NAMES if getattr(record.search, name) != getattr(search, name)), None)
        if different is not None:
            theirs, ours = (getattr(one, different) for one in (record.search, search))
            raise InputError(
                f"The trials in '{path}' are of {_NAMES[different]}: there {theirs!r}, asked for {ours!r}; "
                "name another folder with --out."
            )
        found.setdefault(record.number, record.outcome())
    return found


def append_trial(path: Path, search: Search, outcome: Outcome) -> None:
    """Add an ended trial to the file and return when it is on the disk."""
    record = Record(
        number=outcome.number,
        status=outcome.status,
        score=outcome.score,
        settings=dict(outcome.settings),
        chosen=dict(outcome.chosen),
        reason=outcome.reason,
        seconds=outcome.seconds,
        curve=outcome.curve,
        finished=datetime.now(UTC),
        search=search,
    )
    _LINES.append(path, json_line(record.model_dump(mode="json")), _parse)


def best_trial(outcomes: Mapping[int, Outcome]) -> Outcome | None:
    """Return the trial with the highest score, the earliest of equals; stopped ones do not count."""
    whole = [one for _, one in sorted(outcomes.items()) if one.status == "ok"]
    return max(whole, key=lambda one: one.score if one.score is not None else -math.inf, default=None)


def _parse(line: bytes, where: str) -> Record:
    document = _LINES.parse(line, where)
    try:
        return Record.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InputError(
            f"Expected a trial of format 1 in '{where}': {place or 'line'}: {first['msg']}; "
            "remove the line, or name another folder."
        ) from None
