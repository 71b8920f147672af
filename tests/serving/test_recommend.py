"""Recommendations by id, for users never seen: histories of any form, unknown ids, and batches."""

import logging
from typing import Any

import numpy as np
import polars as pl
import pytest

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.data.load import load
from recfusion.evaluation import topk
from recfusion.experiments.train import train
from recfusion.serving.bundle import Bundle
from recfusion.serving.recommend import read_histories, recommend, recommend_batches

OWN = ["i01", "i02", "i03", "i04"]


@pytest.fixture
def bundle(groups: Interactions) -> Bundle:
    return train("ease", groups)


@pytest.fixture(scope="module")
def movies() -> Bundle:
    """A model whose ids are numbers."""
    return train("popularity", load())


def test_a_new_user_gets_items_of_the_same_taste_and_none_that_are_known(bundle: Bundle) -> None:
    found = recommend(bundle, {"new": OWN}, k=5).to_frame()
    assert found.columns == ["user", "rank", "item", "score", "basis", "title"]
    assert found["rank"].to_list() == [1, 2, 3, 4, 5]
    assert all(item.startswith("i0") for item in found["item"])
    assert not set(found["item"]) & set(OWN)
    assert found["title"].to_list() == [f"Item {int(item[1:])}" for item in found["item"]]
    assert found["score"].is_sorted(descending=True)
    assert set(found["basis"]) == {"history"}


def test_nothing_known_means_the_most_popular_items(bundle: Bundle) -> None:
    found = recommend(bundle, {"empty": [], "unknown": ["nonsense"]}, k=3)
    popular = bundle.items.sort("train_count", descending=True, maintain_order=True)["item"].head(3).to_list()
    assert found.frame["item"].to_list() == popular * 2
    assert set(found.frame["basis"]) == {"popularity"}
    assert (found.n_empty, found.unknown_rows, found.unknown_ids) == (2, 1, ("nonsense",))


def test_unknown_ids_are_left_out_counted_and_told(bundle: Bundle, caplog: pytest.LogCaptureFixture) -> None:
    rows = pl.DataFrame({"user": [1, 1, 2], "item": ["i01", "x", "y"]})
    histories = read_histories(bundle, rows)
    assert (histories.unknown_rows, histories.unknown_ids, histories.n_empty) == (2, ("x", "y"), 1)
    with caplog.at_level(logging.WARNING):
        found = recommend(bundle, [*OWN, "x", "y"], k=2)
    assert "2 ids are unknown to the model and left out (x, y)." in caplog.text
    assert repr(found) == "Recommendations(1 users, 2 places, 2 unknown ids)"


@pytest.mark.parametrize(
    "history",
    [
        tuple(OWN),
        np.array(OWN),
        pl.Series(OWN),
        (item for item in OWN),
        {"you": OWN},
        pl.DataFrame({"user": ["you"] * 4, "item": OWN}),
        pl.DataFrame({"user": ["you"] * 4, "item": OWN}).to_arrow(),
    ],
    ids=["tuple", "array", "series", "generator", "mapping", "frame", "arrow"],
)
def test_a_history_may_have_any_form(bundle: Bundle, history: Any) -> None:
    assert recommend(bundle, history, k=3).frame.equals(recommend(bundle, OWN, k=3).frame)


@pytest.mark.parametrize(
    "history",
    [["1", "50"], np.array([1, 50]), np.array([1.0, 50.0]), pl.Series([1, 50], dtype=pl.UInt32), [1, None, 50]],
    ids=["texts", "array", "floats", "series", "with a gap"],
)
def test_ids_that_are_numbers_are_found_whatever_their_type(movies: Bundle, history: Any) -> None:
    found = recommend(movies, history, k=3)
    assert found.unknown_rows == 0
    assert found.frame.equals(recommend(movies, [1, 50], k=3).frame)


@pytest.mark.parametrize("history", ["318", 318, {"you": "318"}, [True], [[1, 2]], [object]], ids=repr)
def test_what_is_no_history_is_refused(movies: Bundle, history: Any) -> None:
    with pytest.raises(InputError, match=r"Expected (the ids of a history|ids that are numbers or texts)"):
        recommend(movies, history)


def test_a_history_with_an_item_twice_has_it_once(bundle: Bundle) -> None:
    rows = pl.DataFrame({"user": [1, 1], "item": ["i01", "i01"]})
    assert read_histories(bundle, rows).matrix.nnz == 1


def test_batches_together_hold_every_user_once(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    users = {f"user {n}": [f"i{n:02d}"] for n in range(7)}
    whole = recommend(bundle, users, k=4).to_frame()
    monkeypatch.setattr(topk, "CELLS_PER_BATCH", 80)
    rows = pl.DataFrame({"user": list(users), "item": [items[0] for items in users.values()]})
    pieces = list(recommend_batches(bundle, read_histories(bundle, rows), 4))
    assert len(pieces) == 4
    assert pl.concat(pieces).equals(whole)


def test_a_list_longer_than_the_catalogue_ends_with_it(bundle: Bundle) -> None:
    assert len(recommend(bundle, {"new": ["i01"]}, k=500).frame) == 39


def test_no_user_and_no_length_are_refused(bundle: Bundle) -> None:
    with pytest.raises(InputError, match="at least one user"):
        recommend(bundle, {})
    with pytest.raises(InputError, match="k = 0"):
        recommend(bundle, {"a": ["i01"]}, k=0)
