"""Filters, re-ranking, explanations, similar items and completions, against brute force on a small shop."""

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any, Literal

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import csr
from recfusion.core.arrays import FloatArray
from recfusion.core.errors import InputError
from recfusion.data.conditions import matching
from recfusion.data.interactions import Interactions
from recfusion.data.load import load
from recfusion.experiments.train import train
from recfusion.inference.baskets import _TEMPERATURE, _best_set, _drawn_set, complete
from recfusion.inference.bundle import Bundle
from recfusion.inference.categories import Categories
from recfusion.inference.histories import Histories
from recfusion.inference.lists import ListMaker
from recfusion.inference.recommending import recommend
from recfusion.inference.request import Filters, Reranking
from recfusion.inference.reranking import log_relevance
from recfusion.inference.similar import similar
from shop import shop, with_rates

HISTORY = ["i01", "i02", "i11", "i30"]


@pytest.fixture(scope="module")
def bundle(groups: Interactions) -> Bundle:
    return with_rates(shop(groups))


def items(bundle: Bundle, k: int = 10, **control: Any) -> list[str]:
    return recommend(bundle, HISTORY, k, **control).to_frame()["item"].to_list()


def kinds(bundle: Bundle, found: list[str]) -> list[set[str]]:
    table = dict(bundle.items.select("item", "kind").iter_rows())
    return [set((table[item] or "").split("|")) - {""} for item in found]


def alike(bundle: Bundle, item: int) -> FloatArray:
    row = np.zeros(len(bundle.items), np.float32)
    near, value = bundle.similarity.nearest(item)
    row[near] = value
    return row


def ranking(bundle: Bundle) -> list[str]:
    """All items in the order of their scores."""
    return items(bundle, 40, filters=Filters(again="allowed"))


# Filters


@given(
    where=st.sampled_from([None, "stock > 0", "kind contains 'gift'", "price < 9 and stock != 1", "new == true"]),
    deny=st.lists(st.integers(0, 45).map(lambda n: f"i{n:02d}"), max_size=30),
    allow=st.none() | st.lists(st.integers(0, 39).map(lambda n: f"i{n:02d}"), min_size=1, max_size=30),
    again=st.sampled_from(["never", "allowed", "only"]),
    most=st.none() | st.integers(1, 4),
    k=st.integers(1, 45),
)
def test_lists_are_what_filling_them_by_hand_gives(
    bundle: Bundle,
    where: str | None,
    deny: list[str],
    allow: list[str] | None,
    again: Literal["never", "allowed", "only"],
    most: int | None,
    k: int,
) -> None:
    at_most = {} if most is None else {"kind": most}
    filters = Filters(where=where, allow=allow, deny=deny, again=again, at_most=at_most)
    table = {row["item"]: row for row in bundle.items.iter_rows(named=True)}
    meets: dict[str | None, Callable[[dict[str, Any]], bool]] = {
        None: lambda row: True,
        "stock > 0": lambda row: row["stock"] > 0,
        "kind contains 'gift'": lambda row: "Gift" in (row["kind"] or ""),
        "price < 9 and stock != 1": lambda row: row["price"] is not None and row["price"] < 9 and row["stock"] != 1,
        "new == true": lambda row: row["new"],
    }
    possible = [item for item in ranking(bundle) if meets[where](table[item]) and item not in deny]
    possible = [item for item in possible if allow is None or item in allow]
    expected: list[str] = []
    used: dict[str, int] = {}
    for item in possible:
        own = set((table[item]["kind"] or "").split("|")) - {""}
        if (
            len(expected) == k
            or (again == "never" and item in HISTORY)
            or (again == "only" and item not in HISTORY)
            or any(used.get(o, 0) >= (most or 99) for o in own)
        ):
            continue
        expected.append(item)
        used |= {one: used.get(one, 0) + 1 for one in own}
    if possible:
        assert items(bundle, k, filters=filters) == expected
    else:
        with pytest.raises(InputError, match="leave none of 40 items"):
            items(bundle, k, filters=filters)


