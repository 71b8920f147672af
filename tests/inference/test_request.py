"""The request records: bounds, ids of any form, and what is generated from the fields."""

from typing import Any

import numpy as np
import polars as pl
import pytest

import recfusion as rf
from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.inference.bundle import Bundle
from recfusion.inference.request import (
    Filters,
    HistoryEntry,
    ItemFilters,
    ListRequest,
    Reranking,
    describe_controls,
    parse_history,
)
from recfusion.inference.reranking import TERMS
from shop import shop


@pytest.fixture(scope="module")
def bundle(groups: Interactions) -> Bundle:
    return shop(groups)


@pytest.mark.parametrize(
    "ids",
    [
        ["1", "2"],
        (1, 2),
        [1.0, np.int32(2)],
        np.array([1, 2]),
        np.array([1.0, np.nan, 2.0]),
        pl.Series([1, None, 2]),
        {"1": 0, "2": 0}.keys(),
    ],
    ids=str,
)
def test_ids_of_any_form_become_texts(ids: Any) -> None:
    assert ItemFilters(allow=ids).allow == ("1", "2")


@pytest.mark.parametrize("ids", ["1", 1, [True], [None], [[1]], [1.5], [""], ["x" * 1001], {"1": 2}, ["\ud800"]])
def test_other_values_are_no_ids(ids: Any) -> None:
    with pytest.raises(InputError, match="Expected valid ItemFilters: deny") as error:
        ItemFilters(deny=ids)
    assert str(error.value.field).startswith("deny")


def test_an_id_list_may_have_a_million_ids() -> None:
    ids = [str(number) for number in range(1_000_001)]
    assert len(ListRequest(history=ids[1:]).history or ()) == 1_000_000
    with pytest.raises(InputError, match="history"):
        ListRequest(history=ids)


def test_a_history_keeps_plain_ids_and_validates_entries() -> None:
    assert ListRequest(history=["a", "b"]).history == ("a", "b")
    mixed = ListRequest(history=[3, {"item": 4, "rating": 5, "time": 9}]).history
    assert mixed == (HistoryEntry(item="3"), HistoryEntry(item="4", rating=5, time=9))
    for wrong, field in (([["a"]], "history.0"), (["a", {"item": "b", "rating": "x"}], "history.1.rating")):
        with pytest.raises(InputError) as error:
            ListRequest(history=wrong)
        assert error.value.field == field
    with pytest.raises(InputError) as error:
        parse_history([{"item": "b", "stars": 5}])
    assert error.value.field == "history"


def test_controls_are_described_by_their_fields() -> None:
    controls = {control["name"]: control for control in describe_controls()}
    assert list(controls) == list(Reranking.model_fields)
    assert controls["popularity"] == {
        "name": "popularity",
        "kind": "weight",
        "title": "Fame",
        "low": "hidden gems",
        "high": "big names",
        "help": "prefer little-known (below 0) or well-known items (above 0)",
        "min": -1,
        "max": 1,
        "default": 0.0,
    }
    assert [controls[name]["title"] for name in ("calibration", "wish", "shares")] == [None] * 3
    assert [controls[name]["kind"] for name in ("calibration", "wish", "shares")] == ["weight", "weights", "shares"]
    assert (controls["wish"]["min"], controls["shares"]["min"], controls["calibration"]["default"]) == (-1, 0, 0.9)


def test_every_control_has_a_scoring_term_or_a_stage_of_its_own() -> None:
    staged = {"adventurousness", "diversity", "calibration", "shares", "pins"}
    new_items = {"new_column", "new_days", "new_boost", "new_share"}
    assert set(TERMS) | staged | new_items == set(Reranking.model_fields)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda b: rf.recommend(b, ["i01"], filters=Filters(where="stock >")), "where"),
        (lambda b: rf.recommend(b, ["i01"], filters=Filters(allow=["nothing"])), "allow"),
        (lambda b: rf.recommend(b, ["i01"], filters=Filters(at_most={"colour": 1})), "at_most.colour"),
        (
            lambda b: rf.recommend(b, ["i01"], reranking=Reranking(wish={"kind": {"Rum": 1}})),
            "reranking.wish.kind",
        ),
        (
            lambda b: rf.recommend(b, ["i01"], reranking=Reranking(shares={"kind": {"Rum": 1}})),
            "reranking.shares.kind",
        ),
        (lambda b: rf.recommend(b, ["i01"], k=0), "k"),
        (lambda b: rf.recommend(b, [{"item": "i01", "rating": 3}]), "history"),
        (lambda b: rf.recommend(b, "i01"), "history"),
        (lambda b: rf.recommend(b, ["i01"], users=pl.DataFrame({"user": ["you"]})), "users"),
        (lambda b: rf.similar(b, "nothing"), "item"),
        (lambda b: rf.similar(b, "i01", filters=Filters(at_most={"kind": 1})), "at_most"),
        (lambda b: rf.complete(b, ["nothing"]), "history"),
        (lambda b: rf.complete(b, ["i01"], together=2), "together"),
    ],
)
def test_errors_carry_their_field(bundle: Bundle, call: Any, field: str) -> None:
    with pytest.raises(InputError) as error:
        call(bundle)
    assert error.value.field == field


def test_a_history_has_the_ids_of_files() -> None:
    assert parse_history([318, 318.0, " 318 ", "318.0", 1.5, "a.b"]) == ("318", "318", "318", "318", "1.5", "a.b")
    with pytest.raises(InputError, match=r"below 2\^53"):
        parse_history([12345678901234567.0])
    with pytest.raises(InputError, match=r"below 2\^53"):
        parse_history(["12345678901234567.0"])
