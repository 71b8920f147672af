"""Signals beside the ones: what is asked for, what of it a part of a split shows, and what a model may see."""

from dataclasses import replace
from typing import Literal

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_array

from conftest import csr, raw
from recfusion.core.errors import InputError
from recfusion.data.interactions import Features, Interactions
from recfusion.data.options import Preparation, SplitPlan
from recfusion.data.prepare import prepare
from recfusion.data.signals import (
    Extra,
    asked_signals,
    check_signals_are_read,
    parse_signals,
    used_signals,
    whole_extra,
)
from recfusion.data.split import Fold, split

KEEP_ALL = Preparation(min_items_per_user=0, min_users_per_item=0)


@pytest.fixture(scope="module")
def rated() -> Interactions:
    """60 users who rate 12 of 20 items from 1 to 5, in order of time."""
    rng = np.random.default_rng(1)
    user, item, rating = [], [], []
    for number in range(60):
        for column in rng.permutation(20)[:12]:
            user.append(number)
            item.append(int(column))
            rating.append(float(rng.integers(1, 6)))
    rows = {"user": user, "item": item, "rating": rating, "time": rng.permutation(len(user)).tolist()}
    return prepare(raw(rows), KEEP_ALL)


def cell(matrix: csr_array, row: int) -> dict[int, float]:
    return dict(zip(matrix[[row]].indices.tolist(), matrix[[row]].data.tolist(), strict=True))


def test_ratings_below_the_threshold_are_kept_beside_the_ones() -> None:
    found = prepare(
        raw({"user": [1, 1, 2, 2], "item": [7, 8, 7, 8], "rating": [5, 2, 4, 4], "time": [9, 5, 1, 2]}), KEEP_ALL
    )
    assert found.matrix.toarray().tolist() == [[1, 0], [1, 1]]
    assert found.disliked is not None
    assert found.disliked.toarray().tolist() == [[0, 2], [0, 0]]
    assert found.disliked_times is not None
    assert found.disliked_times.tolist() == [5]


def test_dislikes_of_items_and_users_that_drop_out_are_dropped() -> None:
    # Item 9 has dislikes alone, and user 3 likes nothing.
    rows = {"user": [1, 1, 2, 3], "item": [7, 9, 7, 7], "rating": [5, 1, 4, 1]}
    found = prepare(raw(rows), KEEP_ALL)
    assert found.matrix.shape == (2, 1)
    assert found.disliked is None


def test_a_dislike_of_0_stars_is_stored() -> None:
    found = prepare(
        raw({"user": [1, 2, 2], "item": [7, 7, 8], "rating": [0, 4, 5]}),
        Preparation(min_rating=3, min_items_per_user=0, min_users_per_item=0),
    )
    assert found.disliked is None  # user 1 likes nothing and is gone
    found = prepare(
        raw({"user": [1, 1, 2], "item": [7, 8, 7], "rating": [0, 4, 5]}),
        Preparation(min_rating=3, min_items_per_user=0, min_users_per_item=0),
    )
    assert found.disliked is not None
    assert found.disliked.nnz == 1


def test_names_of_signals_are_read_and_written() -> None:
    assert parse_signals("binary") == ()
    assert parse_signals(" graded, timed ,graded") == ("graded", "timed")
    assert asked_signals(()) == "binary"
    assert asked_signals(("times", "grades")) == "graded,timed"
    for wrong in ("grades", "", "binary,timed"):
        with pytest.raises(InputError):
            parse_signals(wrong)


def test_a_signal_that_the_data_lacks_is_one_sentence(rated: Interactions) -> None:
    assert used_signals("graded,timed", rated) == ("grades", "times")
    with pytest.raises(InputError, match="'features' are requested, but 'made up' has none: describe the items"):
        used_signals("features", rated)
    strange = replace(rated, source=rated.source.model_copy(update={"items": "items.csv"}))
    with pytest.raises(InputError, match="but --items has no usable column for the"):
        used_signals("features", strange)


def test_a_signal_that_no_model_reads_is_refused_but_for_grades_whose_mask_serves_all() -> None:
    check_signals_are_read("graded", [("ease", ())])
    check_signals_are_read("timed", [("ease", ()), ("reader", ["times"])])
    with pytest.raises(InputError, match="Signals 'timed' are requested, but ease, popularity does not read"):
        check_signals_are_read("timed", [("ease", ()), ("popularity", ())])


@pytest.mark.parametrize("kind", ["strong", "weak", "temporal", "global"])
def test_signals_change_no_history(rated: Interactions, kind: Literal["strong", "weak", "temporal", "global"]) -> None:
    plan = SplitPlan(kind=kind)
    plain, more = split(rated, plan, seed=3), split(rated, plan, seed=3, used=("grades", "times"))
    assert plain.extra is None
    for a, b in ((plain.valid, more.valid), (plain.test, more.test)):
        assert (a.history != b.history).nnz == 0
        assert (a.held_out != b.held_out).nnz == 0
        assert a.extra is None


