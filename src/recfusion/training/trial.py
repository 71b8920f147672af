"""A trial: settings that were tried and what they came to, in a model's own search as in a search of its settings."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal, TypeAlias

from recfusion.training.epoch import Curve, Epoch

GRACE = 5  # epochs that every trial may have: a small learning rate begins slowly
LEAST_CURVES = 4  # trials below which a median says little

Status: TypeAlias = Literal["ok", "stopped", "failed"]


@dataclass(frozen=True)
class Trial:
    """Settings that were tried and what they scored: higher is better, None if they failed."""

    settings: Mapping[str, Any]  # as asked for
    score: float | None
    number: int = 0
    status: Status = "ok"
    chosen: Mapping[str, Any] = field(default_factory=dict)  # what the fit chose of the others
    reason: str = ""  # why it failed or was stopped
    curve: Curve = field(default_factory=Curve)
    seconds: float = 0.0


def best_trial(trials: Iterable[Trial]) -> Trial | None:
    """Return the trial with the highest score, the one with the lowest number of equals; stopped ones do not count."""
    whole = sorted((one for one in trials if one.status == "ok"), key=lambda one: one.number)
    return max(whole, key=lambda one: -math.inf if one.score is None else one.score, default=None)


def is_hopeless(epoch: Epoch, medians: Sequence[float]) -> bool:
    """Return whether the best so far is below the median of the trials before, at the same epoch."""
    known = epoch.best_metric is not None and GRACE <= epoch.number <= len(medians)
    return known and (epoch.best_metric or 0.0) < medians[epoch.number - 1]


def curve_medians(trials: Iterable[Trial]) -> tuple[float, ...]:
    """Return, by epoch, the median of the trials' best values so far.

    A trial that ended by itself keeps its best for the epochs it did not need; one that was stopped counts for those
    it had. Epochs that fewer than `LEAST_CURVES` trials speak of have minus infinity, below which nothing is.
    """
    curves = [(one.status == "ok", _running_best(one.curve)) for one in trials if one.status != "failed"]
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
