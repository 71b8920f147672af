"""Boosts by column, new items and pins, against their formulas on a small shop."""

import datetime as dt
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.inference.bundle import Bundle
from recfusion.inference.lists import ListMaker, lists_for_requests
from recfusion.inference.recommending import recommend
from recfusion.inference.request import Filters, ListRequest, Reranking
from recfusion.inference.why_not import why_not
from shop import shop

HISTORY = ["i01", "i02", "i11", "i30"]
LATEST = dt.date(2026, 5, 1)


@pytest.fixture(scope="module")
def bundle(groups: Interactions) -> Bundle:
    """Return a shop with margins from 0 to 39, one of them missing, and dates ten days apart."""
    small = shop(groups)
    n = len(small.items)
    margin = pl.Series("margin", [None if row == 5 else float(row) for row in range(n)])
    added = pl.Series("added", [None if row == 6 else LATEST - dt.timedelta(days=10 * row) for row in range(n)])
    return replace(small, items=small.items.with_columns(margin, added))


def items(bundle: Bundle, k: int = 10, filters: Filters | None = None, **reranking: Any) -> list[str]:
    found = recommend(bundle, HISTORY, k, filters=filters, reranking=Reranking(**reranking))
    return found.to_frame()["item"].to_list()


def is_new(item: str, days: float = 30) -> bool:
    return item != "i06" and 10 * int(item[1:]) <= days


def test_a_boost_multiplies_relevance_by_a_power_of_ten_of_the_rank(bundle: Bundle) -> None:
    term = ListMaker.of(bundle, None, Reranking(boost={"margin": 0.3})).terms["margin boost"]
    others = [row for row in range(len(bundle.items)) if row != 5]
    quantiles = (np.arange(len(others)) + 0.5) / len(others)
    np.testing.assert_allclose(term[others], 0.3 * np.log(10) * (quantiles - 0.5), rtol=1e-5)
    assert term[5] == 0  # a missing value is neither high nor low


def test_equal_values_get_the_same_boost(bundle: Bundle) -> None:
    term = ListMaker.of(bundle, None, Reranking(boost={"stock": 1})).terms["stock boost"]
    for value in bundle.items["stock"].unique():
        assert len(np.unique(term[(bundle.items["stock"] == value).to_numpy()])) == 1


def test_a_stronger_boost_lists_items_of_a_higher_value(bundle: Bundle) -> None:
    means = [np.mean([int(item[1:]) for item in items(bundle, boost={"margin": w})]) for w in (-1, -0.3, 0, 0.3, 1)]
    assert means == sorted(means)
    assert means[0] < means[2] < means[-1]


def test_new_items_are_boosted_by_half_lives(bundle: Bundle) -> None:
    settings = Reranking(new_column="added", new_boost=0.5, new_days=20)
    term = ListMaker.of(bundle, None, settings).terms["new"]
    np.testing.assert_allclose(term[[0, 2, 4]], 0.5 * np.log(10) * np.array([1, 0.5, 0.25]), rtol=1e-5)
    assert term[6] == 0  # without a date


def test_a_date_in_the_future_is_new_and_makes_no_other_item_older(bundle: Bundle) -> None:
    ahead = bundle.items["added"].to_list()
    ahead[39] = dt.date(2999, 1, 1)
    future = replace(bundle, items=bundle.items.with_columns(pl.Series("added", ahead)))
    settings = Reranking(new_column="added", new_boost=1, new_days=10)
    one, other = (ListMaker.of(model, None, settings).terms["new"] for model in (bundle, future))
    assert other[39] == pytest.approx(np.log(10), rel=1e-6)
    np.testing.assert_array_equal(np.delete(one, 39), np.delete(other, 39))


