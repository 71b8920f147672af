"""Model folders: what they hold, what damaged ones say, whose code is run, and those of the first format."""

import json
import logging
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import load_file, save_file

from conftest import csr
from recfusion.core.arrays import Csr, FloatArray, column_counts
from recfusion.core.errors import InputError
from recfusion.core.files import file_digest
from recfusion.core.parquet import read_parquet
from recfusion.core.rng import RngLike
from recfusion.data.interactions import Interactions
from recfusion.data.load import load
from recfusion.data.options import Source
from recfusion.data.split import Fold, split
from recfusion.experiments.train import evaluate_bundle, train
from recfusion.inference.bundle import Bundle
from recfusion.inference.bundle_files import FILES, LAYOUT, sealed
from recfusion.inference.recommending import recommend
from recfusion.models.base import Recommender
from recfusion.models.linear.ease import EASE
from recfusion.models.settings import learned, setting

Damage = Callable[[Path], object]


@dataclass
class Counting(Recommender):
    """A model of somebody else's: what is popular, to a power."""

    power: float = setting(1.0, "power of an item's count")
    counts_: FloatArray = learned()  # (items,)

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        self.counts_ = column_counts(train).astype(np.float32) ** np.float32(self.power)
        return self

    def score(self, history: Csr) -> FloatArray:
        return np.tile(self.counts_, (history.shape[0], 1))


@pytest.fixture
def folder(groups: Interactions, tmp_path: Path) -> Path:
    return train("ease", groups).save(tmp_path / "model")


def test_numbers_of_the_item_table_keep_their_decimals(groups: Interactions, tmp_path: Path) -> None:
    """A price of 1.65 in single precision is 1.649999976158142 as a Python number."""
    prices = pl.Series("price", [1.65, 0.1, None, 2999.99] * 10, dtype=pl.Float32)
    bundle = train("ease", replace(groups, item_table=groups.item_table.with_columns(prices)))
    expected = [1.65, 0.1, None, 2999.99] * 10
    assert bundle.items["price"].to_list() == expected
    old = replace(bundle, items=bundle.items.with_columns(prices)).save(tmp_path / "old")  # as older versions did
    loaded = Bundle.load(old)
    assert loaded.items["price"].to_list() == expected
    assert set(recommend(loaded, ["i01"], 40).to_frame()["price"].to_list()) <= set(expected)
    assert loaded.matching("price == 1.65").sum() == 10


def test_a_folder_holds_json_weights_items_and_a_card_and_no_pickle(folder: Path) -> None:
    weights = ["layout.safetensors", "model.safetensors"]
    names = ["README.md", "config.json", "items.parquet", "metrics.json", *weights, "protocol.json"]
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    card = (folder / "README.md").read_text()
    assert "library_name: recfusion" in card
    assert "validation | ndcg@100" in card