def test_rules_that_leave_nothing_say_what_each_took(bundle: Bundle) -> None:
    with pytest.raises(InputError, match=r"where removes 33.*allow removes 38"):
        items(
            bundle, filters=Filters(where="item in ('i01','i02','i03','i04','i05','i06','i07')", allow=["i20", "i21"])
        )


def test_numbers_and_whole_floats_are_ids_in_rules(bundle: Bundle) -> None:
    numbered = replace(bundle, items=bundle.items.with_columns(item=pl.Series(range(40))))
    found = recommend(numbered, [1, 2], 40, filters=Filters(deny=["3", 4, 5.0])).to_frame()["item"].to_list()
    assert len(found) == 35
    assert not {3, 4, 5} & set(found)


@pytest.mark.parametrize("most", [0, -1, 1.5, True])
def test_a_limit_is_a_whole_number_of_at_least_one(most: Any) -> None:
    with pytest.raises(InputError, match=r"Expected valid Filters: at_most\.kind: input should be"):
        Filters(at_most={"kind": most})


def test_unknown_ids_in_rules_are_reported(bundle: Bundle, caplog: pytest.LogCaptureFixture) -> None:
    items(bundle, filters=Filters(deny=["i03", "nonsense", "other"]))
    assert "2 ids in the filters and pins are unknown" in caplog.text


# Re-ranking


@pytest.mark.parametrize(
    "reranking",
    [
        Reranking(),
        Reranking(adventurousness=0, popularity=0, diversity=0),
        Reranking(wish={"kind": {"Tea": 0.0}}),
        Reranking(wish={"kind": {}}, calibration=0.2),
    ],
)
def test_default_weights_change_no_bit(bundle: Bundle, reranking: Reranking) -> None:
    histories = Histories(csr([[1, 2, 11, 30], [5], []], 40))
    plain, other = (ListMaker.of(bundle, None, weights).lists(histories, 12) for weights in (None, reranking))
    assert np.array_equal(plain.items, other.items)
    assert plain.scores.tobytes() == other.scores.tobytes()
    assert plain.basis == ["history", "history", "popularity"]


def test_adventurousness_skips_the_most_likely_items(bundle: Bundle) -> None:
    plain = items(bundle, 40)
    bold = items(
        bundle, 40, reranking=Reranking(adventurousness=0.5)
    )  # a = .6: of 4 items, 4 / .6 - 4 = 2.67 are missing
    assert set(bold[-3:]) == set(plain[:3])
    assert sorted(bold) == sorted(plain)
    weights = bundle.model.weights_  # type: ignore[attr-defined]
    column = {item: place for place, item in enumerate(bundle.items["item"])}
    extended = [column[item] for item in HISTORY + plain[:3]]
    counts = bundle.counts + bundle.counts.mean()
    scores = weights[extended].sum(0)
    scores = (scores - np.median(scores)) * counts**-0.5  # the relevance above the median, times n^-v
    left = [item for item in plain if item not in plain[:3]]
    assert bold[:5] == sorted(left, key=lambda item: -scores[column[item]])[:5]


def test_the_unexpected_is_far_from_the_history_and_not_what_everybody_has() -> None:
    """On films, at full strength: fewer than 5 % of the places have one of the hundred best-known items."""
    data = load("ml-latest-small")
    films = train("ease", data)
    known = np.argsort(-films.counts)[:100]
    history = data.matrix[:40]
    cooccurrence = (data.matrix.T @ data.matrix).toarray()
    likes = np.sqrt(np.diag(cooccurrence))
    cosine = cooccurrence / np.outer(likes, likes)
    shares, distances = [], []
    for value in (0.0, 0.5, 1.0):
        found = ListMaker.of(films, None, Reranking(adventurousness=value)).lists(Histories(history), 10).items
        shares.append(float(np.isin(found, known).mean()))
        nearest = [cosine[own][:, history[[row]].indices].max(1).mean() for row, own in enumerate(found)]
        distances.append(1 - float(np.mean(nearest)))
    assert shares[0] > 0.4 > shares[1] > shares[2], shares
    assert shares[2] < 0.05
    assert distances == sorted(distances)


