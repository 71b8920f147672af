"""Example histories: of one taste each, of different tastes together."""

from dataclasses import replace

import numpy as np
import pytest

from recfusion.data.interactions import Interactions
from recfusion.experiments.train import train
from recfusion.inference.bundle import Bundle
from recfusion.inference.example_histories import example_histories


@pytest.fixture(scope="module")
def bundle(groups: Interactions) -> Bundle:
    return train("ease", groups)


def test_each_example_is_of_one_group_and_the_examples_of_different_groups(bundle: Bundle) -> None:
    """The data has four groups of ten items: columns 0 to 9, 10 to 19, ..."""
    found = example_histories(bundle, 4)
    kinds = [{column // 10 for column in history} for history in found]
    assert all(len(kind) == 1 for kind in kinds)
    assert set.union(*kinds) == {0, 1, 2, 3}
    assert all(len(history) == 4 for history in found)


def test_examples_are_the_same_each_time_and_differ_by_seed(bundle: Bundle) -> None:
    assert example_histories(bundle) == example_histories(bundle)
    assert example_histories(bundle, seed=1) == example_histories(bundle, seed=1)
    assert len({str(example_histories(bundle, 1, seed=seed)) for seed in range(10)}) > 3


def test_a_model_without_similar_items_gives_single_items(groups: Interactions) -> None:
    popular = train("popularity", groups)
    assert [len(history) for history in example_histories(popular)] == [1, 1, 1]
    few = replace(popular, items=popular.items)
    assert len(example_histories(few, 100)) == 40
    assert sorted(np.concatenate(example_histories(few, 100)).tolist()) == list(range(40))
