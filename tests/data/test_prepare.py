"""Preparation on tables small enough to check by hand."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import csr, raw
from recfusion.core.errors import InputError
from recfusion.data.column_roles import title_column
from recfusion.data.interactions import Features
from recfusion.data.options import Preparation
from recfusion.data.prepare import prepare, resolve_min_rating
from recfusion.data.rating_scale import Scale
from recfusion.data.reading.id_codes import encode_ids

LOOSE = Preparation(min_items_per_user=0, min_users_per_item=0)


def test_rows_become_a_matrix_with_sorted_ids() -> None:
    data = prepare(raw({"user": ["b", "a", "b"], "item": [30, 10, 10]}), LOOSE)
    assert data.users.to_list() == ["a", "b"]
    assert data.items.to_list() == [10, 30]
    assert data.matrix.toarray().tolist() == [[1, 0], [1, 1]]


def test_a_rating_below_the_threshold_is_no_interaction() -> None:
    data = prepare(raw({"user": [1, 1, 2], "item": [1, 2, 1], "rating": [4.0, 3.5, 5.0]}), LOOSE)
    assert data.matrix.toarray().tolist() == [[1], [1]]
    assert data.preparation.min_rating == 4


def test_the_latest_of_several_ratings_counts() -> None:
    rows: dict[str, list[object]] = {"user": [1, 1, 2], "item": [1, 1, 1], "rating": [5.0, 2.0, 5.0]}
    assert prepare(raw({**rows, "time": [10, 20, 10]}), LOOSE).users.to_list() == [2]
    assert prepare(raw({**rows, "time": [20, 10, 10]}), LOOSE).users.to_list() == [1, 2]


def test_without_times_the_highest_of_several_ratings_counts() -> None:
    data = prepare(raw({"user": [1, 1], "item": [1, 1], "rating": [5.0, 2.0]}), LOOSE)
    assert data.n_interactions == 1


def test_users_are_filtered_before_items_and_only_once() -> None:
    # User 3 goes (one item). Then item "c" has one user left and goes; user 2 is left with one item and stays.
    rows: dict[str, list[object]] = {"user": [1, 1, 2, 2, 3], "item": ["a", "b", "a", "c", "c"]}
    data = prepare(raw(rows), Preparation(min_items_per_user=2, min_users_per_item=2))
    assert data.users.to_list() == [1, 2]
    assert data.items.to_list() == ["a"]
    assert [(s.users, s.items, s.interactions) for s in data.steps[-2:]] == [(2, 3, 4), (2, 1, 2)]


def test_a_k_core_repeats_until_nothing_changes() -> None:
    rows: dict[str, list[object]] = {"user": [1, 1, 2, 2, 3, 3, 4, 4, 4], "item": list("abababacd")}
    data = prepare(raw(rows), Preparation(min_items_per_user=2, min_users_per_item=2, k_core=True))
    per_user, per_item = data.matrix.sum(1), data.matrix.sum(0)
    assert per_user.min() >= 2
    assert per_item.min() >= 2
    assert data.users.to_list() == [1, 2, 3]


def test_an_odd_number_of_items_loses_the_least_popular_one() -> None:
    rows: dict[str, list[object]] = {"user": [1, 1, 1, 2, 2, 3], "item": list("abcabb")}
    data = prepare(raw(rows), Preparation(min_items_per_user=0, min_users_per_item=0, even_items=True))
    assert data.items.to_list() == ["a", "b"]


def test_nothing_left_is_an_error_that_shows_where_it_went() -> None:
    with pytest.raises(InputError, match=r"No interactions .* rating at least 4: 0"):
        prepare(raw({"user": [1, 2], "item": [1, 2], "rating": [3.0, 2.0]}))


def test_titles_are_joined_in_the_order_of_the_columns() -> None:
    items = pl.DataFrame({"item": ["b", "z", "a", "b"], "title": ["B", "Z", "A", "again"]})
    data = prepare(raw({"user": [1, 1, 1], "item": ["c", "b", "a"]}, items), LOOSE)
    assert data.item_table.to_dict(as_series=False) == {"item": ["a", "b", "c"], "title": ["A", "B", None]}


def test_times_follow_their_entries() -> None:
    data = prepare(raw({"user": [2, 1, 2], "item": [5, 5, 4], "time": [7, 8, 9]}), LOOSE)
    assert data.times is not None
    assert data.times.tolist() == [8, 9, 7]


def test_grades_follow_their_entries_and_the_rule_for_duplicates() -> None:
    # User 1's grade of item 5 is the later one; the row below the threshold is no entry and has no grade.
    user, item = [2, 1, 2, 1, 1], [5, 5, 4, 5, 4]
    rows: dict[str, list[object]] = {"user": [*user], "item": [*item], "rating": [9.0, 8.0, 7.0, 3.0, 2.0]}
    data = prepare(raw({**rows, "time": [0, 1, 0, 2, 0]}), LOOSE.model_copy(update={"min_rating": 3}))
    assert data.grades is not None
    assert data.matrix.toarray().tolist() == [[0, 1], [1, 1]]
    assert data.grades.tolist() == [3.0, 7.0, 9.0]
    assert data.grades.dtype == np.float32
    assert data.signals == ("grades", "times")


def test_data_without_ratings_has_no_grades() -> None:
    data = prepare(raw({"user": [1], "item": [1]}), LOOSE)
    assert data.grades is None
    assert data.signals == ()


def test_grades_and_features_change_nothing_for_the_ones() -> None:
    rows: dict[str, list[object]] = {"user": [1, 2, 2], "item": ["a", "a", "b"]}
    plain = prepare(raw(rows), LOOSE)
    rich = replace(
        prepare(raw({**rows, "rating": [5.0, 4.0, 4.0]}), LOOSE),
        item_features=Features(csr([[0], [1]], 2), ("red", "blue")),
        user_features=Features(csr([[], [0]], 1), ("old",)),
    )
    assert rich.signals == ("grades", "item_features", "user_features")
    assert rich.fingerprint == plain.fingerprint
    assert (rich.matrix != plain.matrix).nnz == 0


def test_signals_that_do_not_fit_the_matrix_are_refused() -> None:
    data = prepare(raw({"user": [1, 2, 2], "item": ["a", "a", "b"]}), LOOSE)
    with pytest.raises(InputError, match="Expected 3 grades in 'made up', got 2"):
        replace(data, grades=np.ones(2, np.float32))
    with pytest.raises(InputError, match="Expected 2 item_features in 'made up', got 1"):
        replace(data, item_features=Features(csr([[0]], 1), ("red",)))
    with pytest.raises(InputError, match="Expected a name for each of 2 features, got 1"):
        Features(csr([[0]], 2), ("red",))


def test_the_digest_of_signals_tells_values_and_names_apart() -> None:
    rows: dict[str, list[object]] = {"user": [1, 2], "item": ["a", "a"]}
    one, two = (prepare(raw({**rows, "rating": [5.0, last]}), LOOSE) for last in (5.0, 4.0))
    features = [
        Features(csr([columns], 2), names)
        for columns, names in (([0], ("r", "b")), ([1], ("r", "b")), ([0], ("r", "g")))
    ]
    described = [replace(one, item_features=each).digest(["item_features"]) for each in features]
    assert one.digest([]) == ""
    assert len({one.digest(["grades"]), two.digest(["grades"]), *described}) == 5
    with pytest.raises(InputError, match="Expected times in 'made up', got none"):
        one.digest(["times"])


def test_equal_data_has_one_fingerprint_whatever_the_order_of_rows() -> None:
    one = prepare(raw({"user": [1, 2, 2], "item": ["a", "a", "b"]}), LOOSE)
    two = prepare(raw({"user": [2, 1, 2], "item": ["b", "a", "a"]}), LOOSE)
    other = prepare(raw({"user": [2, 1, 1], "item": ["b", "a", "b"]}), LOOSE)
    assert one.fingerprint == two.fingerprint != other.fingerprint


@pytest.mark.parametrize(
    ("ratings", "threshold"),
    [
        ([1, 3, 5], 4.0),
        ([0.5, 4.5], 4.0),
        ([0, 1, 1], 1.0),
        ([1, 1], None),
        ([1, 250, 3], None),
        ([-1, 7, 10], 7.0),
    ],
)
def test_the_automatic_threshold_knows_stars_flags_and_counts(ratings: list[float], threshold: float | None) -> None:
    assert resolve_min_rating("auto", Scale.of(np.array(ratings, np.float32))) == threshold


@given(st.lists(st.integers(-(2**40), 2**40), min_size=1))
def test_integer_ids_are_coded_by_their_sorted_place(ids: list[int]) -> None:
    codes, distinct = encode_ids(pl.Series(ids, dtype=pl.Int64))
    assert distinct.to_list() == sorted(set(ids))
    assert distinct[codes].to_list() == ids


@given(st.lists(st.text(max_size=3), min_size=1))
def test_text_ids_are_coded_by_their_sorted_place(ids: list[str]) -> None:
    codes, distinct = encode_ids(pl.Series(ids, dtype=pl.String))
    assert distinct[codes].to_list() == ids
    assert len(set(distinct.to_list())) == len(distinct)


def test_the_paper_s_counts_come_out_on_ml_1m(data_folder: object) -> None:
    from recfusion.data.load import load

    data = load("ml-1m")
    assert (data.n_users, data.n_items, data.n_interactions) == (6_034, 3_125, 574_376)
    data = load("ml-1m", Preparation(min_rating=None))
    assert (data.n_users, data.n_items, data.n_interactions) == (6_040, 3_416, 999_611)


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        (["name", "title"], "title"),
        (["Stock", "Name"], "Name"),
        (["Category name", "Product name"], "Product name"),
        (["productTitle", "NAME"], "NAME"),
        (["item_name", "price"], "item_name"),
        (["brand name", "filename", "titles"], None),
    ],
)
def test_the_column_with_an_items_name_is_found_whatever_its_capitals(columns: list[str], found: str | None) -> None:
    table = pl.DataFrame({"item": [1, 2], **{name: ["a", "b"] for name in columns}})
    assert title_column(table) == found
    assert title_column(table.with_columns(pl.lit([1]).alias("title"))) == found or "title" in columns
