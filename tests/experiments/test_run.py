"""Running experiments: in parallel, killed, and gone on with."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from foreign import Dying, Mine
from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.data.options import SplitPlan
from recfusion.experiments.candidate import candidates
from recfusion.experiments.comparison import Comparison
from recfusion.experiments.experiment_file import Experiment, read_experiment
from recfusion.experiments.fit_queue import Task
from recfusion.experiments.result import Result, read_results
from recfusion.experiments.run import Event, RunSummary, run_candidates, run_experiment, stored_results

SMALL = """
name = "small"
[data]
data = "shop.csv"
[run]
seeds = {seeds}
metrics = ["recall@3", "coverage@3", "ndcg@5"]
{models}
"""
MODELS = """
[models.random]
[models.ease]
l2 = 5
[models.same]
model = "ease"
l2 = 5.0
seeds = 1
[models.open]  # the fit chooses l2
model = "ease"
seeds = 1
"""


def written(folder: Path, *, seeds: int = 2, models: str = MODELS) -> Path:
    """Write an experiment, and a table in which items come in sixes that the same users have."""
    rows = [
        f"u{user},{6 * ((user % 3) * 4 + (user + step) % 5) + twin}"
        for user in range(60)
        for step in range(4)
        for twin in range(6)
    ]
    (folder / "shop.csv").write_text("user,item\n" + "\n".join(rows) + "\n")
    (folder / "small.toml").write_text(SMALL.format(seeds=seeds, models=models))
    return folder / "small.toml"


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    return read_experiment(written(tmp_path_factory.mktemp("experiment")))


@pytest.fixture(scope="module")
def store(experiment: Experiment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The experiment's finished store; tests copy it; fitted in this process."""
    path = tmp_path_factory.mktemp("store") / "s.jsonl"
    run_experiment(experiment, path, workers=0)
    return path


def values(result: Result) -> Any:
    """Return what must not depend on when and how a result was computed."""
    when_and_how = {"fit_seconds", "cpu_seconds", "energy_joules", "score_seconds", "finished", "threads", "label"}
    return result.model_dump(mode="json", exclude={*when_and_how, "commit"})


def untimed(ran: RunSummary) -> dict[str, Any]:
    document = Comparison.of(ran.results).document()
    del document["finished"]
    for entry in document["models"].values():
        for name in ("fit_seconds", "cpu_seconds", "energy_joules", "score_seconds", "code_versions"):
            del entry[name]
    return document


def test_numbers_do_not_depend_on_the_number_of_workers(experiment: Experiment, store: Path, tmp_path: Path) -> None:
    here = run_experiment(experiment, store)
    two = run_experiment(experiment, tmp_path / "two.jsonl", workers=2)
    in_order = [("random", 0), ("random", 1), ("ease", 0), ("ease", 1), ("same", 0), ("open", 0)]
    assert [(one.label, one.seed) for one in here.results] == in_order
    assert [values(one) for one in here.results] == [values(one) for one in two.results]
    assert untimed(here) == untimed(two)
    assert (here.computed, two.computed, two.failures) == (0, 6, {})
    assert untimed(here)["models"]["same"]["n_splits"] == 1


def test_a_model_under_another_label_gives_the_same_numbers(experiment: Experiment, store: Path) -> None:
    by_task = {(one.label, one.seed): values(one) for one in run_experiment(experiment, store).results}
    assert by_task["same", 0] == by_task["ease", 0]


def test_only_what_is_missing_is_run(experiment: Experiment, store: Path, tmp_path: Path) -> None:
    kept = [line for line in store.read_bytes().splitlines(keepends=True) if b'"label":"random"' in line]
    part = tmp_path / "part.jsonl"
    part.write_bytes(b"".join(kept))
    events: list[Event] = []
    outcome = run_experiment(experiment, part, workers=0, on_event=events.append)
    assert part.read_bytes().startswith(b"".join(kept))
    assert outcome.computed == 4
    finished = [str(event.task) for event in events if event.kind == "finished"]
    assert finished == ["ease, split 0", "same, split 0", "open, split 0", "ease, split 1"]
    assert (events[0].kind, events[0].status.done, events[0].status.total) == ("planned", 2, 6)
    assert events[0].status.seconds_left is None  # nobody knows yet how long ease takes
    last = events[-1].status
    assert (last.done, last.seconds_left, last.running) == (6, 0, {})
    whole = part.read_bytes()
    again = run_experiment(experiment, part)
    assert (again.computed, part.read_bytes()) == (0, whole)
    assert [one.key for one in again.results] == [one.key for one in outcome.results]
    assert untimed(again) == untimed(outcome)


