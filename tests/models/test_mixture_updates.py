"""Updates of mixtures: parts that can be updated are; the others are kept, dropped or trained again, and say so."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import recfusion as rf
from recfusion.core.errors import InputError
from recfusion.experiments.train import train
from recfusion.inference.bundle import COUNT, Bundle
from recfusion.inference.bundle_files import UpdateRecord
from recfusion.inference.model_card import model_card
from recfusion.inference.update import update
from recfusion.models.factors.ials import IALS
from recfusion.models.mixture_updates import FactorUpdater
from recfusion.models.settings import setting_values
from recfusion.models.thinning.local import ThinningLocal
from recfusion.models.thinning.mixture import Thinning
from recfusion.models.thinning.signals import ThinningSignals
from recfusion.models.thinning.updates import LinearUpdater, equivalent_l2


def frame(n_users: int = 90) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    rows = [(f"u{u}", f"i{i:02}") for u in range(n_users) for i in 8 * (u % 2) + rng.choice(8, 6, replace=False)]
    return pl.DataFrame(rows, schema=["user", "item"], orient="row")


def trained(model: Any, rows: pl.DataFrame | None = None, *, updatable: bool = True) -> Bundle:
    return train(model, rf.load(frame() if rows is None else rows), all_users=True, updatable=updatable)


@pytest.fixture(scope="module")
def mixture() -> Bundle:
    weights = {"thinning-linear": 0.5, "ials": 0.25, "popularity": 0.25}
    return trained(Thinning(members="thinning-linear,ials,popularity", weights=weights, tune_trials=0))


def parts(bundle: Bundle) -> dict[str, Any]:
    model = bundle.model
    assert isinstance(model, Thinning)
    return model.parts_


NEW = {"new": [f"i{n:02}" for n in range(6)]}


def test_added_users_update_the_parts_that_can_be_updated_and_the_others_are_kept(mixture: Bundle) -> None:
    found = update(mixture, NEW)
    assert parts(found)["popularity"] is parts(mixture)["popularity"]
    assert not np.array_equal(parts(found)["ials"].items_, parts(mixture)["ials"].items_)
    assert not np.array_equal(parts(found)["thinning-linear"].weights_, parts(mixture)["thinning-linear"].weights_)
    assert not found.updates[-1].exact
    assert any(note.startswith("popularity: kept") for note in found.updates[-1].notes)
    assert any(note.startswith("ials: updated approximately, not tested") for note in found.updates[-1].notes)
    assert "updated approximately" in model_card(found)


def test_the_error_is_the_largest_one_of_the_parts_that_are_tested(
    mixture: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LinearUpdater, "error", lambda *_: 3e-5)
    found = update(mixture, NEW)
    assert found.updates[-1].error == 3e-5
    assert "| 0 | 3.0e-05 |" in model_card(found)
    monkeypatch.setattr(FactorUpdater, "error", lambda *_: float("nan"))
    with pytest.raises(InputError, match="error of nan"):
        update(mixture, NEW)
    monkeypatch.undo()
    alone = update(trained(IALS(factors=2, iterations=2)), NEW)
    assert alone.updates[-1].error is None
    assert "| 0 | not tested |" in model_card(alone)
    assert UpdateRecord(day="2026-01-01", error=0.0).error == 0  # as older versions stored it


def test_forgetting_drops_parts_that_cannot_forget_or_trains_them_again(mixture: Bundle) -> None:
    rows = frame().filter(pl.col("user") != "u3")
    found = update(mixture, forget=["u3"])
    assert "popularity" not in parts(found)
    assert sum(found.model.weights_.values()) == pytest.approx(1, abs=1e-3)  # type: ignore[attr-defined]
    assert found.updates[-1].exact
    again = parts(update(mixture, forget=["u3"], others="retrain"))
    fresh = trained("popularity", rows, updatable=False)
    history = rf.load(rows).matrix[:1]
    np.testing.assert_allclose(again["popularity"].score(history), fresh.model.score(history))
    with pytest.raises(InputError, match="drop or retrain"):
        update(mixture, forget=["u3"], others="keep")


def test_a_kept_part_knows_no_new_items_so_that_their_rows_are_left_out(mixture: Bundle) -> None:
    more = {f"u{n}": ["i99"] for n in range(8)}
    with pytest.raises(InputError, match="which a part that is kept does not know"):
        update(mixture, more)
    found = update(mixture, more, others="retrain")
    assert found.items["item"][-1] == "i99"
    assert found.model.score(found.training.rows.matrix[:2]).shape == (2, 17)  # type: ignore[union-attr]


def test_a_mixture_can_be_saved_and_updated_again(mixture: Bundle, tmp_path: Any) -> None:
    folder = update(mixture, NEW).save(tmp_path / "one")
    found = update(Bundle.load(folder), forget=["new"])
    assert found.train_users == mixture.train_users
    Bundle.load(found.save(tmp_path / "two"))


def test_an_approximate_update_of_ials_is_close_to_a_fit_and_forgetting_fits_it_again() -> None:
    model = IALS(factors=4, iterations=30, alpha0=0.2, l2=0.05, nu=1.0)
    bundle = trained(model)
    extra = pl.DataFrame({"user": ["new"] * 6, "item": NEW["new"]})
    added, fitted = update(bundle, NEW), trained(model, pl.concat([frame(), extra]))
    history = fitted.training.rows.matrix[:20]  # type: ignore[union-attr]
    one, two = added.model.score(history), fitted.model.score(history)
    assert np.abs(one - two).max() < 0.1 * two.std()
    assert not added.updates[-1].exact
    gone, without = update(bundle, forget=["u3"]), trained(model, frame().filter(pl.col("user") != "u3"))
    np.testing.assert_allclose(gone.model.score(history), without.model.score(history), atol=1e-5)


def test_local_thinning_forgets_as_if_fitted_without(tmp_path: Path) -> None:
    model = ThinningLocal(neighbours=3, factors=2, l2=5.0, nu=0.3, kappa=0.5, b=0.5, c=0.2)
    found = update(Bundle.load(trained(model).save(tmp_path / "model")), forget=["u3"])
    assert found.updates[-1].exact
    assert found.training is not None
    rows = found.training.rows.matrix
    same = replace(model, l2=equivalent_l2(found.model, found.training.kept, rows))  # type: ignore[arg-type]
    without = trained(same, frame().filter(pl.col("user") != "u3"))
    one, two = found.model.score(rows), without.model.score(rows)
    np.testing.assert_allclose(one, two * (one * two).sum() / (two * two).sum(), atol=1e-4 * two.std())


def described(tmp_path: Path) -> tuple[Path, Path]:
    """Write users who have either teas or books, and what the items and one more are."""
    frame().write_csv(tmp_path / "data.csv")
    kinds = ["Tea|Hot" if n < 8 else "Book|Paper" for n in range(16)]
    items = pl.DataFrame({"item": [*(f"i{n:02}" for n in range(16)), "i50"], "kind": [*kinds, "Tea|Hot"]})
    items.write_csv(tmp_path / "items.csv")
    return tmp_path / "data.csv", tmp_path / "items.csv"


FEATURES: dict[str, Any] = {"all_users": True, "signals": "features"}


@pytest.mark.parametrize("name", ["thinning-features", "thinning"])
def test_a_model_with_item_features_forgets_as_if_fitted_without(name: str, tmp_path: Path) -> None:
    data, items = described(tmp_path)
    settings: dict[str, Any] = {"tune_trials": 0}
    if name == "thinning":
        settings |= {"members": "thinning-linear,thinning-features"}
    bundle = train(name, rf.load(data, items=items), settings, updatable=True, **FEATURES)
    found = update(Bundle.load(bundle.save(tmp_path / "model")), forget=["u3"])
    frame().filter(pl.col("user") != "u3").write_csv(data)
    # The settings of the fit: without them, a rule would choose others for other data.
    same = setting_values(bundle.model) | bundle.model.chosen()
    if name == "thinning":
        assert found.training is not None
        kept, linear = found.training.kept, parts(found)["thinning-linear"]
        own = {key.removeprefix("thinning-linear/"): array for key, array in kept.items()}
        same["parts"]["thinning-linear"]["l2"] = equivalent_l2(linear, own, found.training.rows.matrix)
    without = train(name, rf.load(data, items=items), same, **FEATURES)
    assert found.items.to_dicts() == without.items.to_dicts()
    history = {"tea": [f"i{n:02}" for n in range(6)], "book": [f"i{n:02}" for n in (8, 9, 12)]}
    one, two = (
        rf.recommend(Bundle.load(each.save(tmp_path / "again")), history, k=9).frame for each in (found, without)
    )
    assert one["item"].to_list() == two["item"].to_list()
    assert "i50" in one["item"].to_list()  # it has no users: features place it
    expected = two["score"].to_numpy()
    np.testing.assert_allclose(one["score"].to_numpy(), expected, atol=1e-4 * expected.std())


def test_an_item_that_features_place_enters_with_enough_users_and_unless_a_part_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, items = described(tmp_path)
    settings = {"tune_trials": 0, "members": "thinning-linear,thinning-features,popularity"}
    bundle = train("thinning", rf.load(data, items=items), settings, updatable=True, **FEATURES)
    more = {"new": [*NEW["new"], "i50"]} | {f"u{n}": ["i50"] for n in range(8)}
    found = update(bundle, more)
    assert "9 rows of new items, which a part that is kept does not know" in caplog.text
    lists = [
        rf.recommend(Bundle.load(each.save(tmp_path / "one")), {"tea": NEW["new"]}, k=5) for each in (bundle, found)
    ]
    assert all("i50" in one.frame["item"].to_list() for one in lists)
    whole = update(found, more, others="retrain")
    assert whole.items["item"].to_list() == bundle.items["item"].to_list()
    assert whole.items[COUNT][-1] == 9
    assert {part.score(whole.training.rows.matrix[:1]).shape for part in parts(whole).values()} == {(1, 17)}  # type: ignore[union-attr]


def test_a_model_with_ratings_and_times_forgets_as_if_fitted_without() -> None:
    rng = np.random.default_rng(4)
    rows = frame().with_columns(rating=pl.Series(rng.integers(1, 6, 540)), time=pl.Series(1_000_000 + np.arange(540)))
    rows = rows.with_columns(rating=pl.when(pl.int_range(540) % 6 < 5).then(5).otherwise(pl.col("rating")))
    model = ThinningSignals(l2=5.0, nu=0.3, kappa=0.5, b=0.5, c=0.2, recency=0.5, trend=0.0)
    other_rows = rows.filter(pl.col("user") != "u3")
    bundle, without = trained(model, rows), trained(model, other_rows)
    assert bundle.protocol.signals.used == ("grades", "times")
    found = update(bundle, forget=["u3"])
    kept, other = found.training, without.training
    assert kept is not None
    assert other is not None
    assert other.rows.extra is not None
    history, extra = other.rows.matrix[:20], other.rows.extra.rows(np.arange(20))
    same = trained(replace(model, l2=equivalent_l2(found.model, kept.kept, kept.rows.matrix)), other_rows)  # type: ignore[arg-type]
    one, two = (each.model.score(history, extra=extra) for each in (found, same))  # type: ignore[call-arg]
    np.testing.assert_allclose(one, two * (one * two).sum() / (two * two).sum(), atol=1e-4 * two.std())
    more = rows.filter(pl.col("user") == "u3").with_columns(time=pl.col("time") + 10_000_000)
    again = update(found, more)
    assert again.training is not None
    assert again.training.rows.extra is not None
    assert again.training.rows.extra.times is not None
    assert again.training.rows.extra.times.data.max() > 10_000_000
