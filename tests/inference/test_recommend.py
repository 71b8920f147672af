"""Recommendations by id, for users never seen."""

import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.sparse import block_diag, csr_array

from conftest import csr
from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions, RawData, ReadReport
from recfusion.data.options import Preparation
from recfusion.data.prepare import prepare
from recfusion.evaluation import topk
from recfusion.evaluation.topk import by_popularity, popular_first, top_k
from recfusion.experiments.train import train
from recfusion.inference.bundle import Bundle
from recfusion.inference.histories import read_histories
from recfusion.inference.lists import ListMaker
from recfusion.inference.recommending import recommend, recommend_batches
from recfusion.inference.request import Filters
from recfusion.inference.similar import similar


@pytest.fixture
def bundle(groups: Interactions) -> Bundle:
    return train("ease", groups)


def test_a_new_user_gets_items_of_the_same_taste_and_none_that_are_known(bundle: Bundle) -> None:
    found = recommend(bundle, {"new": ["i01", "i02", "i03", "i04"]}, k=5).to_frame()
    assert found["rank"].to_list() == [1, 2, 3, 4, 5]
    assert all(item.startswith("i0") for item in found["item"])
    assert not set(found["item"]) & {"i01", "i02", "i03", "i04"}
    assert found["title"].to_list() == [f"Item {int(item[1:])}" for item in found["item"]]
    assert found["score"].is_sorted(descending=True)
    assert set(found["basis"]) == {"history"}


def test_nothing_known_means_the_most_popular_items(bundle: Bundle) -> None:
    found = recommend(bundle, {"empty": [], "unknown": ["nonsense"]}, k=3).to_frame()
    popular = bundle.items.sort("train_count", descending=True, maintain_order=True)["item"].head(3).to_list()
    assert found["item"].to_list() == popular * 2
    assert set(found["basis"]) == {"popularity"}


def test_unknown_ids_are_left_out_and_counted(bundle: Bundle) -> None:
    rows = pl.DataFrame({"user": [1, 1, 2], "item": ["i01", "x", "y"]})
    histories = read_histories(bundle, rows)
    assert (histories.unknown_rows, histories.unknown_ids, histories.n_empty) == (2, ("x", "y"), 1)


def test_a_history_with_an_item_twice_has_it_once(bundle: Bundle) -> None:
    rows = pl.DataFrame({"user": [1, 1], "item": ["i01", "i01"]})
    assert read_histories(bundle, rows).matrix.nnz == 1