@pytest.mark.parametrize("kind", ["strong", "weak", "temporal", "global"])
def test_grades_and_times_stand_at_the_ones_of_each_part(
    rated: Interactions, kind: Literal["strong", "weak", "temporal", "global"]
) -> None:
    parts = split(rated, SplitPlan(kind=kind), seed=3, used=("grades", "times"))
    whole = whole_extra(rated, ("grades", "times"))
    assert whole is not None
    train = Fold(parts.train_users, parts.train, parts.train, parts.extra)
    for fold in (train, parts.valid, parts.test):
        assert fold.extra is not None
        for found, of_all in ((fold.extra.grades, whole.grades), (fold.extra.times, whole.times)):
            assert found is not None
            assert found.indices.tolist() == fold.history.indices.tolist()
            assert found.indptr.tolist() == fold.history.indptr.tolist()
            for row, user in enumerate(fold.users.tolist()):
                everything = cell(of_all, user)
                assert cell(found, row) == {item: everything[item] for item in cell(found, row)}


def test_of_held_out_users_about_the_shown_share_of_dislikes_is_shown_and_of_training_users_all(
    rated: Interactions,
) -> None:
    assert rated.disliked is not None
    shown = total = 0
    for seed in range(5):
        parts = split(rated, seed=seed, used=("grades",))
        assert parts.extra is not None
        assert parts.extra.disliked is not None
        assert (parts.extra.disliked != rated.disliked[parts.train_users]).nnz == 0
        assert parts.test.disliked is not None
        shown += parts.test.disliked.nnz
        total += rated.disliked[parts.test.users].nnz
    assert 0.7 < shown / total < 0.9


def test_in_a_temporal_split_no_dislike_is_shown_from_after_the_history(rated: Interactions) -> None:
    parts = split(rated, SplitPlan(kind="temporal"), seed=0, used=("grades", "times"))
    extra = parts.test.extra
    assert extra is not None
    assert extra.times is not None
    assert extra.disliked_times is not None
    assert rated.disliked is not None
    assert 0 < extra.disliked_times.nnz < rated.disliked[parts.test.users].nnz
    for row in range(len(parts.test.users)):
        dislikes = extra.disliked_times[[row]].data
        assert not len(dislikes) or dislikes.max() <= extra.times[[row]].data.max()


def test_a_global_split_trains_before_one_moment_and_tests_after_another(rated: Interactions) -> None:
    parts = split(rated, SplitPlan(kind="global"), used=("times",))
    assert rated.times is not None
    whole = csr_array((rated.times + 1, rated.matrix.indices, rated.matrix.indptr), shape=rated.matrix.shape)

    def times(users: np.ndarray, matrix: csr_array) -> np.ndarray:
        return whole[users].multiply(matrix).tocsr().data

    train, valid = times(parts.train_users, parts.train), times(parts.valid.users, parts.valid.held_out)
    test = times(parts.test.users, parts.test.held_out)
    assert train.max() < valid.min() <= valid.max() < test.min()
    assert times(parts.test.users, parts.test.history).max() < test.min()
    assert len(test) / rated.n_interactions == pytest.approx(0.1, abs=0.02)


def test_a_model_sees_only_what_it_reads(rated: Interactions) -> None:
    whole = whole_extra(rated, ("grades", "times"))
    assert whole is not None
    graded = whole.only({"grades"})
    assert graded is not None
    assert graded.times is None is graded.disliked_times
    assert graded.grades is not None
    assert graded.disliked is not None
    assert whole.only(()) is None
    assert whole_extra(rated, ()) is None


def test_rows_and_columns_are_cut_from_every_signal() -> None:
    values = csr_array(np.array([[1.0, 2, 0], [0, 3, 4]], np.float32))
    features = Features(csr_array(np.eye(3, dtype=np.float32)), ("a", "b", "c"))
    extra = Extra(grades=values, disliked=values, item_features=features, user_features=features)
    part = extra.rows(np.array([1])).columns(np.array([2]))
    assert part.grades is not None
    assert part.grades.toarray().tolist() == [[4]]
    assert part.item_features is not None
    assert part.item_features.matrix.toarray().tolist() == [[0, 0, 1]]
    assert part.user_features is not None
    assert part.user_features.matrix.toarray().tolist() == [[0, 1, 0]]


def test_the_digest_of_grades_covers_dislikes(rated: Interactions) -> None:
    assert rated.disliked is not None
    other = rated.disliked.copy()
    other.data[0] += 1
    assert replace(rated, disliked=other).digest(("grades",)) != rated.digest(("grades",))
    assert replace(rated, disliked=other).fingerprint == rated.fingerprint


def test_auto_leaves_out_ratings_and_times_that_are_all_equal() -> None:
    def found(times: list[int], grades: list[float]) -> tuple[str, ...]:
        items = pl.Series("item", ["x", "y", "z"])
        return used_signals(
            "auto",
            Interactions(
                "toy",
                csr([[0, 1], [1, 2]], 3),
                pl.Series(["a", "b"]),
                items,
                items.to_frame(),
                times=np.array(times),
                grades=np.array(grades, np.float32),
            ),
        )

    assert found([1, 2, 3, 4], [1, 2, 2, 1]) == ("grades", "times")
    assert found([7, 7, 7, 7], [1, 2, 2, 1]) == ("grades",)
    assert found([1, 2, 3, 4], [2, 2, 2, 2]) == ("times",)
