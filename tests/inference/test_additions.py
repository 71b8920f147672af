"""New items in a model that is there: found at once, atomic, and by the features that put them there."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from recfusion.core.errors import InputError
from recfusion.data.features import with_features
from recfusion.data.interactions import Interactions
from recfusion.data.load import load
from recfusion.data.options import Source
from recfusion.data.split import split
from recfusion.evaluation.evaluate import evaluate
from recfusion.experiments.list_report import report_lists
from recfusion.experiments.train import evaluate_bundle, train
from recfusion.inference.baskets import complete
from recfusion.inference.bundle import Bundle
from recfusion.inference.new_items import add_items
from recfusion.inference.recommending import recommend
from recfusion.inference.request import Reranking
from recfusion.inference.similar import similar
from recfusion.report.map_figure import item_accuracy


def interactions(tmp_path: Path) -> tuple[Path, Path]:
    """Write users who have either teas or books, and what the items are."""
    rng = np.random.default_rng(0)
    rows = [(u, 10 * (u % 2) + i) for u in range(80) for i in rng.permutation(10)[:6]]
    pl.DataFrame(rows, schema=["user", "item"], orient="row").write_csv(tmp_path / "data.csv")
    kinds = ["Tea|Hot" if n < 10 else "Book|Paper" for n in range(20)]
    pl.DataFrame({"item": range(20), "kind": kinds}).write_csv(tmp_path / "items.csv")
    return tmp_path / "data.csv", tmp_path / "items.csv"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data, items = interactions(tmp_path)
    bundle = train("thinning-features", load(data, items=items), {"tune_trials": 0, "l2": 20}, signals="features")
    return bundle.save(tmp_path / "model")


NEW = pl.DataFrame({"item": [50, 51, 3], "kind": ["Tea|Hot", "Book|Loud", "Book"]})


def test_a_new_item_is_in_somebody_s_list_by_its_features(folder: Path, tmp_path: Path) -> None:
    found = add_items(folder, NEW, tmp_path / "more")
    assert (found.added, found.existing, found.known, found.given, found.items) == (2, 1, 3, 4, 22)
    bundle = Bundle.load(tmp_path / "more")
    teas, books = ([str(n) for n in range(first, first + 9)] for first in (0, 10))
    lists = recommend(bundle, {"tea": teas, "book": books}, k=3, why=2).frame
    for user, item in (("tea", 50), ("book", 51)):
        row = lists.filter(user=user, item=item).row(0, named=True)
        assert row["because"][0]["text"].startswith("its kind: ")
        assert row["reasons"] == "exact"
    assert Bundle.load(folder).items["item"].to_list() == list(range(20))
    assert "2 items joined after the training, by their features alone." in (tmp_path / "more/README.md").read_text()


def test_known_items_score_as_before_and_a_new_one_in_a_history_counts(folder: Path, tmp_path: Path) -> None:
    add_items(folder, NEW, tmp_path / "more")
    old, new = Bundle.load(folder), Bundle.load(tmp_path / "more")
    before = recommend(old, {"u": ["1", "2"]}, k=18).frame.select("item", "score")
    after = recommend(new, {"u": ["1", "2"]}, k=20).frame.filter(pl.col("item") < 50).select("item", "score")
    assert after["item"].to_list() == before["item"].to_list()
    np.testing.assert_allclose(after["score"], before["score"], rtol=1e-6)
    by_new = recommend(new, {"u": ["50"]}, k=5).frame
    assert set(by_new["item"]) <= {*range(10), 50}


def test_items_may_be_added_twice_and_into_the_same_folder(folder: Path) -> None:
    add_items(folder, NEW.head(1), folder)
    add_items(folder, NEW, folder)
    once = Bundle.load(folder)
    assert once.items["item"].to_list()[20:] == [50, 51]
    assert once.items["train_count"].to_list()[20:] == [0, 0]
    again = Bundle.load(once.save(folder))
    history = {"u": ["1", "50"]}
    assert recommend(again, history).frame.equals(recommend(once, history).frame)


def test_what_cannot_be_added_is_one_sentence_and_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "more"
    for table, told in (
        (NEW.tail(1), "has already: nothing to add"),
        (pl.DataFrame({"item": [60], "kind": ["Zebra"]}), "no feature is known to the model"),
        (pl.DataFrame({"item": [60], "colour": ["red"]}), "made of kind"),
        (pl.DataFrame({"item": ["x"], "kind": ["Tea"]}), "Expected whole numbers as ids"),
    ):
        with pytest.raises(InputError, match=told):
            add_items(folder, table, out)
    assert not out.exists()
    with pytest.raises(InputError, match="found no config"):
        add_items(tmp_path / "nowhere", NEW, out)
    (folder / "features.json").write_text("{}")
    with pytest.raises(InputError, match="in the model folder"):
        add_items(folder, NEW, out)


def test_a_model_without_features_says_which_has_them(tmp_path: Path) -> None:
    data, _ = interactions(tmp_path)
    folder = train("ease", load(data), {"tune_trials": 0}).save(tmp_path / "plain")
    with pytest.raises(InputError, match="train thinning with a table of items"):
        add_items(folder, NEW, tmp_path / "more")


def test_a_model_with_features_is_judged_again_from_its_folder(folder: Path) -> None:
    again = evaluate_bundle(Bundle.load(folder), Source(data=str(folder.parent / "data.csv")))
    assert again["ndcg@100"]["mean"] > 0.5


def test_columns_that_lists_have_too_are_features_lists_and_tables_of_new_items(tmp_path: Path) -> None:
    """An item file may have a column `rank`, `score` or `because` of its own, and `item_rank` besides."""
    data, items = interactions(tmp_path)
    own = ("rank", "item_rank", "score", "basis", "because", "reasons", "similarity", "alternative", "train_count")
    table = (
        pl.read_csv(items).rename({"kind": "rank"}).with_columns(pl.lit(f"its {name}").alias(name) for name in own[1:])
    )
    table.write_csv(items)
    fitted = train("thinning-features", load(data, items=items), {"tune_trials": 0, "l2": 20}, signals="features")
    folder = fitted.save(tmp_path / "model")
    bundle = Bundle.load(folder)
    assert bundle.recipes.items is not None
    assert [column.name for column in bundle.recipes.items.columns] == ["rank"]  # the others say nothing
    assert evaluate_bundle(bundle, Source(data=str(data)))["ndcg@100"]["mean"] > 0.5
    new = table.head(1).with_columns(item=pl.lit(50)).select("item", "rank", "because", "train_count")
    add_items(folder, new, tmp_path / "more")
    more = Bundle.load(tmp_path / "more")
    shown = more.items.row(-1, named=True)
    assert shown["item_rank_"] == "Tea|Hot"
    assert (shown["item_rank"], shown["item_because"], shown["train_count"]) == (None, "its because", 0)
    lists = recommend(more, [1, 2], 3, why=1).to_frame()
    assert lists["because"].dtype == pl.List
    assert lists["item_because"].drop_nulls().to_list() == ["its because"] * 3
    assert similar(more, 1, 2)["item_similarity"].drop_nulls()[0] == "its similarity"
    assert complete(more, [1], 2)["item_alternative"].drop_nulls()[0] == "its alternative"


def test_a_folder_whose_items_have_columns_of_later_lists_is_read(folder: Path) -> None:
    bundle = Bundle.load(folder)
    old = replace(bundle, items=bundle.items.with_columns(similarity=pl.lit("mine"), because=pl.lit("mine")))
    again = Bundle.load(old.save(folder))
    assert similar(again, 1, 2)["item_similarity"].to_list() == ["mine"] * 2
    assert recommend(again, [1, 2], 2, why=1).to_frame()["item_because"].to_list() == ["mine"] * 2


def test_a_user_without_history_but_with_features_gets_more_than_popularity(tmp_path: Path) -> None:
    data, items = interactions(tmp_path)
    taste = ["reader" if u % 2 else "drinker" for u in range(80)]
    pl.DataFrame({"user": range(80), "taste": taste}).write_csv(tmp_path / "users.csv")
    read = load(data, items=items, users_file=tmp_path / "users.csv")
    bundle = train("thinning-features", read, {"tune_trials": 0}, signals="features")
    bundle = Bundle.load(bundle.save(tmp_path / "model"))
    about = pl.DataFrame({"user": ["r", "d"], "taste": ["reader", "drinker"]})
    lists = recommend(bundle, {"r": [], "d": [], "nobody": []}, k=5, users=about, why=1).frame
    assert (lists.filter(user="r")["item"] >= 10).all()
    assert (lists.filter(user="d")["item"] < 10).all()
    assert lists.filter(user="d")["basis"].unique().to_list() == ["features"]
    assert lists.filter(user="nobody")["basis"].unique().to_list() == ["popularity"]
    assert "reader" not in (tmp_path / "model" / "protocol.json").read_text()
    # Features of users say nothing of single items, so that some may be taken for granted.
    turned = recommend(
        bundle, {"r": [10, 11, 12], "d": []}, k=5, users=about, reranking=Reranking(adventurousness=0.9)
    ).frame
    plain = recommend(bundle, {"r": [10, 11, 12], "d": []}, k=5, users=about).frame
    assert turned.filter(user="r")["item"].to_list() != plain.filter(user="r")["item"].to_list()
    assert (turned.filter(user="d")["item"] < 10).all()


def described(tmp_path: Path) -> tuple[Interactions, Bundle]:
    """Return data with a file of users, who like teas or books by their taste, and a model of it."""
    data, items = interactions(tmp_path)
    towns = ["Bern" if u % 3 else "Oslo" for u in range(80)]
    taste = ["reader" if u % 2 else "drinker" for u in range(80)]
    pl.DataFrame({"user": range(80), "taste": taste, "town": towns}).write_csv(tmp_path / "users.csv")
    read = load(data, items=items, users_file=tmp_path / "users.csv")
    return read, train("thinning-features", read, {"tune_trials": 0}, signals="features")


def test_a_model_with_features_of_users_is_judged_by_the_recorded_file_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    read, made = described(tmp_path)
    bundle = Bundle.load(made.save(tmp_path / "model"))
    parts = split(with_features(read, "features"), seed=0, used=bundle.protocol.signals.used)
    wanted = evaluate(made.model, parts.test, parts.train).mean()["ndcg@100"]
    assert evaluate_bundle(bundle)["ndcg@100"]["mean"] == pytest.approx(wanted)
    with pytest.raises(InputError, match="the model reads: add --users-file"):
        evaluate_bundle(bundle, Source(data="data.csv"))
    others = pl.read_csv("users.csv").with_columns(pl.col("town").reverse())
    others.write_csv("users.csv")
    with pytest.raises(InputError, match=r"Expected the item_features and user_features .* --data and --users-file"):
        evaluate_bundle(bundle)
    Path("users.csv").unlink()
    with pytest.raises(
        InputError, match=r"Expected a file of users at 'users\.csv', got nothing: name it with --users"
    ):
        evaluate_bundle(bundle)


def test_columns_of_users_that_a_table_lacks_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, bundle = described(tmp_path)
    recommend(bundle, {7: [1, 2]}, users=pl.DataFrame({"user": [7], "taste": ["reader"], "city": ["Bern"]}))
    assert caplog.messages == [
        "Expected columns of users that the model was trained on (taste, town), got no town among taste, city: give "
        "them the same names; they are treated as missing."
    ]
    with pytest.raises(InputError, match="got no taste, no town among city: give them the same names"):
        recommend(bundle, {7: [1, 2]}, users=pl.DataFrame({"user": [7], "city": ["Bern"]}))
    caplog.clear()
    recommend(bundle, {7: [1, 2]}, users=pl.DataFrame({"user": [7], "taste": ["reader"], "town": ["Bern"]}))
    assert not caplog.messages


@pytest.mark.parametrize("model", ["thinning-features", "thinning"])
def test_a_model_with_unsold_products_is_loaded_judged_and_asked_like_one_without(model: str, tmp_path: Path) -> None:
    """No test user has a product that nobody bought: the metrics are those of the products of the fit."""
    data, items = interactions(tmp_path)
    settings = {"tune_trials": 0} | (
        {"members": "thinning-pairs,thinning-local"} if model == "thinning" else {"l2": 20}
    )
    sold = train(model, load(data, items=items), settings, signals="features")
    more = pl.concat([pl.read_csv(items), NEW.head(2)])
    more.write_csv(items)
    bundle = Bundle.load(train(model, load(data, items=items), settings, signals="features").save(tmp_path / "model"))
    assert len(bundle.items) == len(sold.items) + 2
    asked = Source(data=str(data))
    assert evaluate_bundle(bundle, asked) == evaluate_bundle(sold, asked)
    assert report_lists(bundle, asked).plain == pytest.approx(report_lists(sold, asked).plain)
    assert bundle.layout is not None
    assert len(item_accuracy(bundle, asked)) == len(bundle.layout.items)
