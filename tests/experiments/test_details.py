"""Results by activity and popularity, and the curves, checked by hand."""

import dataclasses

import numpy as np
import pytest

from recfusion.data.interactions import Interactions
from recfusion.evaluation.slices import PopularitySlices
from recfusion.experiments.compare import Curve, Run, compare
from recfusion.experiments.details import by_activity, by_popularity, curves
from recfusion.experiments.results import result_document


@pytest.fixture
def run(groups: Interactions) -> Run:
    return next(iter(compare(groups, {"popularity": {}}, [0], metrics=["recall@5"])))


def with_values(run: Run, seed: int, sizes: list[int], values: list[float]) -> Run:
    test = dataclasses.replace(run.test, users=np.arange(len(sizes)), per_user={"recall@5": np.array(values)})
    return dataclasses.replace(run, seed=seed, history_size=np.array(sizes), test=test)


def test_users_are_grouped_by_quartiles_that_all_models_share(run: Run) -> None:
    one = with_values(run, 0, [1, 2, 3, 4], [0.1, 0.2, 0.3, 0.4])
    two = with_values(run, 1, [5, 6, 7, 8], [0.5, 0.6, 0.7, 0.8])
    found = by_activity({"both": [one, two], "first": [one]})
    assert found["sizes"] == [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert found["users"] == [2, 2, 2, 2]
    assert found["models"]["both"]["recall@5"] == pytest.approx([0.15, 0.35, 0.55, 0.75])
    assert found["models"]["first"]["recall@5"][:2] == pytest.approx([0.15, 0.35])
    assert found["models"]["first"]["recall@5"][2:] == [None, None]


def test_users_of_one_size_stay_together(run: Run) -> None:
    found = by_activity({"a": [with_values(run, 0, [5, 5, 5, 5, 5, 9], [1, 1, 1, 1, 1, 0])]})
    assert found["sizes"] == [[5, 5], [9, 9]]
    assert found["users"] == [5, 1]
    assert found["models"]["a"]["recall@5"] == [1.0, 0.0]


def test_recall_by_popularity_pools_the_splits(run: Run) -> None:
    one = dataclasses.replace(run, slices=PopularitySlices((2, 3, 4), (10, 0, 10), {5: (5, 0, 1)}))
    two = dataclasses.replace(run, seed=1, slices=PopularitySlices((2, 3, 4), (30, 0, 10), {5: (5, 0, 3)}))
    found = by_popularity({"a": [one, two]})
    assert found["groups"] == ["head", "middle", "tail"]
    assert found["items"] == [2, 3, 4]
    assert found["models"] == {"a": {"recall@5": [0.25, None, 0.2]}}


def test_curves_are_those_of_models_with_epochs(run: Run) -> None:
    trained = dataclasses.replace(run, curve=Curve((1, 2), (0.5, None), (0.1, 0.2), (1.0, 1.0)))
    assert curves({"closed": [run], "net": [trained]}) == {"net": [{"seed": 0, "epoch": [1, 2], "metric": [0.1, 0.2]}]}


def test_a_result_document_holds_them_and_tests_against_a_reference(groups: Interactions) -> None:
    runs = list(compare(groups, {"random": {}, "ease": {"l2": 10}, "popularity": {}}, [0, 1], metrics=["ndcg@10"]))
    document = result_document(runs, reference="popularity")
    assert set(document["slices"]) == {"activity", "popularity"}
    assert document["curves"] == {}
    against = {test["a"]: test for test in document["reference_tests"]}
    assert set(against) == {"random", "ease"}
    means = {name: entry["ndcg@10"]["mean"] for name, entry in document["models"].items()}
    for name, test in against.items():
        assert test["b"] == "popularity"
        assert test["difference"] == pytest.approx(means[name] - means["popularity"])
        assert test["p"] <= test["p_holm"]
    assert "reference_tests" not in result_document(runs)
