"""When a trial is stopped: below the median of those before it."""

import math

import pytest

from recfusion.training.epoch import Curve, Epoch
from recfusion.training.trial import GRACE, Status, Trial, curve_medians, is_below_median


def curved(number: int, status: Status, *metrics: float) -> Trial:
    epochs = tuple(range(1, len(metrics) + 1))
    curve = Curve(epochs, (0.0,) * len(metrics), metrics, (0.0,) * len(metrics))
    return Trial({}, None, number, status, curve=curve)


def test_medians_are_of_the_best_so_far_at_the_same_epoch() -> None:
    trials = [
        curved(0, "ok", 0.1, 0.3, 0.2),  # best so far 0.1 0.3 0.3
        curved(1, "ok", 0.2),  # it keeps 0.2
        curved(2, "ok", 0.3, 0.1, 0.5),  # 0.3 0.3 0.5
        curved(3, "stopped", 0.0, 0.0),  # counts for two epochs
        curved(4, "failed", 0.9, 0.9, 0.9),  # does not count
        curved(5, "ok"),  # a closed form has no epochs
    ]
    assert curve_medians(trials) == pytest.approx((0.15, 0.25, -math.inf))
    assert curve_medians(trials[:1]) == (-math.inf,) * 3
    assert curve_medians([]) == ()


def test_a_trial_below_the_median_is_hopeless_after_the_grace() -> None:
    medians = (0.5,) * (GRACE + 1)

    def at(number: int, best: float | None) -> bool:
        return is_below_median(Epoch(number, 99, 1.0, best, best, 1, 0.0), medians)

    assert at(GRACE, 0.4)
    assert not at(GRACE, 0.5)
    assert not at(GRACE - 1, 0.4)
    assert not at(GRACE + 2, 0.4)  # nothing is known of that epoch
    assert not at(GRACE, None)