def test_a_result_is_in_the_store_when_it_is_told_of(groups: Interactions, tmp_path: Path) -> None:
    store, told = tmp_path / "s.jsonl", list[list[int]]()

    def hear(event: Event) -> None:
        if event.kind == "finished":
            told.append([one.seed for one in read_results(store)])

    planned = [(one, (0, 1)) for one in candidates(["popularity"])]
    run_candidates(groups, planned, plan=SplitPlan(), metrics=("ndcg@5",), store=store, workers=0, on_event=hear)
    assert told == [[0], [0, 1]]


def test_a_result_of_other_settings_is_not_taken_for_done(store: Path, tmp_path: Path) -> None:
    path, copy = written(tmp_path, models=MODELS.replace("l2 = 5\n", "l2 = 6\n")), tmp_path / "copy.jsonl"
    copy.write_bytes(store.read_bytes())
    outcome = run_experiment(read_experiment(path), copy, workers=0)
    assert outcome.computed == 2
    assert {one.settings.get("l2") for one in outcome.results} == {None, 5.0, 6.0}
    assert len(read_results(copy)) == 8
    assert [one.key for one in stored_results(read_experiment(path), read_results(copy))] == [
        one.key for one in outcome.results
    ]


def test_a_fit_that_fails_is_reported_and_the_others_go_on(tmp_path: Path) -> None:
    models = (
        "[models.broken]\nmodel = 'ease'\nl2 = 1e-6\n[models.popularity]\n"  # equal columns make the matrix singular
    )
    experiment, store = read_experiment(written(tmp_path, models=models)), tmp_path / "s.jsonl"
    outcome = run_experiment(experiment, store, workers=0)
    assert list(outcome.failures) == [Task("broken", 0), Task("broken", 1)]
    assert "not positive definite: raise the regularisation" in outcome.failures[Task("broken", 0)].reason
    assert [one.label for one in outcome.results] == ["popularity", "popularity"]
    assert [one.label for one in read_results(store)] == ["popularity", "popularity"]


def test_the_death_of_a_worker_fails_its_task_alone(groups: Interactions, tmp_path: Path) -> None:
    planned = [(candidate, (0,)) for candidate in candidates({"dying": Dying(), "mine": Mine(), "again": Mine()})]
    store, metrics = tmp_path / "s.jsonl", ("ndcg@5",)
    outcome = run_candidates(groups, planned, plan=SplitPlan(), metrics=metrics, store=store, workers=1)
    assert list(outcome.failures) == [Task("dying", 0)]
    assert "ended by signal 9" in outcome.failures[Task("dying", 0)].reason
    assert [one.label for one in outcome.results] == [one.label for one in read_results(store)] == ["mine", "again"]
    assert multiprocessing.active_children() == []


def test_data_that_cannot_be_split_is_refused_once(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_text(path.read_text() + '[split]\nkind = "temporal"\n')
    with pytest.raises(InputError, match="needs times"):
        run_experiment(read_experiment(path), tmp_path / "s.jsonl")
    assert not (tmp_path / "s.jsonl").exists()


def test_fewer_than_no_workers_are_refused(experiment: Experiment, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least one worker, or 0 for this process, got -1"):
        run_experiment(experiment, tmp_path / "s.jsonl", workers=-1)


def started(path: Path, until: str) -> "subprocess.Popen[str]":
    """Start `recfusion run` in a process of its own and return when its progress has come to `until`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "recfusion", "run", path.name, "--out", "killed.jsonl", "--workers", "1"],
        cwd=path.parent,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Where the tests run in the background of a shell, SIGINT is ignored; the command must not inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stderr is not None
    assert any(line.startswith(until) for line in process.stderr)
    return process


@pytest.mark.slow
def test_a_killed_run_is_gone_on_with(tmp_path: Path) -> None:
    path = written(tmp_path, seeds=15)
    process = started(path, "[3/")
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate()
    kept = read_results(tmp_path / "killed.jsonl")
    assert 3 <= len(kept) < 32
    psutil.wait_procs(children, timeout=10)
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)

    experiment = read_experiment(path)
    resumed = run_experiment(experiment, tmp_path / "killed.jsonl", workers=0)
    assert resumed.computed == 32 - len(kept)
    stamps = {one.key: one.finished for one in resumed.results}
    assert all(stamps[one.key] == one.finished for one in kept)
    whole = run_experiment(experiment, tmp_path / "whole.jsonl", workers=0)
    assert untimed(resumed) == untimed(whole)


@pytest.mark.slow
def test_an_interrupt_keeps_what_is_done_and_says_how_to_go_on(tmp_path: Path) -> None:
    process = started(written(tmp_path, seeds=15), "[2/")
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - began < 20
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    kept = len(read_results(tmp_path / "killed.jsonl"))
    assert 2 <= kept < 32
    assert f"{kept} of 32 fits are saved in killed.jsonl: run the same command to resume." in err