def test_popularity_moves_lists_to_what_more_or_fewer_people_have(bundle: Bundle) -> None:
    count = dict(bundle.items.select("item", "train_count").iter_rows())
    found = [items(bundle, 5, reranking=Reranking(popularity=value)) for value in (-1.0, -0.5, 0.0, 0.5, 1.0)]
    means = [np.mean([count[item] for item in one]) for one in found]
    assert means == sorted(means)
    assert means[0] < means[4]


def test_a_wish_is_the_ratio_of_likelihoods(bundle: Bundle) -> None:
    maker = ListMaker.of(bundle, None, Reranking(wish={"kind": {"Gift": 0.5, "Tea": -1}}))
    names = bundle.categories("kind").names
    assert names == ("Books", "Coffee", "Cups", "Gift", "Tea")
    chance = np.array(
        [[(name in own) / max(len(own), 1) for name in names] for own in kinds(bundle, list(bundle.items["item"]))]
    )
    smooth = 0.05 / 5 + 0.95 * chance
    expected = 0.3 * (0.5 * np.log(smooth[:, 3] / smooth[:, 3].mean()) - np.log(smooth[:, 4] / smooth[:, 4].mean()))
    assert np.allclose(sum(maker.terms.values()), expected, atol=1e-5)
    more = items(bundle, 8, reranking=Reranking(wish={"kind": {"Gift": 1}}))
    less = items(bundle, 8, reranking=Reranking(wish={"kind": {"Gift": -1}}))
    assert sum("Gift" in own for own in kinds(bundle, more)) > sum("Gift" in own for own in kinds(bundle, less))


def test_relevance_keeps_the_order_and_puts_the_best_at_nought() -> None:
    scores = np.random.default_rng(0).normal(size=(3, 50)).astype(np.float32)
    scores[0, 3] = -np.inf
    seen = csr([[1], [], [2, 4]], 50)
    found = log_relevance(scores, seen)
    for row in range(3):
        assert np.array_equal(np.argsort(found[row]), np.argsort(scores[row]))
        assert found[row][np.setdiff1d(np.arange(50), seen[[row]].indices)].max() == pytest.approx(0, abs=1e-3)
    assert found[0, 3] == -np.inf
    assert np.isfinite(np.delete(found[0], 3)).all()


def test_shares_are_met_as_steck_s_greedy_choice_by_hand_meets_them(bundle: Bundle) -> None:
    wanted = {"Tea": 0.5, "Cups": 0.3}
    found = items(bundle, 6, reranking=Reranking(shares={"kind": wanted}, calibration=0.8))
    ranked = [item for item in ranking(bundle) if item not in HISTORY]
    scores = dict(recommend(bundle, HISTORY, 40).to_frame().select("item", "score").iter_rows())
    low, high = min(scores.values()), max(scores.values())
    target = np.array([0.5, 0.3, 0.2])

    def share(item: str) -> FloatArray:
        (own,) = kinds(bundle, [item])
        named = np.array([(name in own) / max(len(own), 1) for name in wanted])
        return np.append(named, 1 - named.sum())

    chosen: list[str] = []
    for _ in range(6):

        def value(item: str) -> float:
            q = np.mean([share(one) for one in [*chosen, item]], axis=0)
            kl = float(np.sum(target * np.log(target / (0.99 * q + 0.01 * target))))
            return 0.2 * (scores[item] - low) / (high - low) - 0.8 * kl

        chosen.append(max((item for item in ranked if item not in chosen), key=value))
    assert found == chosen


