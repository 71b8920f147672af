"""The trials file: append-only JSON lines, one for each ended trial, on any engine."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from recfusion.core.errors import InputError, validating
from recfusion.core.jsonl import JsonLines, json_line
from recfusion.training.trial import Trial

_LINES = JsonLines(b'{"recfusion_trial":', "trial", "it counts as not run")


class Search(BaseModel):
    """The identity of a search: all of its trials share these values.

    Titles say in messages how another search differs; the most important difference comes first.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    protocol: str = Field(title="another protocol (other data, preparation, split or metrics)")  # its hash
    model: str = Field(title="another model")
    source: str = Field("", title="another version of the model's code")  # digest of a file that is not ours
    metric: str = Field(title="another metric")
    seed: int = Field(title="another seed")  # of the split and of the fits
    fixed: dict[str, Any] = Field(title="other given settings")  # which are not searched
    space: dict[str, Any] = Field(title="another search space")


class _Line(BaseModel):
    """One line of the file: an ended trial."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    recfusion_trial: Literal[2] = 2  # version of the format; must be first in a line
    trial: Trial
    finished: datetime  # UTC
    search: Search


def read_trials(path: Path, search: Search) -> dict[int, Trial]:
    """Return the ended trials of a file by number; raise if they belong to another search."""
    found: dict[int, Trial] = {}
    for number, text in enumerate(_LINES.read(path), start=1):
        line = _parse(text, f"{path}, line {number}")
        for name, field in Search.model_fields.items():
            theirs, ours = (getattr(one, name) for one in (line.search, search))
            if theirs != ours:
                raise InputError(
                    f"Expected trials of this search in '{path}', got those of {field.title}: {theirs!r} there, "
                    f"{ours!r} here; name another folder with --out."
                )
        found.setdefault(line.trial.number, line.trial)
    return found


def append_trial(path: Path, search: Search, trial: Trial) -> None:
    """Add an ended trial to the file and return when it is on the disk."""
    line = _Line(trial=trial, finished=datetime.now(UTC), search=search)
    _LINES.append(path, json_line(line.model_dump(mode="json")), _parse)


def _parse(text: bytes, where: str) -> _Line:
    document = _LINES.parse(text, where)
    with validating(f"a trial of format 2 in '{where}'", "remove the line, or name another folder"):
        return _Line.model_validate(document)
