"""One result: fresh, as a line of the store, of an older version, and as it shows itself."""

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
from recfusion.data.load import load
from recfusion.data.options import SplitPlan
from recfusion.experiments.candidate import candidates
from recfusion.experiments.comparison import Comparison
from recfusion.experiments.result import Result, append_result, read_results
from recfusion.experiments.run import run_candidates

VERSION_1 = Path(__file__).with_name("version1.jsonl")


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


def test_results_of_version_1_are_read_and_count_as_done(tmp_path: Path) -> None:
    store = tmp_path / "store.jsonl"
    store.write_bytes(VERSION_1.read_bytes())
    popularity, ease = read_results(store)
    assert (popularity.label, ease.label, ease.recfusion_result) == ("popularity", "ease", 2)
    assert ease.settings == {"l2": None, "tune_trials": 20}  # the limit of time is no more
    assert ease.chosen == {"l2": pytest.approx(166.85, abs=0.01)}
    assert (ease.title, ease.place, ease.source, ease.trials, ease.examples) == (
        "linear item-item model with a closed form",
        "",
        "",
        None,
        (),
    )
    planned = [(candidate, (0,)) for candidate in candidates(["popularity", "ease"])]
    data = load("ml-latest-small")
    metrics = ease.protocol.metrics
    ran = run_candidates(data, planned, plan=SplitPlan(), metrics=metrics, store=store, workers=0)
    assert ran.computed == 0
    document = json.loads(VERSION_1.read_text().splitlines()[1])
    by_hand = np.frombuffer(base64.b64decode(document["test"]["ndcg@100"]), "<f4").astype(float).mean()
    comparison = Comparison.of(ran.results)
    assert comparison.models["ease"].mean("ndcg@100") == pytest.approx(by_hand)
    assert comparison.models["ease"].trials is None
    assert comparison.examples == ()


def test_new_results_stand_behind_those_of_version_1(result: Result, tmp_path: Path) -> None:
    store = tmp_path / "store.jsonl"
    store.write_bytes(VERSION_1.read_bytes())
    append_result(store, result)
    assert store.read_bytes().startswith(VERSION_1.read_bytes())
    assert [one.label for one in read_results(store)] == ["popularity", "ease", "ease"]


def test_the_user_ids_in_results_of_version_1_are_not_taken_over(tmp_path: Path) -> None:
    document = json.loads(VERSION_1.read_text().splitlines()[1])
    place = {"title": "Heat", "hit": True}
    shown = [{"user": f"secret-{n}", "history": ["Alien"], "more": 3, "places": [place]} for n in range(2)]
    document |= {"examples": shown, "settings": {"parts": {"ease": {"l2": 3, "tune_seconds": 9.0}}}}
    path = tmp_path / "old.jsonl"
    path.write_text(json.dumps(document, separators=(",", ":")) + "\n")
    (found,) = read_results(path)
    assert [(one.number, one.user, one.history, one.more) for one in found.examples] == [
        (1, None, ("Alien",), 3),
        (2, None, ("Alien",), 3),
    ]
    assert found.examples[0].places[0].hit
    assert found.settings == {"parts": {"ease": {"l2": 3}}}
    assert "secret" not in json.dumps(found.model_dump(mode="json"))


@pytest.mark.parametrize("change", [{"examples": 3}, {"examples": [3]}, {"settings": 3}, {"curve": None}])
def test_a_broken_line_of_version_1_is_refused_too(tmp_path: Path, change: dict[str, Any]) -> None:
    document = json.loads(VERSION_1.read_text().splitlines()[1]) | change
    path = tmp_path / "old.jsonl"
    path.write_text(json.dumps(document, separators=(",", ":")) + "\n")
    with pytest.raises(InputError, match=rf"old.jsonl, line 1': {next(iter(change))}"):
        read_results(path)


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
