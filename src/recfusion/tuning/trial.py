"""One trial: settings fitted on the training users and judged on the validation users, stopped where it is hopeless."""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any, Literal, Protocol, TypeAlias

from recfusion.core.arrays import Csr
from recfusion.core.errors import InputError
from recfusion.core.rng import stream
from recfusion.data.split import Fold
from recfusion.evaluation.evaluate import evaluate
from recfusion.experiments.compare import Curve
from recfusion.models.base import setting_values
from recfusion.models.registry import make_model
from recfusion.training.epoch import Epoch

GRACE = 5  # epochs that every trial may have: a small learning rate begins slowly
LEAST_CURVES = 4  # trials below which a median says little

Status: TypeAlias = Literal["ok", "stopped", "failed"]


@dataclass(frozen=True)
class Job:
    """What all trials of a search share. The test users are no part of it."""

    model: str  # its name in the registry
    fixed: Mapping[str, Any]  # settings that are not searched
    metric: str
    seed: int
    train: Csr
    valid: Fold


@dataclass(frozen=True)
class Asked:
    """A trial that is to be run."""

    number: int
    settings: Mapping[str, Any]
    medians: Sequence[float] = ()  # below which a trial ends, by epoch from the first


@dataclass(frozen=True)
class Outcome:
    """What a trial came to."""

    number: int
    status: Status
    settings: Mapping[str, Any]  # as asked for
    chosen: Mapping[str, Any] = field(default_factory=dict)  # those that the fit chose
    score: float | None = None  # on the validation users
    reason: str = ""  # why it failed or was stopped
    curve: Curve = field(default_factory=Curve)
    seconds: float = 0.0


@dataclass(frozen=True)
class Going:
    """An epoch of a trial that is going on."""

    number: int
    epoch: Epoch


Event: TypeAlias = Outcome | Going


class Engine(Protocol):
    """Whatever runs trials."""

    def run(
        self, job: Job, next_trial: Callable[[], Asked | None], count: int, seconds: float
    ) -> Generator[Event, None, None]:
        """Yield what happens to up to `count` trials until `seconds` are over; those still running then are ended.

        `next_trial` gives the next one. It is called after the outcomes before it were yielded and taken.
        """


def run_trial(job: Job, asked: Asked, *, threads: int, on_epoch: Callable[[Epoch], None] | None = None) -> Outcome:
    """Return what a trial comes to; an error is an outcome too."""
    began = perf_counter()
    epochs: list[Epoch] = []
    status: Status = "ok"
    reason, chosen = "", dict[str, Any]()
    score: float | None = None
    try:
        model = make_model(job.model, {**job.fixed, **asked.settings})
        before = setting_values(model)
        fitting = model.epochs(job.train, job.valid, rng=stream(job.seed, f"fit {job.model}"))
        for epoch in fitting:
            epochs.append(epoch)
            if on_epoch is not None:
                on_epoch(epoch)
            if is_hopeless(epoch, asked.medians):
                status, reason = "stopped", f"below the median of the trials before it in epoch {epoch.number}"
                break
        chosen = {name: value for name, value in setting_values(model).items() if value != before[name]}
        score = evaluate(model, job.valid, job.train, (job.metric,), threads=threads).mean()[job.metric]
        if not math.isfinite(score):
            raise InputError(f"The model's {job.metric} is {score}.")
    except MemoryError:
        status, reason = "failed", "There is not enough memory for it."
    except InputError as error:
        status, reason = "failed", str(error)
    except Exception as error:
        status, reason = "failed", f"{type(error).__name__}: {error}"
    if status == "failed":
        score = None
    return Outcome(
        asked.number, status, dict(asked.settings), chosen, score, reason, Curve.of(epochs), perf_counter() - began
    )


def is_hopeless(epoch: Epoch, medians: Sequence[float]) -> bool:
    """Return whether the best so far is below the median of the trials before, at the same epoch."""
    known = epoch.best_metric is not None and GRACE <= epoch.number <= len(medians)
    return known and (epoch.best_metric or 0.0) < medians[epoch.number - 1]


def curve_medians(outcomes: Sequence[Outcome]) -> tuple[float, ...]:
    """Return, by epoch, the median of the trials' best values so far.

    A trial that ended by itself keeps its best for the epochs it did not need; one that was stopped counts for those
    it had. Epochs that fewer than `LEAST_CURVES` trials speak of have minus infinity, below which nothing is.
    """
    curves = [(one.status == "ok", _running_best(one.curve)) for one in outcomes if one.status != "failed"]
    curves = [(whole, best) for whole, best in curves if best]
    medians = []
    for epoch in range(max((len(best) for _, best in curves), default=0)):
        values = [best[min(epoch, len(best) - 1)] for whole, best in curves if whole or epoch < len(best)]
        medians.append(median(values) if len(values) >= LEAST_CURVES else -math.inf)
    return tuple(medians)


def _running_best(curve: Curve) -> list[float]:
    best: list[float] = []
    for metric in curve.metric:
        best.append(max([*best[-1:], *([] if metric is None else [metric])], default=-math.inf))
    return best