def test_diversity_is_maximal_marginal_relevance(bundle: Bundle) -> None:
    found = items(bundle, 6, reranking=Reranking(diversity=0.6))
    scores = dict(recommend(bundle, HISTORY, 40).to_frame().select("item", "score").iter_rows())
    low, high = min(scores.values()), max(scores.values())
    place = {item: number for number, item in enumerate(bundle.items["item"])}
    near = np.stack([alike(bundle, item) for item in range(40)])
    assert near.min() >= 0
    assert np.allclose(near.max(1), 1)
    assert np.array_equal(bundle.similarity.among(np.arange(40)), np.maximum(near, near.T))
    chosen: list[str] = []
    for _ in range(6):
        value = {
            item: 0.4 * (score - low) / (high - low)
            - 0.6 * max((near[place[other], place[item]] for other in chosen), default=0.0)
            for item, score in scores.items()
            if item not in chosen
        }
        chosen.append(max(value, key=lambda item: value[item]))
    assert found == chosen


@pytest.mark.parametrize(
    "settings",
    [
        {"adventurousness": 1.5},
        {"adventurousness": -0.1},
        {"popularity": float("nan")},
        {"diversity": "much"},
        {"wish": {"kind": {"Tea": 2}}},
        {"shares": {"kind": {"Tea": 0.7, "Cups": 0.7}}},
        {"shares": {"kind": {"Tea": 0.0}}},
        {"shares": {"kind": {"Tea": 1.0}, "item": {"i01": 1.0}}},
    ],
)
def test_a_weight_out_of_its_range_is_refused_with_its_field(settings: Any) -> None:
    with pytest.raises(InputError, match="Expected") as error:
        Reranking(**settings)
    assert str(error.value.field).startswith(next(iter(settings)))


def test_a_value_that_no_item_has_is_refused_with_those_that_exist(bundle: Bundle) -> None:
    with pytest.raises(InputError, match="'Horror' of the column kind: choose one of Books, Coffee, Cups, Gift, Tea"):
        items(bundle, reranking=Reranking(wish={"kind": {"Horror": 1}}))
    with pytest.raises(InputError, match="Unknown column of the item table 'genre'"):
        items(bundle, reranking=Reranking(shares={"genre": {"Horror": 1}}))


def test_likelihoods_share_an_item_evenly_among_its_categories() -> None:
    categories = Categories.of(pl.DataFrame({"kind": ["a|b", "c", None]}), "kind")
    assert categories.chances.toarray().tolist() == [[0.5, 0.5, 0], [0, 0, 1], [0, 0, 0]]


# Reasons


@pytest.mark.parametrize("model", ["ease", "thinning-linear", "edlae", "ease-dan", "slim", "bspm"])
def test_reasons_of_a_linear_model_are_exact_and_add_up_to_the_score(groups: Interactions, model: str) -> None:
    fitted = shop(groups, model).model
    history, asked = csr([[1, 2, 11, 30]], 40), np.array([0, 5, 20, 39])
    reasons = fitted.reasons(history, asked)
    assert reasons.kind == "exact"
    assert reasons.sources == ((1,), (2,), (11,), (30,))
    assert np.allclose(reasons.parts.sum(1), fitted.score(history)[0, asked], atol=1e-6)


def test_reasons_by_leaving_out_are_differences_of_scores(groups: Interactions) -> None:
    fitted = shop(groups, "ials").model
    asked = np.array([0, 5, 20])
    reasons = fitted.reasons(csr([[1, 2, 11]], 40), asked)
    assert reasons.kind == "left out"
    whole = fitted.score(csr([[1, 2, 11]], 40))[0, asked]
    for place, rest in enumerate(([2, 11], [1, 11], [1, 2])):
        assert np.allclose(reasons.parts[:, place], whole - fitted.score(csr([rest], 40))[0, asked], atol=1e-6)


def test_a_list_says_why(bundle: Bundle) -> None:
    found = recommend(bundle, {"me": HISTORY, "nobody": []}, 3, why=2).to_frame()
    mine, other = found.filter(user="me"), found.filter(user="nobody")
    assert mine["reasons"].unique().to_list() == ["exact"]
    for because in mine["because"]:
        assert 1 <= len(because) <= 2
        assert all(reason["items"][0] in HISTORY and reason["text"].startswith("Item ") for reason in because)
        assert [reason["weight"] for reason in because] == sorted((r["weight"] for r in because), reverse=True)
    assert other["reasons"].unique().to_list() == ["popularity"]


