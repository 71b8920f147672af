"""One result: fresh, as a line of the store, and as it shows itself."""

import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from fitted import changed, fits

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.experiments.result import Result, append_result, read_results


@pytest.fixture(scope="module")
def result(groups: Interactions) -> Result:
    return fits(groups, ["ease"], [4])[0]


def edited(folder: Path, result: Result, **values: Any) -> Path:
    """Write a store whose one line was changed by hand."""
    path = folder / "edited.jsonl"
    append_result(path, result)
    document = json.loads(path.read_text()) | values
    path.write_text(json.dumps(document, separators=(",", ":")) + "\n")
    return path


def packed(values: list[float], kind: str = "<f4") -> str:
    return base64.b64encode(np.array(values, kind).tobytes()).decode()


def test_what_is_read_is_what_was_written_bit_by_bit(result: Result, tmp_path: Path) -> None:
    append_result(tmp_path / "one.jsonl", result)
    (found,) = read_results(tmp_path / "one.jsonl")
    assert found.model_dump(mode="json") == result.model_dump(mode="json")
    for metric, values in result.test.items():
        assert found.test[metric].tobytes() == values.tobytes()
    assert (found.users.tobytes(), found.key) == (result.users.tobytes(), result.key)
    append_result(tmp_path / "two.jsonl", found)
    assert (tmp_path / "two.jsonl").read_bytes() == (tmp_path / "one.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"test": {"recall@5": packed([float("nan")] * 8)}}, "test.recall@5: expected finite values"),
        ({"test": {"recall@5": packed([float("inf")] * 8)}}, "test.recall@5: expected finite values"),
        ({"test": {"recall@5": packed([0.5] * 7)}}, "expected 8 values of recall@5, one per user, got 7"),
        ({"history_size": packed([1], "<i4")}, "expected 8 values of history_size, one per user, got 1"),
        ({"users": packed([1], "<i4")}, "expected 1 values of history_size, one per user, got 8"),
        ({"users": "AAA="}, "users: expected base64 of <i4 numbers"),
        ({"test": {"recall@5": [0.5] * 8}}, "test.recall@5"),
        ({"validation": {"recall@5": float("nan")}}, "validation.recall@5: input should be a finite number"),
        ({"overall": {"coverage@5": float("inf")}}, "overall.coverage@5: input should be a finite number"),
        ({"fit_seconds": float("nan")}, "fit_seconds: input should be a finite number"),
        ({"curve": {"epoch": [1], "loss": [float("nan")], "metric": [0.1], "seconds": [1.0]}}, "curve.loss.0"),
        ({"seed": -1}, "seed: input should be greater than or equal to 0"),
        ({"curve": {"epoch": [1, 2], "loss": [0.5], "metric": [0.1], "seconds": [1.0]}}, "curve of unequal lengths"),
        ({"slices": {"items": [1], "held_out": [1], "hits": {"5": [1]}}}, "three groups of items in slices"),
        (
            {"slices": {"items": [1, 2, 3], "held_out": [1, 2, 3], "hits": {"5": [1]}}},
            "three groups of items in slices",
        ),
        ({"test": {"recall@5": packed([0.5] * 8)}}, "expected values of recall@5, coverage@5, ndcg@10, got recall@5"),
        ({"overall": {}}, "expected values of recall@5, coverage@5, ndcg@10, got recall@5, ndcg@10"),
        ({"overall": {"coverage@5": 0.5, "<b>@5": 0.1}}, "got recall@5, ndcg@10, coverage@5, <b>@5"),
    ],
)
def test_a_line_with_values_that_cannot_be_is_refused_in_one_sentence(
    result: Result, tmp_path: Path, values: dict[str, Any], words: str
) -> None:
    path = edited(tmp_path, result, **values)
    with pytest.raises(InputError, match=r"edited.jsonl, line 1") as refused:
        read_results(path)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_key_is_all_that_makes_a_result_another(result: Result) -> None:
    same = changed(result, fit_seconds=9.0, finished=datetime(2000, 1, 1, tzinfo=UTC), threads=7, title="x")
    assert same.key == result.key
    others: list[dict[str, Any]] = [
        {"label": "x"},
        {"model": "x"},
        {"source": "x"},
        {"settings": {"l2": 9.0}},
        {"seed": 9},
    ]
    assert len({changed(result, **other).key for other in others} | {result.key}) == 6


def test_a_setting_that_older_results_lack_counts_once_it_has_an_effect(result: Result) -> None:
    older, newer, other = (
        result.model_copy(update={"settings": {"T": None, **more}})
        for more in ({}, {"min_improvement": 0.0}, {"min_improvement": 0.01})
    )
    assert older.key == newer.key != other.key
    assert '"T": null' in older.key[4]


def test_a_result_shows_itself_and_becomes_a_frame(result: Result) -> None:
    assert f"ndcg@10 {100 * result.test['ndcg@10'].mean():.2f}" in repr(result)
    assert repr(result).startswith("Result(ease, split 4: recall@5 ")
    assert str(result) == repr(result)
    frame = result.to_frame()
    assert frame.columns == ["user", "history_size", "recall@5", "ndcg@10"]
    assert (len(frame), frame["ndcg@10"].to_list()) == (8, result.test["ndcg@10"].tolist())
    assert frame.schema["user"] == pl.Int64
    assert "<table" in result._repr_html_()
