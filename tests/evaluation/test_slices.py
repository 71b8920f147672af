"""Recall by the popularity of items."""

import numpy as np

from conftest import csr
from recfusion.core.arrays import Csr, FloatArray
from recfusion.data.split import Fold
from recfusion.evaluation.evaluate import evaluate, popularity_groups


class ByNumber:
    """Scores items by their column: the first is the best."""

    def score(self, history: Csr) -> FloatArray:
        n_users, n_items = history.shape
        return np.tile(-np.arange(n_items, dtype=np.float32), (n_users, 1))


def test_groups_have_a_third_of_the_interactions_each() -> None:
    # counts 3, 2, 1, 2, 1, 0: in the order of popularity 3 | 2 2 | 1 1 0 of 9 interactions, 3 to a group;
    # the third item begins at 5 and so still in the middle third, the first single one at 7
    train = csr([[0, 1, 3], [0, 1, 3], [0, 2, 4]], 6)
    assert popularity_groups(train).tolist() == [0, 1, 2, 1, 2, 2]


def test_hits_are_counted_by_group_and_list_length() -> None:
    train = csr([[0, 1, 3], [0, 1, 3], [0, 2, 4]], 6)
    fold = Fold(np.array([0, 1]), csr([[1], [0]], 6), csr([[0, 3, 5], [1, 2]], 6))
    # the lists are 0 2 3 4 5 and 1 2 3 4 5
    found = evaluate(ByNumber(), fold, train, ("recall@9", "recall@1", "ndcg@3", "recall@3")).slices
    assert found.items == (1, 2, 3)
    assert found.held_out == (1, 2, 2)
    assert found.hits == {1: (1, 1, 0), 3: (1, 2, 1), 9: (1, 2, 2)}
    assert found.recall(3) == {"head": 1.0, "middle": 1.0, "tail": 0.5}


def test_a_group_without_held_out_items_has_no_recall() -> None:
    fold = Fold(np.array([0]), csr([[1]], 6), csr([[3]], 6))
    train = csr([[0, 1, 3], [0, 1, 3], [0, 2, 4]], 6)
    found = evaluate(ByNumber(), fold, train, ("recall@2",)).slices
    assert found.recall(2) == {"head": None, "middle": 0.0, "tail": None}
