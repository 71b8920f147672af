"""Splits: who is where, and that nothing is lost or leaks."""

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from conftest import raw
from recfusion.core.arrays import Csr
from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.data.options import Preparation, SplitPlan
from recfusion.data.prepare import prepare
from recfusion.data.split import NobodyToJudge, split
from recfusion.evaluation.evaluate import evaluate
from recfusion.models.baselines.popularity import Random

LOOSE = Preparation(min_items_per_user=0, min_users_per_item=0)


def entries(matrix: Csr) -> set[tuple[int, int]]:
    rows, columns = matrix.nonzero()
    return set(zip(rows.tolist(), columns.tolist(), strict=True))


def test_users_are_divided_and_histories_are_divided(groups: Interactions) -> None:
    parts = split(groups, seed=3)
    everybody = np.concatenate([parts.train_users, parts.valid.users, parts.test.users])
    assert sorted(everybody) == list(range(80))
    assert (len(parts.valid.users), len(parts.test.users)) == (8, 8)
    for fold in (parts.valid, parts.test):
        shown, hidden = entries(fold.history), entries(fold.held_out)
        assert not shown & hidden
        assert shown | hidden == entries(groups.matrix[fold.users])
        lengths = np.diff(groups.matrix.indptr)[fold.users]
        assert np.diff(fold.history.indptr).tolist() == np.rint(0.8 * lengths).astype(int).tolist()


def test_validation_and_test_have_the_sizes_of_the_plan(groups: Interactions) -> None:
    parts = split(groups, SplitPlan(valid=0.1, test=0.3))
    assert (len(parts.train_users), len(parts.valid.users), len(parts.test.users)) == (48, 8, 24)
    weak = split(groups, SplitPlan(kind="weak", valid=0.2, test=0.4))
    lengths = np.diff(groups.matrix.indptr)
    for fold, share in ((weak.valid, 0.2), (weak.test, 0.4)):
        assert np.diff(fold.held_out.indptr).tolist() == np.rint(share * lengths[fold.users]).astype(int).tolist()


def test_the_same_seed_gives_the_same_split_and_another_seed_another(groups: Interactions) -> None:
    one, again, other = (split(groups, seed=seed) for seed in (1, 1, 2))
    assert one.test.users.tolist() == again.test.users.tolist() != other.test.users.tolist()
    assert entries(one.test.history) == entries(again.test.history)


def test_a_temporal_split_predicts_the_latest_items(groups: Interactions) -> None:
    times = np.random.default_rng(0).permutation(groups.n_interactions)  # in no order of users or items
    groups = replace(groups, times=times)
    fold = split(groups, SplitPlan(kind="temporal")).test
    for row, user in enumerate(fold.users):
        start, stop = groups.matrix.indptr[user], groups.matrix.indptr[user + 1]
        when = dict(zip(groups.matrix.indices[start:stop].tolist(), times[start:stop].tolist(), strict=True))
        latest_shown = max(when[item] for item in fold.history[[row]].indices.tolist())
        assert all(when[item] > latest_shown for item in fold.held_out[[row]].indices.tolist())


def test_a_temporal_split_needs_times() -> None:
    data = prepare(raw({"user": [1, 1, 2, 2, 3, 3], "item": [1, 2, 1, 2, 1, 2]}), LOOSE)
    with pytest.raises(InputError, match="needs times"):
        split(data, SplitPlan(kind="temporal"))


@pytest.mark.parametrize(("kind", "advice"), [("global", "--split temporal"), ("weak", "--min-items-per-user")])
def test_a_split_that_leaves_nobody_to_evaluate_on_says_what_to_do(
    kind: Literal["global", "weak"], advice: str
) -> None:
    """All of a user's items have one time, and a tenth of two items is none."""
    users = [u for u in range(6) for _ in range(2)]
    data = prepare(raw({"user": users, "item": [1, 2] * 6, "time": users}), LOOSE)
    with pytest.raises(NobodyToJudge, match=f"No user of .* to find in the validation: .*{advice}"):
        split(data, SplitPlan(kind=kind))


def test_a_weak_split_trains_on_every_user_and_hides_items(groups: Interactions) -> None:
    parts = split(groups, SplitPlan(kind="weak", valid=0.2, test=0.2))
    assert parts.train.shape == groups.matrix.shape
    assert entries(parts.valid.history) == entries(parts.train[parts.valid.users])
    hidden = parts.valid.held_out.nnz + parts.test.held_out.nnz
    assert hidden + parts.train.nnz == groups.n_interactions


def test_a_weak_split_shows_training_and_validation_items_at_the_test(groups: Interactions) -> None:
    """Validation items that are neither shown nor masked would be recommended, and count as misses."""
    parts = split(groups, SplitPlan(kind="weak", valid=0.2, test=0.2))
    shown, hidden = entries(parts.test.history), entries(parts.test.held_out)
    assert not shown & hidden
    assert shown | hidden == entries(groups.matrix[parts.test.users])


