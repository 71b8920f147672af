"""Updates of a model folder: users are added, changed and forgotten as if the model had been trained without them."""

import json
import logging
import subprocess
import sys
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import recfusion as rf
from recfusion.core.arrays import FloatArray
from recfusion.core.errors import InputError
from recfusion.experiments.train import evaluate_bundle, train
from recfusion.inference import update as updating
from recfusion.inference.bundle import COUNT, Bundle
from recfusion.inference.update import update
from recfusion.models.thinning import updates as linear_updates
from recfusion.models.thinning.linear import ThinningLinear
from recfusion.models.thinning.updates import equivalent_l2

SETTINGS: dict[str, Any] = {"l2": 5.0, "nu": 0.3, "kappa": 0.5, "b": 0.5, "c": 0.2}


def frame(seed: int = 0, n_users: int = 90) -> pl.DataFrame:
    """Users u0, u1, ... with 5 to 8 of 16 items each; users with even numbers prefer the first items."""
    rng = np.random.default_rng(seed)
    rows = []
    for user in range(n_users):
        chance = np.where(np.arange(16) < 8, 1 + 4 * (user % 2 == 0), 1 + 4 * (user % 2)).astype(float)
        own = rng.choice(16, rng.integers(5, 9), replace=False, p=chance / chance.sum())
        rows += [(f"u{user}", f"i{item:02}") for item in own]
    return pl.DataFrame(rows, schema=["user", "item"], orient="row")


def trained(rows: pl.DataFrame, **more: Any) -> Bundle:
    return train(ThinningLinear(**SETTINGS | more), rf.load(rows), all_users=True, updatable=True)


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return trained(frame())


def scores(bundle: Bundle) -> FloatArray:
    """The scores of each item alone and of all pairs of neighbouring items."""
    eye = np.eye(len(bundle.items), dtype=np.float32)
    return np.concatenate([eye, eye + np.roll(eye, 1, axis=1)]) @ bundle.model.weights_  # type: ignore[attr-defined]


def assert_same_model(found: Bundle, expected: Bundle) -> None:
    """Raise unless two models have the same scores, up to a common factor, within 1e-4 of their spread."""
    assert found.items["item"].to_list() == expected.items["item"].to_list()
    assert found.items[COUNT].to_list() == expected.items[COUNT].to_list()
    one, two = scores(found), scores(expected)
    factor = float((one * two).sum() / (two * two).sum())
    assert factor == pytest.approx(1, abs=0.02)
    np.testing.assert_allclose(one, factor * two, atol=1e-4 * float(one.std()))


def refitted(rows: pl.DataFrame, found: Bundle) -> Bundle:
    """Train on these rows; the fixed mean popularity of an update is a slightly different penalty."""
    assert found.training is not None
    model = found.model
    assert isinstance(model, ThinningLinear)
    return trained(rows, l2=equivalent_l2(model, found.training.kept, found.training.rows.matrix))


def test_a_model_that_forgot_users_equals_one_that_was_fitted_without_them(bundle: Bundle) -> None:
    found = update(bundle, forget=["u3", "u40", "u41"])
    rows = frame().filter(~pl.col("user").is_in(["u3", "u40", "u41"]))
    assert_same_model(found, refitted(rows, found))
    assert found.train_users == bundle.train_users - 3
    assert found.updates[-1].forgotten == 3


def test_added_and_changed_users_count_as_if_they_had_been_trained_on(bundle: Bundle) -> None:
    more = pl.DataFrame({"user": ["new"] * 6 + ["u5"] * 2, "item": [f"i{n:02}" for n in (0, 1, 2, 3, 4, 9, 14, 15)]})
    found = update(bundle, more)
    assert_same_model(found, refitted(pl.concat([frame(), more]).unique(), found))
    assert (found.updates[-1].added, found.updates[-1].changed) == (1, 1)


def test_whole_histories_replace_those_of_known_users(bundle: Bundle) -> None:
    history = {"u5": [f"i{n:02}" for n in (1, 2, 3, 4, 5)]}
    found = update(bundle, history, replace_histories=True)
    kept = frame().filter(pl.col("user") != "u5")
    rows = pl.concat([kept, pl.DataFrame({"user": ["u5"] * 5, "item": history["u5"]})])
    assert_same_model(found, refitted(rows, found))


def test_new_items_enter_with_enough_users_and_others_are_left_out_and_counted(
    bundle: Bundle, caplog: pytest.LogCaptureFixture
) -> None:
    more = {f"u{n}": ["i99", "i98"] if n < 2 else ["i99"] for n in range(6)}
    with caplog.at_level(logging.WARNING):
        found = update(bundle, more)
    assert "2 rows of new items with too few users" in caplog.text
    added = [(user, "i99") for user in more]
    rows = pl.concat([frame(), pl.DataFrame(added, schema=["user", "item"], orient="row")])
    assert found.items["item"][-1] == "i99"
    assert_same_model(found, refitted(rows, found))


def test_a_saved_update_can_be_loaded_and_updated_again(bundle: Bundle, tmp_path: Path) -> None:
    first = update(bundle, forget=["u7"]).save(tmp_path / "one")
    found = update(Bundle.load(first), {"u7": [f"i{n:02}" for n in range(6)]}, forget=["u8"])
    again = Bundle.load(found.save(tmp_path / "two"))
    np.testing.assert_array_equal(scores(again), scores(found))
    assert (again.updates[0].forgotten, again.updates[0].added) == (2, 1)
    with pytest.raises(InputError, match="does not have"):
        update(again, forget=["u8"])