def test_batches_together_hold_every_user_once(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    users = {f"user {n}": [f"i{n:02d}"] for n in range(7)}
    whole = recommend(bundle, users, k=4).to_frame()
    monkeypatch.setattr(topk, "CELLS_PER_BATCH", 80)
    rows = pl.DataFrame({"user": list(users), "item": [items[0] for items in users.values()]})
    pieces = list(recommend_batches(ListMaker.of(bundle), read_histories(bundle, rows), 4))
    assert len(pieces) == 4
    assert pl.concat(pieces).equals(whole)


def test_a_list_longer_than_the_catalogue_ends_with_it(bundle: Bundle) -> None:
    assert len(recommend(bundle, {"new": ["i01"]}, k=500).to_frame()) == 39


def test_no_user_and_no_length_are_refused(bundle: Bundle) -> None:
    with pytest.raises(InputError, match="at least one user"):
        recommend(bundle, {})
    with pytest.raises(InputError, match="at least one item to recommend, got 0"):
        recommend(bundle, {"a": ["i01"]}, k=0)


@pytest.fixture
def numbered() -> Bundle:
    """A model whose items have whole numbers for ids: everybody has three neighbours of nine."""
    users = [user for user in range(27) for _ in range(3)]
    items = [318 + (user + step) % 9 for user in range(27) for step in range(3)]
    rows = pl.DataFrame({"user": users, "item": items})
    data = prepare(RawData("numbers", rows, None, ReadReport(len(rows))), Preparation(min_items_per_user=1))
    return train("ease", data, {"l2": 5.0})


@pytest.mark.parametrize(
    "history",
    [
        [318, 319],
        (318, 319),
        [318.0, 319.0],
        ["318", " 319 "],
        [np.int32(318), np.float64(319)],
        np.array([318, 319]),
        np.array([318.0, 319.0, np.nan]),
        pl.Series([318, 319]),
        pd.Series([318.0, 319.0, None]),
        pa.array([318, 319]).to_pylist(),
        {318, 319},
        {"you": [318, 319]},
        pl.DataFrame({"user": ["you", "you"], "item": [318, 319]}),
        pd.DataFrame({"user": ["you", "you"], "item": [318.0, 319.0]}),
        pa.table({"user": ["you", "you"], "item": ["318", "319"]}),
        pd.DataFrame({"customer_id": ["you", "you"], "product": [318.0, 319.0]}),
    ],
    ids=lambda history: type(history).__name__,
)
def test_a_history_of_any_form_means_the_same_and_is_not_recommended_again(numbered: Bundle, history: Any) -> None:
    expected = recommend(numbered, {"you": [318, 319]}).to_frame()
    assert not set(expected["item"]) & {318, 319}
    assert recommend(numbered, history).to_frame().equals(expected)


@pytest.mark.parametrize(
    ("history", "words"),
    [
        ("318", "Expected a list of items.* got '318'"),
        ({"you": "318"}, "Expected a list of items"),
        (318, "Expected a list of items"),
        ([True], "expected an id .* got 'True'"),
        ([[318]], "expected an id .* got"),
        (pl.DataFrame({"user": ["you"], "colour": ["red"]}), "a column for the item"),
    ],
)
def test_what_is_no_history_is_refused(numbered: Bundle, history: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        recommend(numbered, history)


def test_what_is_unknown_is_in_the_result_and_in_the_log(numbered: Bundle, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = recommend(numbered, {"a": [318, 7, 8.5], "b": ["nothing"]}, k=2)
    assert (found.unknown_rows, found.unknown_ids, found.n_empty) == (3, ("7", "8.5", "nothing"), 1)
    assert "3 ids are unknown to the model and left out (7, 8.5, nothing)." in caplog.text
    assert repr(found) == "Recommendations(2 users, 4 places, 3 unknown ids)"
    assert "<table" in found._repr_html_()


def test_items_that_say_nothing_about_others_give_the_most_popular_ones(groups: Interactions) -> None:
    """The only item of a user who is alone with it has no neighbours: all scores are 0."""
    matrix = block_diag([groups.matrix, csr([[0]], 1)], format="csr").astype(np.float32)
    n_items = matrix.shape[1]
    table = pl.DataFrame({"item": np.arange(n_items)})
    users = pl.Series(np.arange(matrix.shape[0]))
    data = replace(groups, matrix=csr_array(matrix), users=users, items=table["item"], item_table=table, times=None)
    bundle = train("ease", data, {"l2": 10.0}, all_users=True)
    found = recommend(bundle, [n_items - 1], k=5, why=1).frame
    popular = np.argsort(-bundle.counts, kind="stable")[:5]
    assert found["item"].to_list() == popular.tolist()
    assert set(found["basis"]) == {"popularity"}


def test_equal_scores_go_by_popularity() -> None:
    scores = np.array([[0, 1, 0, 0, 2], [3, 2, 1, 0, -np.inf]], np.float32)
    popularity = np.array([0.1, 0.2, 0.3, 0.9, 0.5], np.float32)
    items, values = top_k(scores, csr([[], []], 5), 4)
    assert items.tolist() == [[4, 1, 0, 2], [0, 1, 2, 3]]
    items, values = popular_first(items, values, scores, popularity)
    assert items.tolist() == [[4, 1, 3, 2], [0, 1, 2, 3]]
    assert values.tolist() == [[2, 1, 0, 0], [3, 2, 1, 0]]
    lists, equal = np.array([[0, 2, 3, -1]]), np.array([[1, 1, 1, -np.inf]], np.float32)
    assert by_popularity(lists, equal, popularity)[0].tolist() == [[3, 2, 0, -1]]


def test_equal_scores_go_by_popularity_in_limited_lists_and_similar_items() -> None:
    """Users 0 to 3 have items 0 and 1; items 2 to 5 are each had by other users, who say nothing about them."""
    rows = [[0, 1]] * 4 + [[2]] + [[3]] * 3 + [[4]] * 2 + [[5]] * 5
    table = pl.DataFrame({"item": np.arange(6), "kind": ["a"] * 6})
    matrix, users = csr(rows, 6), pl.Series(np.arange(len(rows)))
    data = Interactions("made up", matrix, users, table["item"], table, preparation=Preparation(min_rating=None))
    bundle = train("ease", data, {"l2": 1.0}, all_users=True)
    assert similar(bundle, 0, 5)["item"].to_list() == [1, 5, 3, 4, 2]
    found = recommend(bundle, [0], k=5, filters=Filters(at_most={"kind": 5})).frame
    assert found["item"].to_list() == [1, 5, 3, 4, 2]
