"""Model folders: what they hold, and what damaged ones say."""

import json
from pathlib import Path

import polars as pl
import pytest

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.experiments.train import evaluate_bundle, train
from recfusion.models.bundle import Bundle


@pytest.fixture
def folder(groups: Interactions, tmp_path: Path) -> Path:
    return train("ease", groups).save(tmp_path / "model")


def test_a_folder_holds_json_weights_items_and_a_card_and_no_pickle(folder: Path) -> None:
    names = ["README.md", "config.json", "items.parquet", "metrics.json", "model.safetensors", "protocol.json"]
    assert sorted(path.name for path in folder.iterdir()) == names
    card = (folder / "README.md").read_text()
    assert "library_name: recfusion" in card
    assert "validation | ndcg@100" in card


def _edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "config.json").unlink(), "Expected a model folder"),
        (lambda f: _truncate(f / "model.safetensors"), "is damaged"),
        (lambda f: (f / "model.safetensors").unlink(), "is damaged"),
        (lambda f: _truncate(f / "items.parquet"), "is damaged"),
        (lambda f: pl.read_parquet(f / "items.parquet").head(3).write_parquet(f / "items.parquet"), "do not fit"),
        (lambda f: (f / "protocol.json").write_text("{}"), "Expected a protocol card"),
        (lambda f: (f / "metrics.json").write_text("[]"), "Expected a JSON object"),
        (lambda f: (f / "config.json").write_text("{"), "Expected JSON"),
        (lambda f: _edit(f / "config.json", format=99), "has format 99"),
        (lambda f: _edit(f / "config.json", model="nobody"), "Unknown model 'nobody'"),
        (lambda f: _edit(f / "config.json", settings={"l2": "x"}), "Setting l2 of ease"),
        (lambda f: _edit(f / "config.json", seed=-3), "Expected 'seed'"),
        (lambda f: _edit(f / "config.json", format=True), "Expected 'format'"),
        (lambda f: _edit(f / "protocol.json", metrics=["ndcg@5"]), "does not fit its hash"),
    ],
)
def test_a_damaged_folder_says_what_is_wrong(folder: Path, damage: object, message: str) -> None:
    damage(folder)  # type: ignore[operator]
    with pytest.raises(InputError, match=message):
        Bundle.load(folder)


def test_a_model_is_judged_on_its_own_test_users(tmp_path: Path) -> None:
    from recfusion.data.load import load

    bundle = Bundle.load(train("popularity", load(), seed=2).save(tmp_path / "model"))
    metrics = evaluate_bundle(bundle)
    assert metrics["ndcg@100"]["ci95"][0] < metrics["ndcg@100"]["mean"] < metrics["ndcg@100"]["ci95"][1]


def test_other_data_is_refused(folder: Path) -> None:
    from recfusion.data.settings import Source

    with pytest.raises(InputError, match="got other data"):
        evaluate_bundle(Bundle.load(folder), Source(data="ml-latest-small"))


def test_a_model_of_all_users_cannot_be_judged(groups: Interactions) -> None:
    bundle = train("ease", groups, all_users=True)
    assert bundle.items["train_count"].sum() == groups.n_interactions
    with pytest.raises(InputError, match="trained on all users"):
        evaluate_bundle(bundle)