def test_a_weak_split_with_all_test_items_first_has_no_misses() -> None:
    """Five items for everybody, so that a list of all unseen items holds only the one test item."""
    user, item = [u for u in range(6) for _ in range(5)], [i for _ in range(6) for i in range(5)]
    data = prepare(raw({"user": user, "item": item}), LOOSE)
    parts = split(data, SplitPlan(kind="weak", valid=0.2, test=0.2))
    found = evaluate(Random().fit(parts.train, rng=0), parts.test, parts.train, ("ndcg@5",)).mean()
    assert found == {"ndcg@5": 1.0}


def test_a_user_with_one_item_cannot_be_judged_and_is_left_out() -> None:
    user = [*range(10), *range(0, 10, 2)]
    item = [0] * 10 + [1] * 5
    data = prepare(raw({"user": user, "item": item}), LOOSE)
    parts = split(data, SplitPlan(valid=0.3, test=0.3), seed=0)
    for fold in (parts.valid, parts.test):
        assert (fold.users % 2 == 0).all()
        assert np.diff(fold.history.indptr).tolist() == [1] * len(fold.users)
        assert np.diff(fold.held_out.indptr).tolist() == [1] * len(fold.users)


@pytest.mark.parametrize("n_users", [1, 2])
def test_too_few_users_are_refused(n_users: int) -> None:
    data = prepare(raw({"user": list(range(n_users)) * 2, "item": [1] * n_users + [2] * n_users}), LOOSE)
    with pytest.raises(InputError, match=f"at least 3 users .* got {n_users}"):
        split(data)


@pytest.mark.parametrize("kind", ["strong", "weak", "temporal", "global"])
def test_no_user_to_judge_is_refused(kind: Literal["strong", "weak", "temporal", "global"]) -> None:
    data = prepare(raw({"user": [1, 2, 3, 4], "item": [1, 1, 1, 1], "time": [1, 2, 3, 4]}), LOOSE)
    with pytest.raises(NobodyToJudge, match=r"No user of 'made up' has 2 items.* everybody with --all-users"):
        split(data, SplitPlan(kind=kind))


def test_raising_the_minimum_is_advised_only_where_some_user_has_two_items() -> None:
    data = prepare(raw({"user": [*range(40), 0], "item": [1] * 40 + [2]}), LOOSE)
    with pytest.raises(NobodyToJudge, match="raise --min-items-per-user to 2"):
        split(data)


def test_shares_that_leave_nobody_to_train_on_are_refused(groups: Interactions) -> None:
    with pytest.raises(InputError, match="below 1"):
        split(groups, SplitPlan(valid=0.5, test=0.5))


def test_the_fold_in_is_uniformly_random() -> None:
    """Over many seeds each of five items is held out equally often."""
    data = prepare(raw({"user": [u for u in range(40) for _ in range(5)], "item": list(range(5)) * 40}), LOOSE)
    counts = np.zeros(5)
    for seed in range(60):
        counts += np.bincount(split(data, seed=seed).test.held_out.indices, minlength=5)
    share = counts / counts.sum()
    # 240 draws: the standard deviation of a share is .026
    assert np.abs(share - 0.2).max() < 0.1


def test_leave_one_out_tests_the_last_item_of_every_user_and_validates_on_the_one_before(groups: Interactions) -> None:
    parts = split(groups, SplitPlan(kind="leave-one-out"))
    assert groups.times is not None
    assert len(parts.test.users) == len(parts.valid.users) == groups.n_users
    for user in range(groups.n_users):
        entries = slice(*groups.matrix.indptr[user : user + 2])
        by_time = groups.matrix.indices[entries][np.argsort(groups.times[entries])].tolist()
        assert parts.test.held_out[[user]].indices.tolist() == by_time[-1:]
        assert parts.valid.held_out[[user]].indices.tolist() == by_time[-2:-1]
        assert sorted(parts.train[[user]].indices.tolist()) == sorted(by_time[:-2])
        assert sorted(parts.test.history[[user]].indices.tolist()) == sorted(by_time[:-1])


def test_leave_one_out_is_random_without_times_and_keeps_short_histories_in_training() -> None:
    rows = {"user": ["a"] * 5 + ["b"] * 2, "item": ["v", "w", "x", "y", "z", "v", "w"]}
    data = prepare(raw(rows), Preparation(min_items_per_user=0, min_users_per_item=0))
    found = [split(data, SplitPlan(kind="leave-one-out"), seed=seed) for seed in range(8)]
    assert len({parts.test.held_out.indices.tolist()[0] for parts in found}) > 1
    assert all(parts.test.users.tolist() == [0] and parts.train.nnz == 5 for parts in found)