def test_controls_are_reasons_too(bundle: Bundle) -> None:
    reranking = Reranking(wish={"kind": {"Gift": 1}}, popularity=0.5, adventurousness=0.8)
    found = recommend(bundle, HISTORY, 4, reranking=reranking, why=9).to_frame()
    texts = {reason["text"] for because in found["because"] for reason in because}
    assert {"kind: Gift", "what your taste suggests"} <= texts


# Similar items and completions


def test_similar_items_are_the_model_s_own_weights_over_popularity(bundle: Bundle) -> None:
    weights = bundle.model.weights_  # type: ignore[attr-defined]
    counts = bundle.items["train_count"].to_numpy()
    row = np.maximum(weights[5], 0) * (np.maximum(counts, 1) / counts.mean()) ** -0.25
    row[5] = -1
    found = similar(bundle, "i05", k=4)
    assert found["item"].to_list() == [
        bundle.items["item"][int(place)] for place in np.argsort(-row, kind="stable")[:4]
    ]
    in_stock = similar(bundle, "i05", k=40, filters=Filters(where="stock > 0", deny=["i06"]))
    assert in_stock["stock"].min() > 0  # type: ignore[operator]
    assert not {"i05", "i06"} & set(in_stock["item"])


def test_an_unknown_item_has_no_similar_ones(bundle: Bundle) -> None:
    with pytest.raises(InputError, match="knows no item 'nonsense'"):
        similar(bundle, "nonsense")


def test_the_set_found_by_exchanges_is_the_best_of_all_sets() -> None:
    rng = np.random.default_rng(3)
    found = 0
    for _ in range(20):
        scores = np.sort(rng.random(8))[::-1]
        near = np.triu(rng.random((8, 8)).astype(np.float32), 1)
        near += near.T
        relevance = (scores - scores.min()) / (scores.max() - scores.min())

        def value(chosen: tuple[int, ...], relevance: FloatArray = relevance, near: FloatArray = near) -> float:
            pairs = near[np.ix_(chosen, chosen)].sum() / 2  # each pair once, pulling both of its items
            return float(relevance[list(chosen)].sum() + 0.5 * 2 / 2 * pairs)

        chosen = tuple(_best_set(scores, near, 3, 0.5))
        single = [value((*chosen[:p], j, *chosen[p + 1 :])) for p in range(3) for j in range(8) if j not in chosen]
        assert value(chosen) >= max(single) - 1e-6  # no exchange helps
        found += value(chosen) >= max(map(value, combinations(range(8), 3))) - 1e-6
    assert found >= 15  # and it is mostly the best of all


def test_sets_are_drawn_as_often_as_their_worth_says() -> None:
    """Against the chances of all six pairs of four candidates."""
    scores, rng = np.array([0.3, 0.28, 0.27, 0.0]), np.random.default_rng(0)
    near = np.array([[0, 0.1, 0, 0], [0.1, 0, 0.9, 0], [0, 0.9, 0, 0.2], [0, 0, 0.2, 0]], np.float32)
    pairs = list(combinations(range(4), 2))
    worth = [(scores[i] + scores[j]) / 0.3 + 0.2 * 2 * near[i, j] for i, j in pairs]
    chances = np.exp((np.array(worth) - max(worth)) / _TEMPERATURE)
    drawn = [tuple(_drawn_set(scores, near, [0, 1], 0.2, rng)) for _ in range(2000)]
    shares = [drawn.count(pair) / len(drawn) for pair in pairs]
    assert shares == pytest.approx(chances / chances.sum(), abs=0.035)


def test_the_seed_decides_the_draws(bundle: Bundle) -> None:
    one, again, other = (
        complete(bundle, HISTORY, 4, alternatives=3, seed=seed)["item"].to_list() for seed in (1, 1, 2)
    )
    assert one == again != other
    assert len(one) == 12
    assert not set(one) & set(HISTORY)
    with pytest.raises(InputError, match="whole number from 0"):
        complete(bundle, HISTORY, 4, seed=-1)


