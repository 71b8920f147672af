"""A search as a whole: kept trial by trial, gone on with after a kill, its best refitted and judged once."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path

import pytest

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.data.split import split
from recfusion.evaluation.evaluate import evaluate
from recfusion.models.bundle import Bundle
from recfusion.search.space import Choice, Interval
from recfusion.tuning.local import LocalEngine
from recfusion.tuning.trial import Asked, Event, Job, Outcome, run_trial
from recfusion.tuning.tune import Progress, Request, run_trials, settings_to_try, tune

SPACE = {"l2": Interval(1.0, 1000.0, log=True)}


class Here:
    """An engine within this process, which may end a trial as if its process died."""

    def __init__(self, dies: tuple[int, ...] = ()) -> None:
        self.dies = dies
        self.ran: list[int] = []

    def run(
        self, job: Job, next_trial: Callable[[], Asked | None], count: int, seconds: float
    ) -> Generator[Event, None, None]:
        while (asked := next_trial()) is not None:
            self.ran.append(asked.number)
            if asked.number in self.dies:
                yield Outcome(asked.number, "failed", asked.settings, reason="it died")
            else:
                yield run_trial(job, asked, threads=1)


def asked(trials: int = 6, **options: object) -> Request:
    request = Request("ease", SPACE, {"tune_trials": 2}, trials=trials)  # the defaults are a short search by themselves
    return replace(request, **options)  # type: ignore[arg-type]


def test_the_best_is_never_worse_than_the_defaults_and_is_saved_with_its_test(
    groups: Interactions, tmp_path: Path
) -> None:
    tuned = tune(groups, asked(), Here(), tmp_path)
    scores = {number: one.score or 0 for number, one in tuned.trials.items()}
    assert tuned.best.score == max(scores.values()) >= scores[0]
    document = json.loads((tmp_path / "best.json").read_text())
    assert document["trial"] == tuned.best.number
    assert document["settings"]["l2"] == {**tuned.best.settings, **tuned.best.chosen}["l2"]
    bundle = Bundle.load(tmp_path / "model")
    parts = split(groups, seed=0)
    test = evaluate(bundle.model, parts.test, parts.train).mean()
    assert document["test"]["ndcg@100"]["mean"] == pytest.approx(test["ndcg@100"])
    assert bundle.metrics["test"] == document["test"]
    assert bundle.searched == ("l2",)
    assert "| search |" in (tmp_path / "model" / "README.md").read_text()
    assert bundle.metrics["validation"]["ndcg@100"]["mean"] == pytest.approx(tuned.best.score)


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
    assert again[2].settings == json.loads(lines[2])["settings"]


def test_a_finished_search_is_not_refitted_or_tested_again(groups: Interactions, tmp_path: Path) -> None:
    first = tune(groups, asked(3), Here(), tmp_path)
    marks = [(tmp_path / name).stat().st_mtime_ns for name in ("best.json", "model/config.json")]
    second = tune(groups, asked(3), Here(), tmp_path)
    assert second.document == first.document
    assert [(tmp_path / name).stat().st_mtime_ns for name in ("best.json", "model/config.json")] == marks


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metric": "recall@5"}, "another protocol"),
        ({"seed": 3}, "another seed"),
        ({"model": "slim", "given": {}}, "another model: there 'ease'"),
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
    tuned = tune(groups, asked(4), Here(dies=(0, 2)), tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "trials.jsonl").read_text().splitlines()]
    assert [(line["status"], line["reason"]) for line in lines if line["status"] == "failed"] == [
        ("failed", "it died"),
        ("failed", "it died"),
    ]
    assert tuned.document["trials"] == {"ok": 2, "stopped": 0, "failed": 2}
    assert tuned.document["default"] is None
    with pytest.raises(InputError, match="All 2 trials failed; trial 0: it died"):
        tune(groups, asked(2), Here(dies=(0, 1)), tmp_path / "none")


def test_early_trials_depend_on_their_number_alone_and_later_ones_on_the_past() -> None:
    request = asked(20)
    past = {n: Outcome(n, "ok", {"l2": 10.0 + n}, score=0.1 * n) for n in range(10)}
    assert settings_to_try(request, {}, 0) == {}
    assert settings_to_try(request, {}, 5) == settings_to_try(request, past, 5)
    assert settings_to_try(request, past, 5) != settings_to_try(request, past, 6)
    later = settings_to_try(request, past, 12)
    assert later == settings_to_try(request, past, 12)
    assert later != settings_to_try(request, {**past, 10: Outcome(10, "ok", {"l2": 900.0}, score=9.0)}, 12)
    by_chance = replace(request, algorithm="random")
    assert settings_to_try(by_chance, past, 12) == settings_to_try(by_chance, {}, 12)


def test_defaults_outside_the_space_are_not_learned_from() -> None:
    request = replace(asked(20), model="slim", given={}, space={"l2": Interval(1.0, 5.0), "l1": Choice((1.0, 2.0))})
    past = {0: Outcome(0, "ok", {}, score=0.9)}  # slim's own l2 is 200 and l1 10
    past |= {n: Outcome(n, "ok", {"l2": 1.0 + n / 10, "l1": 1.0}, score=0.1) for n in range(1, 10)}
    assert 1 <= settings_to_try(request, past, 10)["l2"] <= 5


@pytest.mark.parametrize("parallel", [1, 2])
def test_processes_give_the_numbers_of_this_one(groups: Interactions, tmp_path: Path, parallel: int) -> None:
    request = asked(3, algorithm="random")
    here = run_trials(groups, request, Here(), tmp_path / "here")
    there = run_trials(groups, request, LocalEngine(parallel, threads=1), tmp_path / "there")
    assert {n: one.settings for n, one in there.items()} == {n: one.settings for n, one in here.items()}
    assert [there[n].score for n in range(3)] == pytest.approx([here[n].score for n in range(3)])


def test_the_time_that_is_given_ends_the_trials(groups: Interactions, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No trial ended in the time"):
        tune(groups, asked(2, seconds=0.01), LocalEngine(1, threads=1), tmp_path)


KILLED = """
import sys
from pathlib import Path
from recfusion.data.load import load
from recfusion.search.space import Interval
from recfusion.tuning.local import LocalEngine
from recfusion.tuning.tune import Request, run_trials
if __name__ == "__main__":
    space = {"l2": Interval(1.0, 1000.0, log=True)}
    request = Request("ease", space, {"tune_trials": 1}, trials=500)
    run_trials(load("ml-latest-small"), request, LocalEngine(2, threads=1), Path(sys.argv[1]))
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
    kept = [json.loads(line)["number"] for line in file.read_text().splitlines()]
    assert len(kept) >= 3
    from recfusion.data.load import load

    engine = Here()
    request = Request("ease", SPACE, {"tune_trials": 1}, trials=max(kept) + 2)
    ended = run_trials(load("ml-latest-small"), request, engine, tmp_path / "out")
    assert sorted([*kept, *engine.ran]) == sorted(ended) == list(range(max(kept) + 2))
