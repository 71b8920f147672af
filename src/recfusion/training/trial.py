"""Trials: tried settings with their scores, and the median rule that stops bad trials early."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal, TypeAlias

from recfusion.training.epoch import Curve, Epoch

GRACE = 5  # epochs that no trial is stopped before: small learning rates start slowly
LEAST_CURVES = 4  # trials that a median needs

Status: TypeAlias = Literal["ok", "stopped", "failed"]


@dataclass(frozen=True)
class Trial:
    """Tried settings and their score: higher is better, None if the trial failed."""

    settings: Mapping[str, Any]  # as given
    score: float | None
    number: int = 0
    status: Status = "ok"
    chosen: Mapping[str, Any] = field(default_factory=dict)  # chosen by the fit
    reason: str = ""  # why it failed or was stopped
    curve: Curve = field(default_factory=Curve)
    seconds: float = 0.0


def best_trial(trials: Iterable[Trial]) -> Trial | None:
    """Return the finished trial with the highest score; the lowest number wins a tie."""
    whole = sorted((one for one in trials if one.status == "ok"), key=lambda one: one.number)
    return max(whole, key=lambda one: -math.inf if one.score is None else one.score, default=None)


def is_below_median(epoch: Epoch, medians: Sequence[float]) -> bool:
    """Return whether the best value so far is below the median of the earlier trials at this epoch."""
    known = epoch.best_metric is not None and GRACE <= epoch.number <= len(medians)
    return known and (epoch.best_metric or 0.0) < medians[epoch.number - 1]


def curve_medians(trials: Iterable[Trial]) -> tuple[float, ...]:
    """Return the median of the trials' best values so far, for each epoch.

    A finished trial keeps its best value for later epochs; a stopped trial counts only up to its last epoch. Epochs
    with fewer than `LEAST_CURVES` trials have minus infinity.
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
