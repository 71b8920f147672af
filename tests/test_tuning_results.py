"""What is kept of the searches for the defaults."""

import runpy
from pathlib import Path
from typing import Any

import pytest

from recfusion.models.neural.network import NeuralRecommender
from recfusion.models.registry import MODELS

SCRIPT = runpy.run_path(str(Path(__file__).parents[1] / "scripts" / "tuning_summary.py"))
KEPT: Path = SCRIPT["KEPT"]
LEAST_TRIALS = 15


@pytest.fixture(scope="module")
def summaries() -> list[dict[str, Any]]:
    return [SCRIPT["read"](path) for path in sorted(KEPT.glob("*.json"))]


# their defaults were not searched
NOT_YET = {"flowcf", "lightgcn", "sasrec", "recfusion-seq", "thinning-order"}


def test_every_network_but_the_unets_was_searched(summaries: list[dict[str, Any]]) -> None:
    networks = {
        name for name, one in MODELS.items() if issubclass(one.load(), NeuralRecommender) and "net" not in one.settings
    } - NOT_YET
    assert {one["model"] for one in summaries} == networks
    assert [one["model"] for one in summaries if len(one["tried"]) < LEAST_TRIALS] == []


def test_a_search_is_never_worse_than_the_defaults_it_began_with(summaries: list[dict[str, Any]]) -> None:
    for one in summaries:
        assert one["validation"] == max(trial["score"] for trial in one["tried"] if trial["status"] == "ok")
        assert one["validation"] >= one["default"]


def test_the_committed_table_of_searches_is_what_their_files_give(summaries: list[dict[str, Any]]) -> None:
    assert KEPT.with_suffix(".md").read_text(encoding="utf-8") == SCRIPT["table"](summaries)
