"""Recipes with different signals and preparations are judged on the same users and items."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from conftest import raw
from foreign import Mine
from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions, RawData
from recfusion.data.merge import raw_rows
from recfusion.data.options import Preparation, SplitPlan
from recfusion.data.prepare import prepare
from recfusion.data.split import NobodyToJudge, split
from recfusion.evaluation.evaluate import evaluate
from recfusion.experiments.candidate import Candidate
from recfusion.experiments.preset import shop_choices
from recfusion.experiments.recipes import METRIC, Recipe, judge_recipes, train_better
from recfusion.experiments.train import train
from recfusion.models.base import Recommender
from recfusion.models.baselines.popularity import Popularity
from recfusion.models.linear.ease import EASE

ALL = Preparation(min_items_per_user=0, min_users_per_item=0)
STRICT = Preparation(min_items_per_user=5, min_users_per_item=5)


def recipe(model: str | Recommender, preparation: Preparation = ALL, signals: str = "binary") -> Recipe:
    return Recipe(Candidate.of("model", model), preparation, signals)


def described_shop() -> RawData:
    """Return rows of a shop with users who buy within one kind, mostly products that almost nobody else bought."""
    rng = np.random.default_rng(1)
    rows = [(f"u{n:03d}", f"p{n % 8}-{p:03d}") for n in range(400) for p in rng.choice(120, 4, replace=False)]
    user, item = zip(*rows, strict=True)
    items = sorted(set(item))
    table = pl.DataFrame({"item": items, "kind": [f"kind {name[1]}" for name in items]})
    return raw({"user": user, "item": item}, table)


def test_on_one_preparation_the_comparison_is_that_of_a_plain_split(groups: Interactions) -> None:
    old = train(Mine(), groups, all_users=True)
    bundle, outcome = train_better(raw_rows(groups), recipe(EASE(l2=10.0)), old)
    parts = split(groups, seed=0)

    def judged(model: EASE | Mine) -> float:
        return float(evaluate(model.fit(parts.train, rng=0), parts.test, parts.train).mean()[METRIC])

    assert outcome.decision == "new"
    assert outcome.gain == pytest.approx(judged(EASE(l2=10.0)) - judged(Mine()))
    assert bundle.metrics["against"][METRIC]["mean"] == outcome.gain
    assert bundle.metrics["test"][METRIC]["mean"] == pytest.approx(judged(EASE(l2=10.0)))
    assert "the new recipe is used" in outcome.sentence()


def test_an_old_recipe_keeps_its_signals_and_wins_with_them() -> None:
    data = described_shop()
    with_features = recipe("thinning-features", signals="features")
    old = train(with_features.candidate, with_features.prepare(data), all_users=True, signals="features")
    bundle, outcome = train_better(data, recipe("thinning-linear"), old)
    assert outcome.decision == "old"
    assert (bundle.name, bundle.protocol.signals.used) == ("thinning-features", ("item_features",))
    assert outcome.old is not None
    assert outcome.old["signals"] == "features"
    assert outcome.gain is not None
    assert outcome.gain < -0.02
    assert "the old recipe is fitted on today's data" in outcome.sentence()


def test_a_winning_old_recipe_knows_the_products_and_the_stock_of_today(groups: Interactions) -> None:
    old = train(EASE(l2=10.0), groups, all_users=True)
    rows = raw_rows(groups)
    sold = pl.DataFrame({"user": [f"u{n:02d}" for n in range(6)], "item": ["new"] * 6, "time": [10**6] * 6})
    table = pl.concat([groups.item_table, pl.DataFrame({"item": ["new"], "title": ["New"]})]).with_columns(stock=7)
    today = replace(rows, rows=pl.concat([rows.rows, sold]), items=table)
    bundle, outcome = train_better(today, recipe(Mine()), old)
    assert (outcome.decision, type(bundle.model)) == ("old", EASE)
    assert "new" in bundle.items["item"].to_list()
    assert bundle.items["stock"].unique().to_list() == [7]


def test_a_preparation_that_drops_most_customers_is_judged_on_all_of_them() -> None:
    """The strict preparation keeps a fifth of the users, and no product of the others."""
    rng = np.random.default_rng(0)
    rows = [
        (number, f"{number % 4}-{'a' if number < 80 else 'b'}-{product}")
        for number in range(400)
        for product in rng.choice(12, 8 if number < 80 else 3, replace=False)
    ]
    user, item = zip(*rows, strict=True)
    data = raw({"user": user, "item": item})
    every, few = judge_recipes(data, [recipe(EASE(l2=10.0)), recipe(EASE(l2=10.0), STRICT)], SplitPlan())
    assert every.test.users.tolist() == few.test.users.tolist()
    assert few.users < 100 < every.users
    assert few.mean < every.mean / 2
    strict = train(EASE(l2=10.0), prepare(data, STRICT), all_users=True)
    bundle, outcome = train_better(data, recipe(EASE(l2=10.0)), strict)
    assert (outcome.decision, bundle.train_users) == ("new", 400)
    loose = train(EASE(l2=10.0), prepare(data, ALL), all_users=True)
    bundle, outcome = train_better(data, recipe(EASE(l2=10.0), STRICT), loose)
    assert (outcome.decision, bundle.train_users) == ("old", 400)


def test_items_that_a_recipe_does_not_know_count_as_misses() -> None:
    """20 users have a, b and one item of their own. A recipe without rare items finds a or b, never the own item."""
    rows = [(f"u{n:02d}", item) for n in range(20) for item in ("a", "b", f"own{n}")]
    user, item = zip(*rows, strict=True)
    data = raw({"user": user, "item": item})
    plan = SplitPlan(test=0.5)
    frequent = Preparation(min_items_per_user=0, min_users_per_item=2)
    (judged,) = judge_recipes(data, [recipe(Popularity(), frequent)], plan)
    whole = prepare(data, ALL)
    names = [str(whole.items[int(column)]) for column in split(whole, plan, seed=0).test.held_out.indices]
    found = judged.test.per_user["calibrated_recall@20"]
    assert found.tolist() == [0.0 if name.startswith("own") else 1.0 for name in names]
    assert judged.items == 2


@pytest.mark.parametrize("kind", ["weak", "temporal", "global"])
def test_held_out_items_are_never_part_of_the_training(groups: Interactions, kind: str) -> None:
    plan = SplitPlan.model_validate({"kind": kind})
    (judged,) = judge_recipes(raw_rows(groups), [recipe(EASE(l2=10.0))], plan)
    parts = split(groups, plan, seed=0)
    wanted = evaluate(EASE(l2=10.0).fit(parts.train, rng=0), parts.test, parts.train).mean()[METRIC]
    assert judged.mean == pytest.approx(wanted, rel=0.02)


def test_the_first_model_needs_no_older_one_and_nobody_to_judge(groups: Interactions) -> None:
    bundle, outcome = train_better(raw_rows(groups), recipe("thinning-linear"), None)
    assert (outcome.decision, outcome.gain, outcome.test_users) == ("first", None, 8)
    assert (bundle.all_users, bundle.train_users, "test" in bundle.metrics) == (True, 80, True)
    lone = raw({"user": ["a", "b", "c"], "item": ["x", "x", "y"]})
    bundle, outcome = train_better(lone, recipe(Popularity()), None)
    assert (outcome.decision, outcome.new, bundle.metrics) == ("first", None, {})
    with pytest.raises(NobodyToJudge):
        train_better(lone, recipe(Popularity()), bundle)


def test_an_old_recipe_with_signals_that_today_s_data_lacks_is_one_sentence() -> None:
    data = described_shop()
    with_features = recipe("thinning-features", signals="features")
    old = train(with_features.candidate, with_features.prepare(data), all_users=True, signals="features")
    with pytest.raises(InputError, match="Signals 'features' are requested, but"):
        train_better(replace(data, items=None), recipe("thinning-linear"), old)


def test_the_preset_of_a_shop_keeps_small_customers_masks_returns_and_tells_why() -> None:
    """Ten customers keep a and b and return x, which two others keep; the defaults would leave nobody."""
    rows = [(f"c{n}", item, q) for n in range(10) for item, q in (("a", 1), ("b", 1), ("x", 1), ("x", -1))]
    user, item, quantity = zip(*rows, ("d", "x", 1), ("d", "y", 1), ("e", "x", 1), ("e", "y", 1), strict=True)
    table = pl.DataFrame({"item": ["a", "b", "x", "y"], "kind": ["one", "one", "two", "two"]})
    data = raw({"user": user, "item": item, "rating": quantity}, table)
    data = replace(data, report=replace(data.report, columns={"rating": "quantity"}))
    chosen, told = shop_choices(recipe("thinning-features", Preparation()), data, ())
    assert (chosen.preparation.min_items_per_user, chosen.preparation.min_users_per_item) == (1, 2)
    assert chosen.signals == "features,graded"
    assert "keep 12 customers and 4 products; the defaults of 5 would keep 0 and 0" in told[0]
    assert "Returns are masked: 10 pairs" in told[1]
    assert told[2].startswith("Signals: features,graded; thinning-features reads item_features, user_features")
    kept, _ = shop_choices(recipe(EASE(), Preparation(min_users_per_item=5), "graded"), data, {"min_users_per_item"})
    assert (kept.preparation, kept.signals) == (Preparation(min_items_per_user=1, min_users_per_item=5), "graded")
