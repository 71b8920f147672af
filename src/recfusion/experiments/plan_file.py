"""Pre-registration: a plan of an experiment, written before its runs, and whether a run kept to it."""

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from recfusion.core.errors import validating
from recfusion.core.files import read_json, write_json
from recfusion.experiments.experiment_file import Experiment
from recfusion.experiments.result import Result, Seeds, package_versions
from recfusion.experiments.result_diff import changes
from recfusion.models.code_digest import git, source_commit


class PlannedModel(BaseModel):
    """A model of a plan: all its settings, its splits, and the digest of its code."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    settings: dict[str, Any]
    seeds: Seeds
    code: str


class Plan(BaseModel):
    """What will be run, with all defaults, and what its author expects."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    recfusion_plan: Literal[1] = 1
    name: str
    hypotheses: tuple[str, ...]
    data: dict[str, Any]
    preparation: dict[str, Any]
    split: dict[str, Any]
    signals: str
    metrics: tuple[str, ...]
    deciding: str | None
    models: dict[str, PlannedModel]
    written: datetime  # UTC
    commit: str
    versions: dict[str, str]

    @classmethod
    def of(cls, experiment: Experiment) -> "Plan":
        """Return the plan of an experiment with today's defaults and code."""
        return cls(
            name=experiment.name,
            hypotheses=experiment.hypotheses,
            data=experiment.data.shown().model_dump(mode="json", exclude_none=True),
            preparation=experiment.preparation.model_dump(mode="json"),
            split=experiment.split.model_dump(mode="json"),
            signals=experiment.signals,
            metrics=experiment.metrics,
            deciding=experiment.deciding,
            models={
                one.label: PlannedModel(model=one.entry.name, settings=one.values, seeds=seeds, code=one.code)
                for one, seeds in experiment.models
            },
            written=datetime.now(UTC),
            commit=source_commit(),
            versions=package_versions(),
        )


@dataclass(frozen=True)
class Verdict:
    """Whether a run confirms its plan: it does if nothing changed after the plan was written."""

    plan: Plan
    reasons: tuple[str, ...]  # why it is exploratory
    history: str = ""  # what git says about the plan's file

    @property
    def is_confirmatory(self) -> bool:
        return not self.reasons

    def sentence(self) -> str:
        """Return the verdict with its reasons."""
        planned = f"the plan of {self.plan.written:%Y-%m-%d %H:%M} UTC"
        if self.is_confirmatory:
            text = f"Confirmatory: data, splits, metrics, settings and code are those of {planned}."
        else:
            text = f"Exploratory, because it departs from {planned}: {'; '.join(self.reasons)}."
        return f"{text} {self.history}".rstrip()


def write_plan(path: Path, experiment: Experiment) -> Plan:
    """Write the plan of an experiment."""
    plan = Plan.of(experiment)
    write_json(path, plan.model_dump(mode="json"))
    return plan


def read_plan(path: Path) -> Plan:
    """Read a plan."""
    with validating(f"a plan in '{path}'", "write it with `recfusion plan`"):
        return Plan.model_validate(read_json(path))


def check_plan(plan: Plan, experiment: Experiment, results: Iterable[Result], path: Path | None = None) -> Verdict:
    """Return whether results of an experiment confirm a plan; with the plan's `path`, git is asked for its commit.

    The code that counts is that of the results: kept results stay as planned if the code changes after them.
    """
    results = list(results)
    run = Plan.of(experiment)
    run = run.model_copy(
        update={"models": {label: _as_run(one, plan, label, results) for label, one in run.models.items()}}
    )
    planned, today = (one.model_dump(exclude={"written", "commit", "versions"}) for one in (plan, run))
    reasons = [f"{change.what} changed" for change in changes(planned, today)]
    early = sum(one.finished < plan.written for one in results)
    if early:
        reasons.append(f"{early:,} result{'s are' if early > 1 else ' is'} older than the plan")
    reason, history = ("", "") if path is None else _committed_before(path, results)
    return Verdict(plan, (*reasons, reason) if reason else tuple(reasons), history)


def _as_run(model: PlannedModel, plan: Plan, label: str, results: Iterable[Result]) -> PlannedModel:
    """Return a model with the code of its results: the planned one if all have it, else another one."""
    codes = {one.code for one in results if one.label == label}
    planned = plan.models[label].code if label in plan.models else ""
    return (
        model.model_copy(update={"code": planned if codes == {planned} else min(codes - {planned})}) if codes else model
    )


def _committed_before(path: Path, results: Iterable[Result]) -> tuple[str, str]:
    """Return why results may be older than the commit of a plan's file, or nothing; and a sentence for the output.

    A result whose commit is in the plan's repository must have been fitted by that commit's descendants or itself. If
    recfusion's source is elsewhere, the time of the commit must precede the result.
    """
    asked = path.resolve()
    try:
        if git(asked.parent, "rev-parse", "--is-shallow-repository") != "false":
            return (
                "",
                "Whether the plan was committed before the results could not be checked: no complete git history.",
            )
        commit, _, seconds = git(asked.parent, "log", "-1", "--format=%H %ct", "--", asked.name).partition(" ")
        if not commit or git(asked.parent, "status", "--porcelain", "--", asked.name):
            return "the file of the plan is not committed in git as it is", ""
        late = [one for one in results if not _is_later(asked, commit, int(seconds), one)]
    except (OSError, subprocess.SubprocessError):
        return "", "Whether the plan was committed before the results could not be checked: git could not be run."
    if late:
        return f"{len(late):,} result{'s' * (len(late) > 1)} began before the plan was committed ({commit[:12]})", ""
    return "", f"The plan was committed ({commit[:12]}) before the results."


def _is_later(path: Path, commit: str, seconds: int, result: Result) -> bool:
    """Return whether a result was fitted after a commit: by a version that contains it, else by its time."""
    own = result.commit.rstrip("+")
    if own and git(path.parent, "cat-file", "-t", own) == "commit":
        return git(path.parent, "merge-base", commit, own) == commit
    return result.finished.timestamp() - result.fit_seconds >= seconds
