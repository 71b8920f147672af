"""Re-orders: rates by hand, scores on the scale of the model, and lists with `again`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.data.load import load
from recfusion.data.options import Preparation
from recfusion.data.purchases import Pairs, Purchases, all_purchases
from recfusion.inference.bundle import Bundle
from recfusion.inference.histories import parse_histories
from recfusion.inference.recommending import recommend
from recfusion.inference.reorders import item_intervals
from recfusion.inference.request import Again, Filters, ListRequest
from recfusion.inference.why_not import why_not
from shop import orders, reorder_shop, shop, with_rates

DAY = 86400


@pytest.fixture(scope="module")
def bundle(groups: Interactions) -> Bundle:
    return with_rates(shop(groups))


def bought(*rows: tuple[int, int, float]) -> Purchases:
    user, item, day = (np.array(values) for values in zip(*rows, strict=True))
    return Purchases(user, item, day * DAY * 1.0)


def entries(*rows: tuple[str, float]) -> list[dict[str, Any]]:
    return [{"item": item, "time": day * DAY} for item, day in rows]


def listed(bundle: Bundle, history: Any, k: int = 40, **filters: Any) -> list[str]:
    return recommend(bundle, history, k, filters=Filters(**filters)).frame["item"].to_list()


def test_intervals_are_shrunk_towards_the_category_and_the_mean_of_all() -> None:
    # Item 0: gaps of 10 and 20 days; item 1: a gap of 60; item 2: bought once. Items 0 and 2 are one category.
    pairs = Pairs.of(bought((0, 0, 0), (0, 0, 10), (0, 0, 30), (1, 1, 0), (1, 1, 60), (1, 2, 3)))
    mean = (30 + 60) / 3
    of_first, of_second = (30 + 2 * mean) / (2 + 2), (60 + 2 * mean) / (1 + 2)  # categories
    categories = csr_array(np.array([[1, 0], [0, 1], [1, 0]], np.float32))
    found = item_intervals(pairs, 3, categories)
    expected = [(30 + 2 * of_first) / (2 + 2), (60 + 2 * of_second) / (1 + 2), of_first]
    assert found.tolist() == pytest.approx(expected)
    alone = item_intervals(pairs, 3)
    assert alone.tolist() == pytest.approx([(30 + 2 * mean) / 4, (60 + 2 * mean) / 3, mean])


def test_purchases_of_one_day_are_one_basket() -> None:
    pairs = Pairs.of(bought((0, 5, 1.0), (0, 5, 1.0), (0, 5, 1.9), (0, 5, 4.5), (0, 2, 1.2), (0, 2, 9.0)))
    assert pairs.item.tolist() == [2, 5]
    assert pairs.count.tolist() == [2, 2]
    assert (pairs.first / DAY).tolist() == [1.2, 1.0]
    assert (pairs.last / DAY).tolist() == [9.0, 4.5]
    assert pairs.baskets.tolist() == [3, 3]


def test_prepared_data_has_earlier_purchases_without_returns() -> None:
    rows = [("a", "x", 1, 1), ("a", "x", 1, 1), ("a", "x", 2, 8), ("a", "x", -1, 9), ("a", "y", 1, 8)]
    rows += [("b", "x", 1, 2), ("b", "x", -1, 3), ("b", "y", 1, 3)]
    table = pl.DataFrame(rows, schema=["user", "item", "quantity", "day"], orient="row")
    table = table.select("user", "item", "quantity", time=pl.lit(1_000_000_000) + pl.col("day") * DAY)
    data = load(table, Preparation(min_items_per_user=1, min_users_per_item=1), name="orders")
    found = all_purchases(data)
    assert found is not None
    pairs = Pairs.of(found)
    ids = [(data.users[int(user)], data.items[int(item)]) for user, item in zip(pairs.user, pairs.item, strict=True)]
    assert ids == [("a", "x"), ("a", "y"), ("b", "y")]  # b returned x
    assert pairs.count.tolist() == [2, 1, 1]
    assert data.disliked is not None
    assert data.disliked.nnz == 1


def test_repeated_ratings_are_no_purchases() -> None:
    rows = pl.DataFrame({"user": ["a", "a", "b"], "item": ["x", "x", "x"], "rating": [5, 4, 5]})
    times = pl.Series("time", [1_000_000_000, 1_000_000_000 + 9 * DAY, 1_000_000_000])
    data = load(rows.with_columns(times), Preparation(min_items_per_user=1, min_users_per_item=1), name="stars")
    assert data.earlier is None


@given(
    st.lists(st.tuples(st.integers(0, 39), st.integers(0, 99)), min_size=1, max_size=25),
    st.sampled_from(["never", "allowed", "only"]),
)
def test_lists_are_new_items_bought_items_or_a_merge_of_both(
    bundle: Bundle, history: list[tuple[int, int]], again: Again
) -> None:
    given = entries(*((f"i{item:02d}", day) for item, day in history))
    own = {entry["item"] for entry in given}
    new, old = listed(bundle, given), listed(bundle, given, again="only")
    assert not own & set(new)
    assert set(old) == own
    if again == "allowed":
        both = recommend(bundle, given, 40, filters=Filters(again="allowed")).frame
        merged = both["item"].to_list()
        assert [item for item in merged if item in own] == old
        assert [item for item in merged if item not in own] == new
        assert (np.diff(both["score"].to_numpy()) <= 0).all()


def test_a_likely_reorder_takes_the_place_of_the_unseen_item_that_is_as_likely(bundle: Bundle) -> None:
    assert bundle.rates is not None
    pairs = parse_histories(bundle, entries(("i01", 50), ("i01", 70), ("i01", 99), ("i02", 1))).purchases
    assert pairs is not None
    unseen = np.linspace(1, 0, 36, dtype=np.float32)
    first, second = bundle.rates.scores(pairs, unseen).tolist()
    constant, slope, _ = bundle.rates.new.tolist()
    ranks = np.exp((bundle.rates.logits(pairs) - constant) / slope)
    assert ranks[0] < 1 < ranks[1] < 36
    assert first > 1
    assert second == pytest.approx(np.interp(np.log(ranks[1]), np.log(np.arange(1, 37)), unseen))


def test_categories_have_their_own_setting(bundle: Bundle) -> None:
    history = entries(("i01", 3), ("i05", 4), ("i11", 5), ("i12", 6))  # Tea and Coffee
    found = listed(bundle, history, again_by={"kind": {"Coffee": "allowed"}})
    assert {"i11", "i12"} <= set(found)
    assert not {"i01", "i05"} & set(found)
    found = listed(bundle, history, again="allowed", again_by={"kind": {"Tea": "only", "Coffee": "never"}})
    tea = {item for item, kind in bundle.items.select("item", "kind").iter_rows() if kind == "Tea"}
    assert set(found) & tea == {"i01", "i05"}
    assert not {"i11", "i12"} & set(found)
    assert "i13" in found


def test_bad_settings_are_one_sentence_about_their_field(bundle: Bundle, groups: Interactions) -> None:
    for values, field, words in (
        ({"again": "sometimes"}, "again", "'never', 'allowed' or 'only'"),
        ({"again_by": {"kind": {"Wine": "only"}}}, "again_by.kind", "Unknown value 'Wine'"),
        ({"again_by": {"colour": {"red": "only"}}}, "again_by.colour", "colour"),
    ):
        with pytest.raises(InputError, match=words) as error:
            listed(bundle, ["i01"], **values)
        assert error.value.field == field
    with pytest.raises(InputError, match=r"has no rates of re-orders.*train it on orders with times") as error:
        listed(shop(groups), ["i01"], again="only")
    assert error.value.field == "again"


def test_a_history_without_times_is_ranked_by_counts(bundle: Bundle) -> None:
    found = recommend(bundle, ["i05", "i07", "i05", "i06", "i05", "i07"], filters=Filters(again="only"), why=1).frame
    assert found["item"].to_list() == ["i05", "i07", "i06"]
    texts = [because[0]["text"] for because in found["because"]]
    assert texts == ["bought 3 times", "bought twice", "bought once"]


def test_a_reorder_is_explained_by_its_purchases(bundle: Bundle) -> None:
    history = entries(("i05", 14), ("i05", 42), ("i05", 70), ("i06", 100))
    found = recommend(bundle, history, filters=Filters(again="only"), why=2).frame
    texts = {item: [one["text"] for one in because] for item, because in found.select("item", "because").iter_rows()}
    # Gaps of 28 and 28 days, and twice the item's usual 20: every 24 days.
    assert texts == {
        "i05": ["bought 3 times, usually every 24 days, last 30 days ago"],
        "i06": ["bought once, last today"],
    }


def test_why_not_names_the_setting_and_a_returned_item_has_no_remedy(bundle: Bundle) -> None:
    found = why_not(bundle, "i05", ListRequest(history=["i06"], again="only"))
    assert found.excluded_by == ["again"]
    found = why_not(replace(bundle, rates=None), "i06", ListRequest(history=["i06"]))
    assert (found.excluded_by, found.rank, found.remedies) == (["again"], None, [])


@pytest.fixture(scope="module")
def reordering() -> Bundle:
    return reorder_shop()


def test_a_model_of_orders_knows_their_rates_and_keeps_them_in_its_folder(reordering: Bundle, tmp_path: Path) -> None:
    assert reordering.rates is not None
    regular = reordering.items["item"].is_in([f"i{n}" for n in range(12)]).to_numpy()
    assert (reordering.rates.intervals[regular] < 12).all()
    loaded = Bundle.load(reordering.save(tmp_path / "model"))
    assert loaded.rates is not None
    for name, array in reordering.rates.arrays().items():
        assert np.array_equal(array, loaded.rates.arrays()[name]), name
    rows = orders().filter(pl.col("user") == "u7")
    found = recommend(loaded, rows, 5, filters=Filters(again="allowed"), why=1).frame
    assert set(found["item"][:2]) == {"i7", "i8"}
    assert found["because"][0][0]["text"] == "bought 12 times, usually every 10 days, last 2 days ago"


def test_damaged_rates_are_one_sentence(reordering: Bundle, tmp_path: Path) -> None:
    assert reordering.rates is not None
    wrong = replace(reordering, rates=replace(reordering.rates, again=np.zeros(2, np.float32)))
    with pytest.raises(InputError, match=r"is damaged.*rates of re-orders"):
        Bundle.load(wrong.save(tmp_path / "model"))


def test_returned_items_are_in_no_list(reordering: Bundle) -> None:
    rows = pl.DataFrame({"user": ["a"] * 4, "item": ["i1", "i2", "i1", "i3"], "quantity": [1, 1, -1, 1]})
    rows = rows.with_columns(time=pl.Series([1_500_000_000 + day * DAY for day in range(4)]))
    for again in ("never", "allowed", "only"):
        found = recommend(reordering, rows, 40, filters=Filters(again=again)).frame["item"]
        assert "i1" not in found
        assert ("i2" in found) == (again != "never")
