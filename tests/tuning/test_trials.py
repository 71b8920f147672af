"""One trial: its score, its failure, and when it is stopped."""

import math

import pytest

from recfusion.data.interactions import Interactions
from recfusion.data.split import split
from recfusion.evaluation.evaluate import evaluate
from recfusion.experiments.compare import Curve
from recfusion.models.ease import EASE
from recfusion.training.epoch import Epoch
from recfusion.tuning.trial import GRACE, Asked, Job, Outcome, Status, curve_medians, is_hopeless, run_trial


def job(data: Interactions, model: str, metric: str = "ndcg@100", **fixed: object) -> Job:
    parts = split(data, seed=0)
    return Job(model, fixed, metric, 0, parts.train, parts.valid)


def curved(number: int, status: Status, *metrics: float) -> Outcome:
    epochs = tuple(range(1, len(metrics) + 1))
    return Outcome(number, status, {}, curve=Curve(epochs, (0.0,) * len(metrics), metrics, (0.0,) * len(metrics)))


def test_a_score_is_the_metric_of_the_validation_users(groups: Interactions) -> None:
    asked = job(groups, "ease", "recall@5")
    found = run_trial(asked, Asked(3, {"l2": 7.0}), threads=1)
    model = EASE(l2=7.0).fit(asked.train)
    assert found.score == evaluate(model, asked.valid, asked.train, ("recall@5",)).mean()["recall@5"]
    assert (found.number, found.status, found.settings, found.chosen) == (3, "ok", {"l2": 7.0}, {})


def test_what_the_fit_chose_is_part_of_the_outcome(groups: Interactions) -> None:
    found = run_trial(job(groups, "ease"), Asked(0, {}), threads=1)
    assert found.settings == {}
    assert set(found.chosen) == {"l2"}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"l2": -1.0}, "at least 1e-06"),
        ({"l2": "much"}, "valid number"),
    ],
)
def test_an_error_is_an_outcome(groups: Interactions, settings: dict[str, object], reason: str) -> None:
    found = run_trial(job(groups, "ease"), Asked(1, settings), threads=1)
    assert (found.status, found.score) == ("failed", None)
    assert reason in found.reason


def test_a_training_that_diverges_has_failed(groups: Interactions) -> None:
    found = run_trial(job(groups, "recfusion", max_epochs=3), Asked(1, {"lr": 1e30}), threads=1)
    assert (found.status, found.score) == ("failed", None)
    assert "NaN" in found.reason


def test_want_of_memory_is_an_outcome(groups: Interactions, monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(EASE, "fit", fit)
    found = run_trial(job(groups, "ease"), Asked(1, {"l2": 3.0}), threads=1)
    assert (found.status, found.reason) == ("failed", "There is not enough memory for it.")


def test_medians_are_of_the_best_so_far_at_the_same_epoch() -> None:
    outcomes = [
        curved(0, "ok", 0.1, 0.3, 0.2),  # best so far 0.1 0.3 0.3
        curved(1, "ok", 0.2),  # it keeps 0.2
        curved(2, "ok", 0.3, 0.1, 0.5),  # 0.3 0.3 0.5
        curved(3, "stopped", 0.0, 0.0),  # counts for two epochs
        curved(4, "failed", 0.9, 0.9, 0.9),  # does not count
        Outcome(5, "ok", {}),  # a closed form has no epochs
    ]
    assert curve_medians(outcomes) == pytest.approx((0.15, 0.25, -math.inf))
    assert curve_medians(outcomes[:1]) == (-math.inf,) * 3
    assert curve_medians([]) == ()


def test_a_trial_below_the_median_is_hopeless_after_the_grace() -> None:
    medians = (0.5,) * (GRACE + 1)

    def at(number: int, best: float | None) -> bool:
        return is_hopeless(Epoch(number, 99, 1.0, best, best, 1, 0.0), medians)

    assert at(GRACE, 0.4)
    assert not at(GRACE, 0.5)
    assert not at(GRACE - 1, 0.4)
    assert not at(GRACE + 2, 0.4)  # nothing is known of that epoch
    assert not at(GRACE, None)


def test_a_hopeless_trial_stops_and_has_a_score(groups: Interactions) -> None:
    asked = job(groups, "recfusion", max_epochs=30, patience=30)
    found = run_trial(asked, Asked(9, {"lr": 1e-3}, (1.0,) * 30), threads=1)
    assert (found.status, len(found.curve.epoch)) == ("stopped", GRACE)
    assert found.reason == f"below the median of the trials before it in epoch {GRACE}"
    assert found.score is not None
    assert len(run_trial(asked, Asked(9, {"lr": 1e-3}), threads=1).curve.epoch) == 30