def test_a_disk_that_removes_nothing_leaves_nothing_of_the_writing_in_a_folder(
    groups: Interactions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    folder = train("popularity", groups).save(tmp_path / "model")
    assert sorted(path.name for path in folder.iterdir()) == sorted(("README.md", "config.json", *FILES, LAYOUT))


def test_the_configuration_tells_what_was_asked_for_from_what_the_fit_chose(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    assert (config["format"], config["model"], config["place"]) == (2, "ease", "recfusion.models.linear.ease:EASE")
    assert config["settings"] == {"l2": None, "tune_trials": 20}
    assert config["chosen"].keys() == {"l2"}
    assert config["trials"] == 20
    assert config["digests"] == {name: file_digest(folder / name) for name in (*FILES, LAYOUT)}


def test_a_folder_with_a_name_that_looks_like_a_pattern_is_read(groups: Interactions, tmp_path: Path) -> None:
    bundle = train("popularity", groups)
    loaded = Bundle.load(bundle.save(tmp_path / "model [1]*"))
    assert loaded.items.equals(bundle.items)
    assert (loaded.protocol, loaded.seed) == (bundle.protocol, bundle.seed)
    assert loaded.metrics == json.loads(json.dumps(bundle.metrics))


def _edit(path: Path, **changes: object) -> None:
    document = json.loads(path.read_text()) | changes
    path.write_text(json.dumps(sealed(document) if "digest" in document else document))


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _reseal(folder: Path) -> None:
    """Write the digests of the files as they are now: as if they had been saved so."""
    _edit(folder / "config.json", digests={name: file_digest(folder / name) for name in FILES})


def _items(folder: Path, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    change(pl.read_parquet(folder / "items.parquet")).write_parquet(folder / "items.parquet")


def _weights(folder: Path, change: Callable[[Any], Any]) -> None:
    state = load_file(folder / "model.safetensors")
    save_file(
        {name: np.ascontiguousarray(change(array)) for name, array in state.items()}, folder / "model.safetensors"
    )


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", [_truncate, Path.unlink], ids=["cut", "gone"])
def test_a_file_that_is_not_the_one_that_was_saved_is_named(folder: Path, name: str, damage: Damage) -> None:
    damage(folder / name)
    with pytest.raises(InputError, match=f"The file {name} in the model folder .* is not the one that was saved"):
        Bundle.load(folder)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: _truncate(f / "model.safetensors"), "is damaged"),
        (lambda f: _truncate(f / "items.parquet"), "is damaged"),
        (lambda f: _weights(f, lambda w: w[:3]), "is damaged"),
        (lambda f: _weights(f, lambda w: w * np.float32("nan")), "weights_ has values that are no finite numbers"),
        (lambda f: _weights(f, lambda w: w.astype(np.float64)), "weights_ has numbers of type float64"),
        (lambda f: _items(f, lambda t: t.head(3)), "is damaged"),
        (lambda f: _items(f, lambda t: t.drop("item")), "is damaged"),
        (lambda f: _items(f, lambda t: t.with_columns(item=pl.lit("i00"))), "ids of its items are not distinct"),
        (lambda f: _items(f, lambda t: t.with_columns(train_count=-1)), "train_count of its items has values"),
        (lambda f: (f / "protocol.json").write_text("{}"), "Expected a protocol card"),
        (lambda f: _edit(f / "protocol.json", metrics=["ndcg@5"]), "does not fit its hash"),
        (lambda f: (f / "metrics.json").write_text("[]"), "Expected metrics in"),
    ],
)
def test_a_folder_that_was_damaged_before_it_was_sealed_says_what_is_wrong(
    folder: Path, damage: Damage, message: str
) -> None:
    damage(folder)
    _reseal(folder)
    with pytest.raises(InputError, match=message):
        Bundle.load(folder)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda c: c.unlink(), "Expected a model folder"),
        (lambda c: c.write_text("{"), "Expected JSON"),
        (lambda c: c.write_text("[]"), "Expected a JSON object"),
        (lambda c: _edit(c, format=99), "has format 99, this recfusion reads formats 1 and 2"),
        (lambda c: _edit(c, format="2"), "config.json': format: input should be a valid integer"),
        (lambda c: _edit(c, model="nobody"), "is not from recfusion or an installed package"),
        (lambda c: _edit(c, settings={"l2": "x"}), "Setting l2 of ease"),
        (lambda c: _edit(c, settings={"l3": 1}), "Unknown setting of ease 'l3'"),
        (lambda c: _edit(c, chosen={"l2": "much"}), "Setting l2 of EASE"),
        (lambda c: _edit(c, seed=-3), "config.json': seed: input should be greater"),
        (lambda c: _edit(c, digests={}), "Expected digests of model.safetensors"),
        (
            lambda c: c.write_text(re.sub(r'"fit_seconds": [^,]*', '"fit_seconds": NaN', c.read_text())),
            "NaN is not a number",
        ),
        (lambda c: c.write_text(c.read_text().replace('"trials"', '"trial"')), "config.json in .* is not the one"),
        (lambda c: c.write_text(c.read_text().replace('"digest"', '"digesu"')), "config.json': digesu: extra inputs"),
        (lambda c: _edit(c, recfusion="99.0"), "was written by recfusion 99.0, and this is .*: install the newer"),
        (lambda c: _edit(c, recfusion="new"), "config.json': recfusion: string should match"),
    ],
)
def test_a_configuration_that_makes_no_sense_says_so(folder: Path, damage: Damage, message: str) -> None:
    damage(folder / "config.json")
    with pytest.raises(InputError, match=message):
        Bundle.load(folder)


def test_a_changed_bit_of_the_configuration_is_noticed_unless_it_changes_nothing(folder: Path) -> None:
    path = folder / "config.json"
    content = path.read_bytes()
    sound = json.loads(content)
    for bit in range(0, 8 * len(content), 7):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        try:
            Bundle.load(folder)
        except InputError:
            continue
        assert json.loads(changed) == sound  # a blank became another blank


def test_a_folder_of_the_second_format_without_a_digest_of_its_configuration_is_read(folder: Path) -> None:
    now = Bundle.load(folder)
    config = json.loads((folder / "config.json").read_text())
    del config["digest"]
    (folder / "config.json").write_text(json.dumps(config))
    assert Bundle.load(folder).model == now.model


def test_a_file_that_changes_while_a_folder_is_read_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(path: Path) -> pl.DataFrame:
        items = read_parquet(path)
        _items(folder, lambda table: table.with_columns(train_count=7))
        return items

    monkeypatch.setattr("recfusion.inference.bundle.read_parquet", slow)
    with pytest.raises(InputError, match="changed while it was read: load it again"):
        Bundle.load(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "items.parquet", "protocol.json", "metrics.json"])
def test_a_configuration_without_the_digest_of_a_file_is_refused(folder: Path, name: str) -> None:
    digests = json.loads((folder / "config.json").read_text())["digests"]
    del digests[name]
    _edit(folder / "config.json", digests=digests)
    with pytest.raises(InputError, match=r"Expected digests of model.safetensors, items.parquet"):
        Bundle.load(folder)


