"""A search as a whole: kept trial by trial, gone on with after a kill, its best refitted and judged once."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import foreign
from recfusion.core.errors import InputError
from recfusion.core.pool import Failure, attempt
from recfusion.data.interactions import Interactions
from recfusion.data.split import split
from recfusion.evaluation.evaluate import evaluate
from recfusion.experiments.tuning.engine import NextTrial, OnTrial, TrialJob, local_engine
from recfusion.experiments.tuning.tune import (
    Progress,
    SearchRequest,
    TuningResult,
    known_best,
    refit_best,
    run_trials,
    settings_to_try,
    tune,
)
from recfusion.inference.bundle import Bundle
from recfusion.models.registry import entry
from recfusion.training.search_space import Choice, Interval
from recfusion.training.trial import Trial

SPACE = {"l2": Interval(1.0, 1000.0, log=True)}


class Here:
    """An engine within this process, which may end a trial as if its process died."""

    def __init__(self, dies: tuple[int, ...] = ()) -> None:
        self.dies = dies
        self.ran: list[int] = []

    def __call__(self, job: TrialJob, next_trial: NextTrial, on_event: OnTrial, seconds: float) -> None:
        work = job.start()
        while (asked := next_trial()) is not None:
            self.ran.append(asked.number)
            dies = asked.number in self.dies
            on_event("ended", asked, Failure("it died") if dies else attempt(work, asked, lambda told: None))


def asked(trials: int = 6, **options: object) -> SearchRequest:
    # The defaults are a short search by themselves.
    request = SearchRequest(entry("ease"), SPACE, {"tune_trials": 2}, trials=trials)
    return replace(request, **options)  # type: ignore[arg-type]


def searched(data: Interactions, request: SearchRequest, engine: Here, folder: Path) -> TuningResult:
    """Run what is missing of a search, and refit its best unless that is there."""
    ended = run_trials(data, request, engine, folder)
    return known_best(data, request, ended, folder) or refit_best(data, request, ended, folder)


def test_trials_are_sent_no_test_user(groups: Interactions) -> None:
    jobs: list[TrialJob] = []
    run_trials(groups, asked(), lambda job, *_: jobs.append(job), None)
    (job,), parts = jobs, split(groups, seed=0)
    assert job.parts.valid.users.tolist() == parts.valid.users.tolist()
    assert [len(job.parts.test.users), job.parts.test.history.nnz, job.parts.test.held_out.nnz] == [0, 0, 0]


def test_the_best_is_never_worse_than_the_defaults_and_is_saved_with_its_test(
    groups: Interactions, tmp_path: Path
) -> None:
    tuned = tune("ease", groups, {"tune_trials": 2}, trials=6, folder=tmp_path)
    scores = {number: one.score or 0 for number, one in tuned.trials.items()}
    assert tuned.best.score == max(scores.values()) >= scores[0]
    document = json.loads((tmp_path / "best.json").read_text())
    assert (document["trial"], document["settings"]) == (tuned.best.number, tuned.settings)
    assert document["settings"]["l2"] == {**tuned.best.settings, **tuned.best.chosen}["l2"]
    bundle = Bundle.load(tmp_path / "model")
    parts = split(groups, seed=0)
    test = evaluate(bundle.model, parts.test, parts.train).mean()
    assert document["test"]["ndcg@100"]["mean"] == pytest.approx(test["ndcg@100"])
    assert bundle.metrics["test"] == document["test"]
    assert bundle.searched == ("l2",)
    assert "| search |" in (tmp_path / "model" / "README.md").read_text()
    assert bundle.metrics["validation"]["ndcg@100"]["mean"] == pytest.approx(tuned.best.score)


def test_the_settings_of_a_variant_are_in_its_name(groups: Interactions, tmp_path: Path) -> None:
    run_trials(
        groups,
        SearchRequest(entry("thinning-pairs"), {"l2": Interval(1.0, 9.0)}, {}, trials=1),
        Here(dies=(0,)),
        tmp_path,
    )
    line = json.loads((tmp_path / "trials.jsonl").read_text())
    assert (line["search"]["model"], line["search"]["fixed"]) == ("thinning-pairs", {})


def test_a_search_that_is_stopped_goes_on_to_the_same_end(groups: Interactions, tmp_path: Path) -> None:
    whole = run_trials(groups, asked(11), Here(), tmp_path / "whole")

    def stop(progress: Progress) -> None:
        if progress.done == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_trials(groups, asked(11), Here(), tmp_path / "parts", on_progress=stop)
    file = tmp_path / "parts" / "trials.jsonl"
    with file.open("ab") as torn:
        torn.write(file.read_bytes().splitlines()[0][:50])  # as a crash would leave it
    engine = Here()
    again = run_trials(groups, asked(11), engine, tmp_path / "parts")
    assert engine.ran == [9, 10]
    assert {n: (one.settings, one.score) for n, one in again.items()} == {
        n: (one.settings, one.score) for n, one in whole.items()
    }
    engine = Here()
    run_trials(groups, asked(11), engine, tmp_path / "parts")
    assert engine.ran == []


def test_a_number_that_was_lost_is_tried_first(groups: Interactions, tmp_path: Path) -> None:
    run_trials(groups, asked(4), Here(), tmp_path)
    file = tmp_path / "trials.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0] + lines[1] + lines[3])
    engine = Here()
    again = run_trials(groups, asked(5), engine, tmp_path)
    assert engine.ran == [2, 4]
    assert again[2].settings == json.loads(lines[2])["trial"]["settings"]


def test_a_finished_search_is_not_refitted_or_tested_again(groups: Interactions, tmp_path: Path) -> None:
    first = searched(groups, asked(3), Here(), tmp_path)
    marks = [(tmp_path / name).stat().st_mtime_ns for name in ("best.json", "model/config.json")]
    second = searched(groups, asked(3), Here(), tmp_path)
    assert second.document == first.document
    assert [(tmp_path / name).stat().st_mtime_ns for name in ("best.json", "model/config.json")] == marks


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metric": "recall@5"}, "another protocol"),
        ({"seed": 3}, "another seed"),
        ({"entry": entry("slim"), "given": {}}, "another model: 'ease' there"),
        ({"space": {"l2": Interval(1.0, 10.0)}}, "another search space"),
        ({"given": {"tune_trials": "3"}}, "other given settings"),
        ({"metric": "calibrated_recall@20"}, "another metric"),
    ],
)
def test_trials_of_another_search_are_refused(
    groups: Interactions, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    run_trials(groups, asked(1), Here(), tmp_path)
    with pytest.raises(InputError, match=message):
        run_trials(groups, asked(2, **change), Here(), tmp_path)


def test_failed_trials_are_kept_with_their_reason_and_do_not_end_the_search(
    groups: Interactions, tmp_path: Path
) -> None:
    tuned = searched(groups, asked(4), Here(dies=(0, 2)), tmp_path)
    lines = [json.loads(line)["trial"] for line in (tmp_path / "trials.jsonl").read_text().splitlines()]
    assert [(line["status"], line["reason"]) for line in lines if line["status"] == "failed"] == [
        ("failed", "it died"),
        ("failed", "it died"),
    ]
    assert tuned.document["trials"] == {"ok": 2, "stopped": 0, "failed": 2}
    assert tuned.document["default"] is None
    with pytest.raises(InputError, match="All 2 trials failed; trial 0: it died"):
        searched(groups, asked(2), Here(dies=(0, 1)), tmp_path / "none")


def test_early_trials_depend_on_their_number_alone_and_later_ones_on_the_past() -> None:
    request = asked(20)
    past = {n: Trial({"l2": 10.0 + n}, 0.1 * n, n) for n in range(10)}
    assert settings_to_try(request, {}, 0) == {}
    assert settings_to_try(request, {}, 5) == settings_to_try(request, past, 5)
    assert settings_to_try(request, past, 5) != settings_to_try(request, past, 6)
    later = settings_to_try(request, past, 12)
    assert later == settings_to_try(request, past, 12)
    assert later != settings_to_try(request, {**past, 10: Trial({"l2": 900.0}, 9.0, 10)}, 12)
    by_chance = replace(request, algorithm="random")
    assert settings_to_try(by_chance, past, 12) == settings_to_try(by_chance, {}, 12)


def test_defaults_outside_the_space_are_not_learned_from() -> None:
    request = replace(
        asked(20), entry=entry("slim"), given={}, space={"l2": Interval(1.0, 5.0), "l1": Choice((1.0, 2.0))}
    )
    past = {0: Trial({}, 0.9)}  # slim's own l2 is 200 and l1 10
    past |= {n: Trial({"l2": 1.0 + n / 10, "l1": 1.0}, 0.1, n) for n in range(1, 10)}
    assert 1 <= settings_to_try(request, past, 10)["l2"] <= 5


def test_processes_give_the_numbers_of_this_one(groups: Interactions, tmp_path: Path) -> None:
    request = asked(3, algorithm="random")
    here = run_trials(groups, request, local_engine(0, threads=1), None)
    there = run_trials(groups, request, local_engine(2, threads=1), tmp_path)
    assert {n: one.settings for n, one in there.items()} == {n: one.settings for n, one in here.items()}
    assert [there[n].score for n in range(3)] == pytest.approx([here[n].score for n in range(3)])


def test_no_clock_decides_what_is_tried(groups: Interactions, monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen() -> list[object]:
        tuned = tune("recfusion", groups, {"max_epochs": 8, "width": 8, "depth": 1}, trials=7)
        trials = [(one.settings, one.score, one.status, one.reason) for one in tuned.trials.values()]
        return [trials, tuned.settings, tuned.document["test"]]

    quiet, busy = chosen(), random.Random(0)
    for clock in ("perf_counter", "monotonic", "time", "process_time"):
        monkeypatch.setattr(f"time.{clock}", lambda: busy.uniform(-1e9, 1e9))
    monkeypatch.setattr("recfusion.experiments.tuning.tune.monotonic", lambda: busy.uniform(-1e9, 1e9))
    assert chosen() == quiet


def test_the_time_that_is_given_ends_the_trials(groups: Interactions, tmp_path: Path) -> None:
    request = asked(2, seconds=0.01)
    ended = run_trials(groups, request, local_engine(1, threads=1), tmp_path)
    with pytest.raises(InputError, match="No trial ended within the time"):
        refit_best(groups, request, ended, tmp_path)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda data: tune("ease", data, trials=0), "Expected at least one trial, got 0"),
        (lambda data: tune("ease", data, metric="speed@3"), "Unknown metric 'speed@3'"),
        (lambda data: tune("ease", data, workers=-1), "Expected at least one process and thread, got -1"),
        (lambda data: tune("ease", data, {"l3": 1}), "Unknown setting of ease 'l3'"),
        (lambda data: tune("esae", data), "Unknown model 'esae'"),
        (lambda data: tune(foreign.NoDataclass, data), "Expected the model NoDataclass to be a dataclass"),
        (lambda data: tune(foreign.Unfinished, data), "The model Unfinished lacks what every model has: score"),
        (lambda data: tune("popularity", data), "popularity declares no range"),
    ],
)
def test_what_cannot_be_searched_is_refused(
    groups: Interactions, call: Callable[[Interactions], object], words: str
) -> None:
    with pytest.raises(InputError) as refused:
        call(groups)
    assert words in str(refused.value)


KILLED = """
import sys
from pathlib import Path
from recfusion.data.load import load
from recfusion.training.search_space import Interval
from recfusion.models.registry import entry
from recfusion.experiments.tuning.engine import local_engine
from recfusion.experiments.tuning.tune import SearchRequest, run_trials
if __name__ == "__main__":
    space = {"l2": Interval(1.0, 1000.0, log=True)}
    request = SearchRequest(entry("ease"), space, {"tune_trials": 1}, trials=500)
    run_trials(load("ml-latest-small"), request, local_engine(2, threads=1), Path(sys.argv[1]))
"""


def test_a_killed_search_has_lost_no_trial_that_ended(tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text(KILLED)
    process = subprocess.Popen([sys.executable, str(tmp_path / "run.py"), str(tmp_path / "out")])
    file = tmp_path / "out" / "trials.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and (not file.exists() or file.read_bytes().count(b"\n") < 3):
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kept = [json.loads(line)["trial"]["number"] for line in file.read_text().splitlines()]
    assert len(kept) >= 3
    from recfusion.data.load import load

    engine = Here()
    request = SearchRequest(entry("ease"), SPACE, {"tune_trials": 1}, trials=max(kept) + 2)
    ended = run_trials(load("ml-latest-small"), request, engine, tmp_path / "out")
    assert sorted([*kept, *engine.ran]) == sorted(ended) == list(range(max(kept) + 2))
