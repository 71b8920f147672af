"""One trial, its score, its failure and its line in the file of trials."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest

from foreign import Mine
from recfusion.core.arrays import Csr
from recfusion.core.errors import InputError
from recfusion.core.pool import Failure, attempt
from recfusion.data.interactions import Interactions
from recfusion.data.options import SplitPlan
from recfusion.data.protocol import Protocol
from recfusion.data.split import Fold, split, without_test
from recfusion.evaluation.evaluate import evaluate
from recfusion.evaluation.metrics import DEFAULT_METRICS
from recfusion.experiments.tuning.engine import TrialJob, TrialRequest
from recfusion.experiments.tuning.trials_file import Search, append_trial, read_trials
from recfusion.models.linear.ease import EASE
from recfusion.models.registry import find
from recfusion.training.epoch import Curve
from recfusion.training.trial import GRACE, Trial

SEARCH = Search(protocol="abc", seed=0, model="ease", metric="ndcg@100", fixed={}, space={"l2": {"low": 1}})


def job(data: Interactions, model: str | Mine, metric: str = "ndcg@100", **fixed: object) -> TrialJob:
    protocol = Protocol.of(data, SplitPlan(), (*DEFAULT_METRICS, "recall@5"))
    return TrialJob(find(model), fixed, metric, protocol, without_test(split(data, seed=0)), threads=1)


def run(job: TrialJob, asked: TrialRequest) -> Any:
    """Return the trial that settings come to, or their failure."""
    return attempt(job.start(), asked, lambda told: None)


def test_a_score_is_the_metric_of_the_validation_users(groups: Interactions) -> None:
    found = run(job(groups, "ease", "recall@5"), TrialRequest(3, {"l2": 7.0}))
    parts = split(groups, seed=0)
    model = EASE(l2=7.0).fit(parts.train)
    assert found.score == evaluate(model, parts.valid, parts.train, ("recall@5",)).mean()["recall@5"]
    assert (found.number, found.status, found.settings, found.chosen) == (3, "ok", {"l2": 7.0}, {})


def test_what_the_fit_chose_is_part_of_the_trial(groups: Interactions) -> None:
    found = run(job(groups, "ease"), TrialRequest(0, {}))
    assert found.settings == {}
    assert set(found.chosen) == {"l2"}


@pytest.mark.parametrize(("settings", "reason"), [({"l2": -1.0}, "at least 1e-06"), ({"l2": "much"}, "valid number")])
def test_an_error_is_a_failure(groups: Interactions, settings: dict[str, object], reason: str) -> None:
    found = run(job(groups, "ease"), TrialRequest(1, settings))
    assert isinstance(found, Failure)
    assert reason in found.reason


def test_a_training_that_diverges_has_failed(groups: Interactions) -> None:
    found = run(job(groups, "recfusion", max_epochs=3), TrialRequest(1, {"lr": 1e30}))
    assert isinstance(found, Failure)
    assert "NaN" in found.reason


@dataclass
class Greedy(Mine):
    """A model that wants more memory than there is."""

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: object = None) -> Self:
        raise MemoryError


def test_want_of_memory_is_a_failure(groups: Interactions) -> None:
    found = run(job(groups, Greedy()), TrialRequest(1, {"power": 1.0}))
    assert found == Failure("There is not enough memory for it: use fewer workers or a larger machine.")


def test_a_hopeless_trial_stops_and_has_a_score(groups: Interactions) -> None:
    asked = job(groups, "recfusion", max_epochs=12, patience=12)
    found = run(asked, TrialRequest(9, {"lr": 1e-3}, (1.0,) * 12))
    assert (found.status, len(found.curve.epoch)) == ("stopped", GRACE)
    assert found.reason == f"below the median of the trials before it in epoch {GRACE}"
    assert found.score is not None
    whole = run(asked, TrialRequest(9, {"lr": 1e-3}))
    assert (whole.status, whole.reason, len(whole.curve.epoch)) == ("ok", "", 12)


def test_trials_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "new" / "trials.jsonl"
    curve = Curve((1, 2), (0.5, None), (None, 0.25), (2.0, 3.0))
    trials = [
        Trial({"l2": 3.0}, 0.5, 4, "stopped", {"l1": 2}, "below", curve, 7.5),
        Trial({}, None, 0, "failed", reason="it died"),
    ]
    for trial in trials:
        append_trial(path, SEARCH, trial)
    assert read_trials(path, SEARCH) == {4: trials[0], 0: trials[1]}
    append_trial(path, SEARCH, Trial({}, 0.9, 4))
    assert read_trials(path, SEARCH)[4] == trials[0]  # of two with one number the first counts


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"recfusion_trial": 3}, "recfusion_trial: input should be 2"),
        ({"trial": {"settings": {}, "score": "x"}}, "trial.score: input should be a valid number"),
        ({"trial": {"settings": {}, "score": 1.0, "status": "odd"}}, "trial.status: input should be 'ok', 'stopped'"),
        ({"trial": {"settings": {}, "score": float("nan")}}, "trial.score: input should be a finite number"),
        ({"more": 1}, "more: extra inputs are not permitted"),
        ({"trial": None}, "trial"),
    ],
)
def test_a_changed_line_is_refused_by_its_field(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    path = tmp_path / "trials.jsonl"
    append_trial(path, SEARCH, Trial({}, 0.5))
    path.write_text(json.dumps(json.loads(path.read_text()) | change, separators=(",", ":")) + "\n")
    with pytest.raises(InputError, match="line 1") as refused:
        read_trials(path, SEARCH)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
