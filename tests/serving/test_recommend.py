"""Recommendations by id, for users never seen."""

import polars as pl
import pytest

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.evaluation import topk
from recfusion.experiments.train import train
from recfusion.serving.bundle import Bundle
from recfusion.serving.recommend import read_histories, recommend, recommend_batches


@pytest.fixture
def bundle(groups: Interactions) -> Bundle:
    return train("ease", groups)


def test_a_new_user_gets_items_of_the_same_taste_and_none_that_are_known(bundle: Bundle) -> None:
    found = recommend(bundle, {"new": ["i01", "i02", "i03", "i04"]}, k=5)
    assert found["rank"].to_list() == [1, 2, 3, 4, 5]
    assert all(item.startswith("i0") for item in found["item"])
    assert not set(found["item"]) & {"i01", "i02", "i03", "i04"}
    assert found["title"].to_list() == [f"Item {int(item[1:])}" for item in found["item"]]
    assert found["score"].is_sorted(descending=True)
    assert set(found["basis"]) == {"history"}


def test_nothing_known_means_the_most_popular_items(bundle: Bundle) -> None:
    found = recommend(bundle, {"empty": [], "unknown": ["nonsense"]}, k=3)
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
    whole = recommend(bundle, users, k=4)
    monkeypatch.setattr(topk, "CELLS_PER_BATCH", 80)
    rows = pl.DataFrame({"user": list(users), "item": [items[0] for items in users.values()]})
    pieces = list(recommend_batches(bundle, read_histories(bundle, rows), 4))
    assert len(pieces) == 4
    assert pl.concat(pieces).equals(whole)


def test_a_list_longer_than_the_catalogue_ends_with_it(bundle: Bundle) -> None:
    assert len(recommend(bundle, {"new": ["i01"]}, k=500)) == 39


def test_no_user_and_no_length_are_refused(bundle: Bundle) -> None:
    with pytest.raises(InputError, match="at least one user"):
        recommend(bundle, {})
    with pytest.raises(InputError, match="k = 0"):
        recommend(bundle, {"a": ["i01"]}, k=0)
