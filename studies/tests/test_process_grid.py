"""The table of the process grid: means over splits, by bound, with networks of both kinds in one line."""

import json
from pathlib import Path

import pytest

from process_grid import EXPERIMENT, table
from recfusion.experiments.experiment_file import read_experiment


def test_a_line_has_the_bound_and_both_rankings_and_says_who_has_fewer_splits() -> None:
    bound = {"mean": 200.0, "L_T": 1.0, "L_steps": 99.0, "L_0": 100.0, "ndcg@100": 0.25}
    fits = {
        "ease#0": {"ndcg@100": 0.5},
        "drift, constant (bound)#0": bound,
        "drift, constant (bound)#1": {**bound, "mean": 210.0},
        "drift, constant (rank)#0": {"ndcg@100": 0.4},
        "thinning, constant (bound)#0": {**bound, "mean": 100.0},
    }
    lines = table(fits).splitlines()[2:]
    assert lines == [
        "| thinning, constant | 100.0 | 1.0 | 99.0 | 100.0 | 25.00 (1) |  |",
        "| drift, constant | 205.0 | 1.0 | 99.0 | 100.0 | 25.00 | 40.00 (1) |",
        "| ease | | | | | | 50.00 |",
    ]


@pytest.mark.parametrize("data", ["ml100k", "ml1m"])
def test_the_page_has_the_table_of_what_was_measured(data: str) -> None:
    root = Path(__file__).parents[2]
    measured = root / "studies" / "results" / f"processes-{data}.json"
    if not measured.is_file():
        pytest.skip("not measured yet")
    page = (root / "docs" / "explanation" / "processes.md").read_text(encoding="utf-8")
    assert table(json.loads(measured.read_text(encoding="utf-8"))["fits"]) in page, "print it with --table"


def test_every_process_has_every_kind_of_rates() -> None:
    labels = {candidate.label for candidate, _ in read_experiment(EXPERIMENT).models}
    for process in ("paper-kernel", "bit-flips", "drift", "thinning"):
        for rates in ("increasing", "decreasing", "constant", "learned"):
            assert f"{process}, {rates} (bound)" in labels
            assert rates == "learned" or f"{process}, {rates} (rank)" in labels
