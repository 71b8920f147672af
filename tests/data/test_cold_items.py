"""Items that leave training entirely, and must be found among all items."""

import numpy as np
import pytest

from recfusion.core.arrays import column_counts
from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.data.options import SplitPlan
from recfusion.data.protocol import Protocol
from recfusion.data.split import split

PLAN = SplitPlan(cold_items=0.2)


def test_cold_items_are_in_no_history_and_are_all_that_test_users_must_find(groups: Interactions) -> None:
    parts = split(groups, PLAN, seed=3)
    cold = np.zeros(groups.n_items, bool)
    cold[parts.test.held_out.indices] = True
    assert 0 < cold.sum() <= round(0.2 * groups.n_items)
    for shown in (parts.train, parts.valid.history, parts.valid.held_out, parts.test.history):
        assert not column_counts(shown)[cold].any()
    whole = groups.matrix[parts.test.users]
    assert (parts.test.history + parts.test.held_out != whole).nnz == 0
    assert (np.diff(parts.test.history.indptr) > 0).all()


def test_another_seed_draws_other_items(groups: Interactions) -> None:
    one, other = (set(split(groups, PLAN, seed=seed).test.held_out.indices.tolist()) for seed in (0, 1))
    assert one != other


def test_a_plan_without_cold_items_keeps_the_hash_of_published_results(groups: Interactions) -> None:
    assert "cold_items" not in SplitPlan().covered()
    plain, cold = (Protocol.of(groups, plan, ("ndcg@100",)) for plan in (SplitPlan(), PLAN))
    assert plain.hash != cold.hash
    assert "New items: 20%" in cold.assumptions()[-1]


def test_cold_items_need_a_strong_split(groups: Interactions) -> None:
    with pytest.raises(InputError, match="evaluated on a strong split"):
        split(groups, SplitPlan(kind="weak", cold_items=0.1))
