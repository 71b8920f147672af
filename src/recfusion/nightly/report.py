"""The report of a night: a typed record, one line of a log, and the files in the folder of reports."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from recfusion.core.errors import validating
from recfusion.core.files import write_json
from recfusion.core.jsonl import JsonLines, json_line
from recfusion.report.page import write_text

NIGHTS = "nights.jsonl"  # one line for each night
LATEST, PAGE = "latest.json", "latest.html"
_LINES = JsonLines(b'{"recfusion_night":', "night", "its report is written again")
Ending = Literal["first", "new", "old", "refused"]


class Counts(BaseModel, frozen=True):
    """The size of the data of a night, before preparation."""

    rows: int
    customers: int
    products: int  # sold ones, and those of the product file


class Night(BaseModel, frozen=True):
    """What a nightly run did; it holds no ids."""

    recfusion_night: int = 1
    started: datetime
    seconds: float = 0.0
    outcome: Ending
    sentence: str = ""
    inputs: str  # digest of everything that the run read
    counts: Counts
    before: Counts | None = None  # of the last night that was not refused
    events: int = 0
    forgotten: int = 0  # customers who asked to be forgotten, in total
    comparison: dict[str, Any] = {}  # of the two recipes, the fields of `Outcome`
    model: str = ""
    version: str = ""  # of the model folder
    users: int = 0
    items: int = 0
    choices: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    service: str = "not asked"
    notified: bool = True  # False if the service could not be reached
    dry_run: bool = False

    @property
    def key(self) -> tuple[datetime, str]:
        """What tells a night from others."""
        return self.started, self.inputs

    @property
    def used(self) -> str:
        """Which recipe was used: new or old."""
        return "old" if self.outcome == "old" else "new"

    @property
    def mean(self) -> float | None:
        """The metric of the recipe that was used; None without an evaluation."""
        return (self.comparison.get(self.used) or {}).get("mean")

    def line(self) -> str:
        """Return the night as one line of a log."""
        shown = {
            "outcome": self.outcome,
            "model": self.model,
            self.comparison.get("metric", "metric"): None if self.mean is None else f"{self.mean:.4f}",
            "gain": None if self.comparison.get("gain") is None else f"{self.comparison['gain']:+.4f}",
            **self.counts.model_dump(),
            "events": self.events,
            "forgotten": self.forgotten,
            "seconds": f"{self.seconds:.1f}",
            "service": json.dumps(self.service),
        }
        pairs = " ".join(f"{name}={value}" for name, value in shown.items() if value not in (None, ""))
        return f"{self.started:%Y-%m-%dT%H:%M:%SZ} {'dry run ' if self.dry_run else ''}{pairs}"


def read_nights(folder: Path) -> list[Night]:
    """Return the nights of a folder of reports, oldest first."""
    return [parse_night(_LINES.parse(line, NIGHTS), str(folder / NIGHTS)) for line in _LINES.read(folder / NIGHTS)]


def parse_night(document: object, where: str) -> Night:
    with validating(f"the report of a night in '{where}'", "remove it"):
        return Night.model_validate(document)


def write_night(folder: Path, night: Night) -> None:
    """Add a night to the reports, unless it is the last one already, and write its page."""
    from recfusion.nightly.page import render

    document = night.model_dump(mode="json")
    if not any((one.key, one.notified) == (night.key, night.notified) for one in read_nights(folder)[-1:]):
        _LINES.append(folder / NIGHTS, json_line(document), _LINES.parse)
    write_json(folder / LATEST, document)
    write_text(folder / PAGE, render(read_nights(folder)))
