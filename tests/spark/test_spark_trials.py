"""Trials on Spark: the same search as on one machine, from a file that either engine goes on with."""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import foreign
from foreign import Mine
from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.experiments.tuning.engine import local_engine
from recfusion.experiments.tuning.space_file import tuning_space
from recfusion.experiments.tuning.tune import SearchRequest, refit_best, run_trials
from recfusion.models.registry import entry, find
from recfusion.training.search_space import Choice, Interval, Space

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def request(trials: int) -> SearchRequest:
    space: Space = {"l1": Interval(0.5, 50.0, log=True), "l2": Interval(1.0, 100.0)}
    return SearchRequest(entry("slim"), space, trials=trials)


def test_a_search_begun_here_goes_on_on_spark_and_is_the_same_search(
    session: "SparkSession", groups: Interactions, tmp_path: Path
) -> None:
    from recfusion.spark.trials import spark_engine

    here = run_trials(groups, request(4), local_engine(0, threads=1), tmp_path / "here")
    run_trials(groups, request(2), local_engine(0, threads=1), tmp_path / "both")
    lines = (tmp_path / "both" / "trials.jsonl").read_bytes()
    both = run_trials(groups, request(4), spark_engine(session, 2), tmp_path / "both")
    assert (tmp_path / "both" / "trials.jsonl").read_bytes().startswith(lines)
    assert {n: (one.settings, one.status) for n, one in both.items()} == {
        n: (one.settings, one.status) for n, one in here.items()
    }
    assert [both[n].score for n in range(4)] == pytest.approx([here[n].score for n in range(4)])


def test_a_failed_trial_on_spark_has_its_reason_and_the_others_count(
    session: "SparkSession", groups: Interactions, tmp_path: Path
) -> None:
    from recfusion.spark.trials import spark_engine

    # Half of the space cannot be: a predicted variance needs a Gaussian process.
    space: Space = {"variance": Choice(("predicted",)), "lr": Interval(1e-3, 1e-2)}
    given = {"process": "thinning", "max_epochs": 1}
    asked = SearchRequest(entry("recfusion-bin"), space, given, trials=2, metric="recall@5")
    tuned = refit_best(groups, asked, run_trials(groups, asked, spark_engine(session, 2), tmp_path), tmp_path)
    assert [tuned.trials[n].status for n in range(2)] == ["ok", "failed"]
    assert "predicted variance" in tuned.trials[1].reason
    document = json.loads((tmp_path / "best.json").read_text())
    assert document["trials"] == {"ok": 1, "stopped": 0, "failed": 1}
    assert document["test"]["recall@5"]["mean"] >= 0


@pytest.mark.parametrize("place", ["foreign:Mine", "mine.py:Mine"])
def test_somebody_s_class_is_tried_by_spark_s_workers(
    session: "SparkSession", groups: Interactions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    from recfusion.spark.trials import spark_engine

    if place == "foreign:Mine":
        session.sparkContext.addPyFile(foreign.__file__)  # as a package that every machine has
    shutil.copy(foreign.__file__, tmp_path / "mine.py")
    monkeypatch.chdir(tmp_path)
    row, given = find(place), {"note": str(tmp_path / "note")}
    asked = SearchRequest(row, tuning_space(row, given), given, trials=2)
    there = run_trials(groups, asked, spark_engine(session, 1), None)
    assert str(os.getpid()) not in (tmp_path / "note").read_text().split()
    ours = find(Mine)
    here = run_trials(groups, SearchRequest(ours, tuning_space(ours, given), given, trials=2), local_engine(0), None)
    assert {n: (one.settings, one.score) for n, one in there.items()} == {
        n: (one.settings, one.score) for n, one in here.items()
    }


def test_a_class_that_no_worker_can_import_is_refused(session: "SparkSession", groups: Interactions) -> None:
    from recfusion.spark.trials import spark_engine

    @dataclass
    class Local(Mine):
        """Of a function."""

    row = find(Local)
    with pytest.raises(InputError, match=r"Spark's workers cannot import the class Local: put it into a file"):
        run_trials(groups, SearchRequest(row, tuning_space(row, {}), trials=1), spark_engine(session, 1), None)