def test_the_folder_and_its_card_name_no_user(bundle: Bundle, tmp_path: Path) -> None:
    secret = trained(frame().with_columns(user=pl.col("user") + "@example.org"))
    folder = update(secret, forget=["u3@example.org"]).save(tmp_path / "model")
    for file in folder.iterdir():
        assert b"example.org" not in file.read_bytes(), file.name
    card = (folder / "README.md").read_text()
    assert "| 0 | 0 | 1 | 0 |" in card
    assert "keyed digests" in card


def test_later_ratings_below_the_threshold_remove_an_item_from_a_history(tmp_path: Path) -> None:
    liked = frame().with_columns(rating=pl.Series([5, 4] * (len(frame()) // 2) + [5] * (len(frame()) % 2)))
    rated = pl.concat([liked, pl.DataFrame({"user": ["u0"], "item": ["i15"], "rating": [1]}).cast(liked.schema)])
    found = trained(rated.unique(["user", "item"], keep="first"))
    first = liked.filter(pl.col("user") == "u1")["item"][0]
    changed = update(found, pl.DataFrame({"user": ["u1"], "item": [first], "rating": [1.0]}))
    place = found.columns_of([first])[0]
    assert changed.items[COUNT][int(place)] == found.items[COUNT][int(place)] - 1


@pytest.mark.parametrize(
    ("rows", "forget", "message"),
    [
        (None, ["nobody"], "1 of 1 that it does not have"),
        (None, ["u1", "nobody"], r"1 of 2 that it does not have \(the first is id 2 of the list\)"),
        (None, [], "nothing to update"),
        ({"new": ["i01", "i02"]}, [], "2 of new users with too few items"),
        ({"new": ["unknown"] * 6}, [], "of new items with too few users"),
    ],
)
def test_bad_input_gets_one_sentence(bundle: Bundle, rows: Any, forget: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        update(bundle, rows, forget=forget)
    assert "nobody" not in str(caught.value)


def test_a_model_without_its_rows_says_how_to_get_them(bundle: Bundle) -> None:
    with pytest.raises(InputError, match="--updatable"):
        update(replace(bundle, training=None), forget=["u1"])
    with pytest.raises(InputError, match="can be updated"):
        update(train("popularity", rf.load(frame())), forget=["u1"])
    with pytest.raises(InputError, match="can be updated"):
        train("popularity", rf.load(frame()), updatable=True)


def test_an_update_that_fails_its_certificate_is_refused(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updating, "TOLERANCE", 1e-12)
    with pytest.raises(InputError, match="of the spread of scores, above 1e-12"):
        update(bundle, forget=["u1"])


def weights(bundle: Bundle) -> FloatArray:
    assert isinstance(bundle.model, ThinningLinear)
    return bundle.model.weights_


def test_only_an_update_in_place_changes_the_model_that_it_was_given(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear_updates, "_MOST", 2.0)  # a correction, also if most items change
    own, before = Bundle.load(bundle.save(tmp_path / "model")), weights(bundle).copy()
    found = update(bundle, {"u5": ["i00", "i15"]}, forget=["u3"])
    np.testing.assert_array_equal(weights(bundle), before)
    again = update(own, {"u5": ["i00", "i15"]}, forget=["u3"], in_place=True)
    assert weights(again) is weights(own)
    np.testing.assert_array_equal(weights(again), weights(found))


def test_a_damaged_inverse_is_noticed_and_solved_again(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the correction has overwritten the weights in place."""
    monkeypatch.setattr(linear_updates, "_MOST", 2.0)
    assert bundle.training is not None
    kept = bundle.training.kept | {"diagonal": bundle.training.kept["diagonal"] * 1.01}
    model = copy(bundle.model)
    vars(model)["weights_"] = weights(bundle).copy()
    damaged = replace(bundle, model=model, training=replace(bundle.training, kept=kept))
    found = update(damaged, forget=["u1"], in_place=True)
    np.testing.assert_allclose(scores(found), scores(update(bundle, forget=["u1"])), atol=1e-5)
    assert not np.array_equal(weights(damaged), weights(bundle))


def test_a_folder_is_updated_by_one_process_at_a_time(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from recfusion.core.claims import Claims\n"
        f"claims = Claims(Path({str(tmp_path / '.model.update')!r})); print(claims.take('update'), flush=True)\n"
        "sys.stdin.read()"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == "True\n"
        with pytest.raises(InputError, match="Another process"), updating.updating(tmp_path / "model"):
            pass
        assert one.stdin is not None
        one.stdin.close()
    with updating.updating(tmp_path / "model"):
        pass


def test_an_updated_model_is_not_evaluated_on_users_it_may_know(bundle: Bundle) -> None:
    split = train(ThinningLinear(**SETTINGS), rf.load(frame()), updatable=True)
    assert split.training is not None
    assert split.training.rows.matrix.shape[0] == split.train_users
    with pytest.raises(InputError, match="updated since"):
        evaluate_bundle(update(split, {"stranger": [f"i{n:02}" for n in range(6)]}))


def test_a_damaged_file_of_training_rows_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    folder = bundle.save(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    assert "training.safetensors" in config["digests"]
    (folder / "training.safetensors").write_bytes(b"\0" * 100)
    with pytest.raises(InputError, match="not the one that was saved"):
        Bundle.load(folder)