@given(share=st.sampled_from([0.1, 0.25, 0.5, 1.0]), days=st.sampled_from([10, 45, 120]), k=st.integers(1, 15))
def test_each_beginning_of_a_list_has_its_share_of_new_items(bundle: Bundle, share: float, days: int, k: int) -> None:
    found = items(bundle, k, new_column="added", new_share=share, new_days=days)
    possible = sum(is_new(item, days) for item in items(bundle, 40))
    for n in range(1, len(found) + 1):
        assert sum(is_new(item, days) for item in found[:n]) >= min(int(share * n + 1e-9), possible)
    others = [item for item in found if not is_new(item, days)]
    assert others == [item for item in items(bundle, 40) if not is_new(item, days)][: len(others)]


def test_pins_are_at_their_places_and_the_others_keep_their_order(bundle: Bundle) -> None:
    plain = items(bundle, 40)
    pinned = items(bundle, 10, pins={"1": plain[-1], 4: plain[0]})
    assert (pinned[0], pinned[3]) == (plain[-1], plain[0])
    assert [item for item in pinned if item not in (plain[-1], plain[0])] == plain[1:9]


def test_a_pin_that_is_not_eligible_leaves_its_place_to_the_others(bundle: Bundle) -> None:
    plain = items(bundle, 10)
    assert items(bundle, 10, pins={"1": HISTORY[0], "2": "nowhere", "99": "i20"}) == plain
    best = items(bundle, 10, Filters(deny=(plain[5],)))
    assert items(bundle, 10, Filters(deny=(plain[5],)), pins={"1": plain[5]}) == best


def test_pins_count_for_the_limits_per_category(bundle: Bundle) -> None:
    coffee = items(bundle, 40, Filters(where="kind contains 'coffee'"))
    found = items(bundle, 10, Filters(at_most={"kind": 1}), pins={"3": coffee[-1]})
    assert found[2] == coffee[-1]
    assert not set(found) & set(coffee[:-1])


def test_a_pin_comes_at_the_end_of_a_list_that_is_shorter_than_its_place(bundle: Bundle) -> None:
    few = Filters(allow=("i20", "i21", "i22"))
    assert items(bundle, 10, few, pins={"7": "i20"})[-1] == "i20"


def test_pins_and_shares_of_new_items_go_with_diversity_and_are_explained(bundle: Bundle) -> None:
    settings = Reranking(diversity=0.4, pins={"2": "i39"}, new_column="added", new_share=0.3, boost={"margin": 0.2})
    request = ListRequest(history=tuple(HISTORY), reranking=settings, why=2)
    (found,) = lists_for_requests(bundle, [request])
    assert not isinstance(found, InputError)
    assert bundle.names[found.items[1]][0] == "i39"
    assert (
        sum(is_new(bundle.names[column][0]) for column in found.items) >= 2
    )  # i00 and i03; the history has the others
    assert found.explanation is not None
    assert "margin boost" in [reason.text for reason in found.explanation.because[1]]
    assert why_not(bundle, "i39", request).listed


@pytest.mark.parametrize(
    ("settings", "field", "message"),
    [
        ({"boost": {"margin": 2}}, "boost.margin", "less than or equal to 1"),
        ({"pins": {"0": "i01"}}, "pins", "pattern"),
        ({"pins": {"1": "i01", "2": "i01"}}, "pins", "one place only"),
        ({"new_boost": 0.5}, "", "expected new_column"),
        ({"new_column": "added", "new_days": 0}, "new_days", "greater than 0"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        Reranking(**settings)
    assert field in (refused.value.field or "")


@pytest.mark.parametrize(
    ("settings", "field", "message"),
    [
        ({"boost": {"kind": 0.5}}, "reranking.boost.kind", "numbers or dates"),
        ({"boost": {"profit": 0.5}}, "reranking.boost.profit", "margin"),
        ({"new_column": "margin", "new_share": 0.5}, "reranking.new_column", "column of dates"),
        ({"new_column": "since", "new_boost": 0.5}, "reranking.new_column", "added"),
    ],
)
def test_columns_that_do_not_fit_are_refused(
    bundle: Bundle, settings: dict[str, Any], field: str, message: str
) -> None:
    with pytest.raises(InputError, match=message) as refused:
        items(bundle, **settings)
    assert refused.value.field == field