@pytest.mark.parametrize("chosen", [{}, {"parts": {"ease": {"l2": 5.0}}}, {"parts": [], "weights": 3}, {"part": 1}])
def test_a_mixture_that_does_not_say_what_it_consists_of_is_damaged(
    groups: Interactions, tmp_path: Path, chosen: dict[str, Any]
) -> None:
    folder = train("mixture", groups, {"members": "ease,popularity"}).save(tmp_path / "model")
    _edit(folder / "config.json", chosen=chosen)
    with pytest.raises(InputError, match="is damaged"):
        Bundle.load(folder)


def test_a_folder_of_the_first_format_is_read_with_a_remark(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """There, what the fit chose stood among the settings, with a list of names, and searches had a time limit."""
    now = Bundle.load(folder)
    assert not caplog.records
    config = json.loads((folder / "config.json").read_text())
    old = {name: config[name] for name in ("recfusion", "model", "searched", "seed", "all_users", "fit_seconds")}
    old |= {"format": 1, "settings": {"l2": 500.0, "tune_trials": 20, "tune_seconds": 60.0}, "chosen": ["l2"]}
    (folder / "config.json").write_text(json.dumps(old))
    with caplog.at_level(logging.WARNING):
        before = Bundle.load(folder)
    assert "has format 1, without digests" in caplog.text
    assert before.model == now.model == EASE()
    assert before.model.chosen() == {"l2": 500.0}
    history = csr([[0, 1, 2]], 40)
    assert (before.model.score(history) == now.model.score(history)).all()


def test_a_model_of_somebody_else_s_is_read_where_its_class_is_trusted(groups: Interactions, tmp_path: Path) -> None:
    bundle = train(Counting(power=0.5), groups)
    folder = bundle.save(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    assert (config["model"], config["place"]) == ("Counting", f"{__name__}:Counting")
    loaded = Bundle.load(folder, trust=[EASE, Counting])
    assert loaded.model == Counting(power=0.5)
    history = split(groups).test.history
    assert (loaded.model.score(history) == bundle.model.score(history)).all()
    assert "Counting" in (folder / "README.md").read_text()


def test_code_is_never_run_because_a_folder_names_it(groups: Interactions, tmp_path: Path) -> None:
    folder = train(Counting(), groups).save(tmp_path / "model")
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    for place in (f"{__name__}:Counting", f"{tmp_path / 'evil.py'}:Counting"):
        _edit(folder / "config.json", place=place)
        for trust in ([], [EASE]):
            with pytest.raises(InputError, match=r"if you trust it, pass trust=\[Counting\]"):
                Bundle.load(folder, trust=trust)
    assert not (tmp_path / "ran").exists()


def test_columns_of_items_that_lists_have_of_their_own_get_other_names(groups: Interactions) -> None:
    table = groups.item_table.with_columns(score=pl.lit(1), item_score=pl.lit(2), train_count=pl.lit(3))
    bundle = train("popularity", replace(groups, item_table=table))
    assert bundle.items.columns == ["item", "title", "item_score_", "item_score", "item_train_count", "train_count"]
    assert bundle.items["train_count"].sum() == split(groups).train.nnz


def test_a_model_is_judged_on_its_own_test_users(tmp_path: Path) -> None:
    bundle = Bundle.load(train("popularity", load(), seed=2).save(tmp_path / "model"))
    metrics = evaluate_bundle(bundle)
    assert metrics["ndcg@100"]["ci95"][0] < metrics["ndcg@100"]["mean"] < metrics["ndcg@100"]["ci95"][1]


def test_other_data_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="got other data"):
        evaluate_bundle(Bundle.load(folder), Source(data="ml-latest-small"))


def test_a_model_of_all_users_cannot_be_judged(groups: Interactions) -> None:
    bundle = train("ease", groups, all_users=True)
    assert bundle.items["train_count"].sum() == groups.n_interactions
    assert bundle.model.chosen().keys() == {"l2"}  # by training users, each left out in turn
    assert bundle.searched == ()
    with pytest.raises(InputError, match="trained on all users"):
        evaluate_bundle(bundle)


def test_the_columns_of_a_bundle_have_roles_found_or_as_asked(tmp_path: Path) -> None:
    rows = [(f"u{user}", item) for user in range(30) for item in range(user % 5, user % 5 + 6)]
    pl.DataFrame(rows, schema=["user", "item"], orient="row").write_csv(tmp_path / "orders.csv")
    names = [f"Ware {n}" for n in range(10)]
    table = {"item": range(10), "Bezeichnung": names, "rank": names[::-1], "Preis": range(10), "UVP": range(10)}
    pl.DataFrame(table).write_csv(tmp_path / "products.csv")
    source = Source(data=str(tmp_path / "orders.csv"), items=str(tmp_path / "products.csv"))
    assert train("ease", load(source), {"l2": 9}).roles == {"title": "Bezeichnung", "price": "Preis"}
    asked = source.model_copy(update={"roles": "price=UVP,title=rank"})
    bundle = Bundle.load(train("ease", load(asked), {"l2": 9}).save(tmp_path / "model"))
    assert bundle.roles == {"title": "item_rank", "price": "UVP"}
    assert bundle.names[0] == ("0", "Ware 9")
    with pytest.raises(InputError, match="Expected a column 'Preise' of the item table for the role price"):
        load(source.model_copy(update={"roles": "price=Preise"}))