def test_a_completion_without_pull_is_the_top_of_the_list(bundle: Bundle) -> None:
    assert complete(bundle, HISTORY, 5, together=0)["item"].to_list() == items(bundle, 5)


def test_a_completion_follows_the_times_of_the_basket(groups: Interactions) -> None:
    times = np.arange(groups.matrix.nnz)
    timed = train("thinning-signals", replace(groups, times=times), {"tune_trials": 0, "recency": 1.0}, signals="timed")
    basket = [{"item": item, "time": 1e9 + number} for number, item in enumerate(HISTORY)]
    turned = [{"item": item, "time": 1e9 - number} for number, item in enumerate(HISTORY)]
    first, second = (complete(timed, each, 8, together=0)["item"].to_list() for each in (basket, turned))
    assert first == recommend(timed, basket, 8).to_frame()["item"].to_list()
    assert first != second


def test_alternatives_share_no_item(bundle: Bundle) -> None:
    found = complete(bundle, HISTORY, 4, alternatives=3, filters=Filters(where="stock > 0"))
    assert found["alternative"].to_list() == [1] * 4 + [2] * 4 + [3] * 4
    assert found["item"].n_unique() == 12
    assert not set(found["item"]) & set(HISTORY)
    assert found["stock"].min() > 0  # type: ignore[operator]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n": 0}, "at least one item"),
        ({"together": 2}, "between 0 and 1"),
        ({"filters": Filters(at_most={"kind": 1})}, "without at_most"),
    ],
)
def test_an_impossible_completion_is_refused(bundle: Bundle, settings: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        complete(bundle, HISTORY, **settings)
    with pytest.raises(InputError, match="at least one item that the model knows"):
        complete(bundle, ["nonsense"])


@pytest.mark.parametrize("column", ["price", "since"])
def test_a_wish_for_a_number_or_a_date_is_refused_with_a_condition_instead(bundle: Bundle, column: str) -> None:
    dates = pl.date_range(dt.date(2020, 1, 1), dt.date(2020, 1, 1) + dt.timedelta(len(bundle.items) - 1), eager=True)
    dated = replace(bundle, items=bundle.items.with_columns(since=dates))
    with pytest.raises(InputError, match=f"'{column}' holds .*use a condition") as error:
        items(dated, reranking=Reranking(wish={column: {"1.5": 1}}))
    assert error.value.field == f"reranking.wish.{column}"


def test_a_date_is_compared_as_a_date(bundle: Bundle) -> None:
    days = [dt.date(2020, 1, 2)] + [dt.date(2019, 12, 31)] * (len(bundle.items) - 1)
    dated = bundle.items.with_columns(pl.Series("since", days))
    assert matching(dated, "since > '2020-01-01'").sum() == 1
    assert matching(dated, "since == '2020-01-02'").sum() == 1
    assert matching(dated, "since in ('2020-01-02', '2019-12-31')").all()
    assert matching(dated, "since is missing").sum() == 0
    for wrong in ("since > 5", "since contains '20'", "since > '1.1.2020'"):
        with pytest.raises(InputError):
            matching(dated, wrong)


@pytest.mark.parametrize("model", ["ease", "ials", "thinning-fast"])
def test_reasons_and_the_rest_add_up_to_the_score(groups: Interactions, model: str) -> None:
    """For exact reasons, for differences without an item, and for mixtures of both."""
    bundle = train(model, groups)
    history = groups.matrix[:3]
    found = ListMaker.of(bundle).lists(Histories(history), 10, why=2)
    assert found.explanations is not None
    for scores, explanation in zip(found.scores, found.explanations, strict=True):
        shown = [sum(reason.weight for reason in because) for because in explanation.because]
        assert np.allclose(np.add(shown, explanation.other), scores, rtol=1e-4, atol=1e-5)
    assert any(abs(rest) > 1e-6 for rest in found.explanations[0].other)
