"""Result documents: read from stores and from JSON, refused where they are something else."""

import json
import logging
import math
from pathlib import Path
from typing import Any

import pytest
from stored import METRICS, small_data, stored_rows, write_store

from recfusion.core.errors import InputError
from recfusion.data.protocol import Protocol
from recfusion.data.settings import SplitPlan
from recfusion.experiments.results import result_document
from recfusion.experiments.store import append_row
from recfusion.report.document import main_metric, n_splits, ranked, read_document, store_document


def test_a_store_becomes_a_document_with_tests_against_ease_and_versions(tmp_path: Path) -> None:
    document = read_document(write_store(tmp_path / "tried.jsonl"))
    plain = result_document([row.run() for row in stored_rows()])
    assert document["models"] == plain["models"]
    assert {(test["metric"], test["a"], test["b"]) for test in document["reference_tests"]} == {
        (metric, other, "ease") for metric in METRICS for other in ("popularity", "small")
    }
    assert all(test["seeds"] == [1] for test in document["reference_tests"])
    assert set(document["versions"]) == {"recfusion", "numpy", "torch", "python"}
    assert "paper" not in document  # other data than the paper's


def test_the_json_of_a_comparison_is_read_as_it_is(tmp_path: Path) -> None:
    document = json.loads(json.dumps(result_document([row.run() for row in stored_rows()])))
    (tmp_path / "results.json").write_text(json.dumps(document, indent=2))
    assert read_document(tmp_path / "results.json") == document


def test_a_torn_last_line_is_left_out_and_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = write_store(tmp_path / "tried.jsonl")
    store.write_bytes(store.read_bytes()[:-500])
    with caplog.at_level(logging.WARNING):
        document = read_document(store)
    assert document["models"]["small"]["seeds"] == [0]  # its second split was the last line
    assert "was cut short and is left out" in caplog.text


def test_rows_of_different_protocols_are_refused_in_one_sentence(tmp_path: Path) -> None:
    store = write_store(tmp_path / "tried.jsonl")
    row, data = stored_rows()[0], small_data()
    other = Protocol.of(data, SplitPlan(), ("ndcg@10",))
    append_row(store, row.model_copy(update={"protocol": other}))
    with pytest.raises(InputError, match=r"different protocols.*5 rows.*1 rows"):
        read_document(store)


def test_one_label_with_different_settings_is_refused_in_one_sentence() -> None:
    rows = list(stored_rows())
    ease = next(row for row in rows if row.label == "ease")
    other = ease.model_copy(update={"settings": {**ease.settings, "l2": 11.0}})
    with pytest.raises(InputError, match="holds ease with 2 different settings"):
        store_document([*rows, other], "here")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "There are no results in"),
        ("no json", "Expected results in"),
        ("[1]", "Expected a result document in"),
        ('{"models": 3}', "models: input should be a valid dictionary"),
        ('{"models": {}}', "There are no results in"),
        ('{"models": {"a": {"b": 1}}}', "compare models first"),
        ('{"models": {"a": {"m": {"mean": "x"}}}}', "models.a.m.mean: input should be a valid number"),
        ('{"models": {"a": {"m": {"mean": 1, "ci95": [1]}}}}', "models.a.m.ci95"),
        ('{"models": {"a": {"m": {"mean": 1}}}, "tests": [{"a": "b"}]}', "tests.0.metric: field required"),
        ('{"models": {"a": {"m": {"mean": 1}}}, "examples": "x"}', "examples: input should be a valid list"),
        ('{"models": {"a": {"m": {"mean": 1}}}, "examples": [{"user": "u"}]}', "examples.0.history: field required"),
    ],
)
def test_what_is_no_result_is_refused_in_one_sentence(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        read_document(path)
    assert str(path) in str(caught.value)
    assert str(caught.value).endswith(".")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Cannot read the results"):
        read_document(tmp_path / "nowhere.jsonl")


def test_a_store_without_rows_is_refused() -> None:
    with pytest.raises(InputError, match="no results in 'here' yet"):
        store_document([], "here")


def test_models_are_ranked_by_the_last_metric_of_accuracy() -> None:
    models: dict[str, dict[str, Any]] = {
        "a": {"ndcg@5": {"mean": 0.1}, "coverage@5": {"mean": 0.9}},
        "b": {"ndcg@5": {"mean": 0.3}},
        "c": {"ndcg@5": {"mean": math.nan}},
    }
    assert main_metric(models) == "ndcg@5"
    assert ranked(models) == ["b", "a", "c"]
    assert ranked(models, "coverage@5") == ["a", "b", "c"]


def test_the_number_of_splits_is_stated_or_counted() -> None:
    assert n_splits({"n_splits": 4}) == 4
    assert n_splits({"ndcg@5": {"mean": 0.1, "splits": [0.1, 0.1]}}) == 2
    assert n_splits({"ndcg@5": {"mean": 0.1}}) is None
