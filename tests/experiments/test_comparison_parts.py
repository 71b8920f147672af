"""Results by activity and popularity, checked by hand."""

from dataclasses import asdict

import numpy as np
import pytest
from fitted import changed, fits

from recfusion.data.interactions import Interactions
from recfusion.evaluation.evaluate import PopularitySlices
from recfusion.experiments.comparison_parts import Activity, ItemGroups
from recfusion.experiments.result import Result


@pytest.fixture(scope="module")
def result(groups: Interactions) -> Result:
    return fits(groups, ["popularity"], [0], ["recall@5"])[0]


def with_values(result: Result, seed: int, sizes: list[int], values: list[float]) -> Result:
    test = {"recall@5": np.array(values)}
    return changed(result, seed=seed, users=np.arange(len(sizes)), history_size=np.array(sizes), test=test)


def test_users_are_grouped_by_quartiles_that_all_models_share(result: Result) -> None:
    one = with_values(result, 0, [1, 2, 3, 4], [0.1, 0.2, 0.3, 0.4])
    two = with_values(result, 1, [5, 6, 7, 8], [0.5, 0.6, 0.7, 0.8])
    found = Activity.of({"both": {0: one, 1: two}, "first": {0: one}})
    assert found.sizes == ((1, 2), (3, 4), (5, 6), (7, 8))
    assert found.users == (2, 2, 2, 2)
    assert found.models["both"]["recall@5"] == pytest.approx([0.15, 0.35, 0.55, 0.75])
    assert found.models["first"]["recall@5"][:2] == pytest.approx([0.15, 0.35])
    assert found.models["first"]["recall@5"][2:] == [None, None]


def test_users_of_one_size_stay_together(result: Result) -> None:
    found = Activity.of({"a": {0: with_values(result, 0, [5, 5, 5, 5, 5, 9], [1, 1, 1, 1, 1, 0])}})
    assert found.sizes == ((5, 5), (9, 9))
    assert found.users == (5, 1)
    assert found.models["a"]["recall@5"] == [1.0, 0.0]


def test_recall_by_popularity_pools_the_splits(result: Result) -> None:
    one = changed(result, slices=PopularitySlices((2, 3, 4), (10, 0, 10), {5: (5, 0, 1)}))
    two = changed(result, seed=1, slices=PopularitySlices((2, 3, 4), (30, 0, 10), {5: (5, 0, 3)}))
    found = ItemGroups.of({"a": {0: one, 1: two}})
    assert found.groups == ("head", "middle", "tail")
    assert found.items == (2, 3, 4)
    assert found.models == {"a": {"recall@5": [0.25, None, 0.2]}}
    assert asdict(found)["models"] == found.models
