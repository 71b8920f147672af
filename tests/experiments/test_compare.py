"""Comparisons and their result document."""

import dataclasses

import pytest

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.experiments.compare import Run, compare
from recfusion.experiments.examples import examples
from recfusion.experiments.results import result_document
from recfusion.experiments.train import train

METRICS = ("recall@5", "coverage@5", "ndcg@10")


@pytest.fixture
def runs(groups: Interactions) -> list[Run]:
    return list(compare(groups, {"random": {}, "ease": {"l2": 10}}, [4, 5], metrics=METRICS))


def test_every_model_is_judged_on_the_same_users_of_every_split(runs: list[Run]) -> None:
    assert [(run.name, run.seed) for run in runs] == [("random", 4), ("ease", 4), ("random", 5), ("ease", 5)]
    for random, ease in (runs[:2], runs[2:]):
        assert random.test.users.tolist() == ease.test.users.tolist()


def test_the_document_holds_each_metric_with_its_parts(runs: list[Run]) -> None:
    document = result_document(runs)
    entry = document["models"]["ease"]
    assert entry["settings"] == {"l2": 10}
    for metric in ("recall@5", "ndcg@10"):
        values = entry[metric]
        assert values["splits"] == tuple(run.test.mean()[metric] for run in runs if run.name == "ease")
        assert values["ci95"][0] <= values["mean"] <= values["ci95"][1]
        assert values["median"] == pytest.approx(sum(values["splits"]) / 2)
    assert entry["coverage@5"]["ci95"] is None
    assert entry["fit_seconds"] > 0
    assert entry["score_seconds"] > 0
    assert document["protocol"]["users"] == 80
    assert document["seeds"] == [4, 5]


def test_the_best_model_is_tested_against_the_others(runs: list[Run]) -> None:
    tests = {test["metric"]: test for test in result_document(runs)["tests"]}
    assert set(tests) == {"recall@5", "ndcg@10"}
    assert tests["ndcg@10"]["a"] == "ease"
    assert tests["ndcg@10"]["p_holm"] < 0.01


def test_the_same_comparison_gives_the_same_numbers(groups: Interactions, runs: list[Run]) -> None:
    again = list(compare(groups, {"random": {}, "ease": {"l2": 10}}, [4, 5], metrics=METRICS))
    for one, two in zip(runs, again, strict=True):
        assert one.test.mean() == two.test.mean()
    assert result_document(runs)["tests"] == result_document(again)["tests"]


def test_models_run_on_different_splits_are_refused(runs: list[Run]) -> None:
    with pytest.raises(InputError, match="same splits"):
        result_document(runs[:3])


def test_results_of_different_protocols_are_refused(runs: list[Run]) -> None:
    other = dataclasses.replace(runs[1], protocol=runs[1].protocol.model_copy(update={"hash": "other"}))
    with pytest.raises(InputError, match="cannot stand in one table"):
        result_document([runs[0], other])


def test_no_results_are_refused() -> None:
    with pytest.raises(InputError, match="no results"):
        result_document([])


def test_examples_show_titles_and_mark_hits(groups: Interactions) -> None:
    shown = examples([train("ease", groups), train("popularity", groups)], groups, n_users=2, k=4)
    assert len(shown) == 2
    assert shown[0]["user"].startswith("u")
    assert set(shown[0]["lists"]) == {"ease", "popularity"}
    titles = {f"Item {n}" for n in range(40)}
    for example in shown:
        assert set(example["history"]) <= titles
        for places in example["lists"].values():
            assert len(places) == 4
            assert not {place["title"] for place in places} & set(example["history"])
    assert any(place["hit"] for example in shown for place in example["lists"]["ease"])


@pytest.mark.slow
def test_the_paper_s_table_comes_out_on_ml_1m(data_folder: object) -> None:
    """Popularity 21.4 and EASE 42.2 in the paper; three splits of ours lie within about a point of them."""
    from recfusion.data.load import load

    document = result_document(list(compare(load("ml-1m"), {"popularity": {}, "ease": {}}, [0, 1, 2])))
    assert document["models"]["popularity"]["ndcg@100"]["mean"] == pytest.approx(0.2144, abs=0.012)
    assert document["models"]["ease"]["ndcg@100"]["mean"] == pytest.approx(0.4224, abs=0.012)
