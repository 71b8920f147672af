"""Trials on Spark: the same search as on one machine, from a file that either engine goes on with."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from recfusion.tuning.local import LocalEngine

from recfusion.data.interactions import Interactions
from recfusion.search.space import Choice, Interval, Space
from recfusion.tuning.tune import Request, run_trials, tune

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def request(trials: int) -> Request:
    return Request("slim", {"l1": Interval(0.5, 50.0, log=True), "l2": Interval(1.0, 100.0)}, trials=trials)


def test_a_search_begun_here_goes_on_on_spark_and_is_the_same_search(
    session: "SparkSession", groups: Interactions, tmp_path: Path
) -> None:
    from recfusion.spark.engine import SparkEngine

    here = run_trials(groups, request(4), LocalEngine(threads=1), tmp_path / "here")
    run_trials(groups, request(2), LocalEngine(threads=1), tmp_path / "both")
    lines = (tmp_path / "both" / "trials.jsonl").read_bytes()
    both = run_trials(groups, request(4), SparkEngine(session, 2), tmp_path / "both")
    assert (tmp_path / "both" / "trials.jsonl").read_bytes().startswith(lines)
    assert {n: (one.settings, one.status) for n, one in both.items()} == {
        n: (one.settings, one.status) for n, one in here.items()
    }
    assert [both[n].score for n in range(4)] == pytest.approx([here[n].score for n in range(4)])


def test_a_failed_trial_on_spark_has_its_reason_and_the_others_count(
    session: "SparkSession", groups: Interactions, tmp_path: Path
) -> None:
    from recfusion.spark.engine import SparkEngine

    # Half of the space cannot be: a predicted variance needs a Gaussian process.
    space: Space = {"variance": Choice(("predicted",)), "lr": Interval(1e-3, 1e-2)}
    given = {"process": "thinning", "max_epochs": 1}
    asked = Request("recfusion-bin", space, given, trials=2, metric="recall@5")
    tuned = tune(groups, asked, SparkEngine(session, 2), tmp_path)
    assert [tuned.trials[n].status for n in range(2)] == ["ok", "failed"]
    assert "predicted variance" in tuned.trials[1].reason
    document = json.loads((tmp_path / "best.json").read_text())
    assert document["trials"] == {"ok": 1, "stopped": 0, "failed": 1}
    assert document["test"]["recall@5"]["mean"] >= 0
