"""The mixture of denoisers: its parts, its weights, and what is left out when."""

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folds import fold

from conftest import csr, random_csr
from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.data.split import Fold, split
from recfusion.experiments.train import train
from recfusion.inference.bundle import Bundle
from recfusion.models.abilities import settled
from recfusion.models.base import Recommender, Shape
from recfusion.models.baselines.popularity import Popularity
from recfusion.models.factors.ials import IALS
from recfusion.models.linear.ease import EASE
from recfusion.models.registry import Entry, entry
from recfusion.models.thinning import mixture as mixture_module
from recfusion.models.thinning import mixture_choice
from recfusion.models.thinning.deep import ThinningDeep
from recfusion.models.thinning.linear import ThinningLinear
from recfusion.models.thinning.mixture import Thinning
from recfusion.models.thinning.mixture_choice import usual_weights
from recfusion.models.thinning.mixture_weights import Ballot, standardised
from recfusion.training.epoch import Checkpoint

TRAIN = random_csr(40, 20, 0.3, 0)
SEEN = random_csr(6, 20, 0.3, 1)
CHEAP: dict[str, Any] = {"members": "popularity,ease,thinning-linear", "tune_trials": 0}


def test_models_that_never_recommend_some_items_can_be_parts() -> None:
    unknown = csr([row.indices.tolist() for row in TRAIN], 21)  # item 20 has no user
    model = Thinning(members="random,popularity").fit(unknown, rng=0)
    assert np.isfinite(model.score(unknown)).all()


def test_without_validation_users_the_usual_weights_hold(caplog: pytest.LogCaptureFixture) -> None:
    members = "thinning-pairs,infinite-ae,ials,thinning-linear"
    for valid in (None, fold(19, 20)):
        model = Thinning(members=members, tune_trials=0).fit(TRAIN, valid, rng=0)
        assert model.weights_ == {
            "thinning-pairs": round(0.4 / 1.15, 4),
            "infinite-ae": round(0.25 / 1.15, 4),
            "ials": round(0.25 / 1.15, 4),
            "thinning-linear": round(0.25 / 1.15, 4),
        }
    assert caplog.text.count("19 validation users are too few to choose weights by") == 1


def test_users_too_few_for_every_part_are_mentioned_once(caplog: pytest.LogCaptureFixture) -> None:
    few, seen = TRAIN[:12], fold(3, 20)
    model = Thinning(members="thinning-pairs,thinning-local,ease").fit(few, seen, rng=0)
    assert [record.getMessage() for record in caplog.records] == [
        "15 users are too few to choose the settings of the mixture's parts by (at least 20 are needed): the defaults "
        "are used.",
        "3 validation users are too few to choose weights by (at least 20 are needed): the usual weights are used.",
    ]
    assert model.parts_["ease"].chosen() == {"l2": 500.0}
    caplog.clear()
    Thinning(members="thinning-pairs,ease").fit(csr([[0]] * 30, 1), rng=0)
    (record,) = caplog.records
    assert "No user has 2 items" in record.getMessage()


def test_what_a_part_has_to_say_begins_with_its_name(caplog: pytest.LogCaptureFixture) -> None:
    members = "thinning-local,ease,elsa,elsa"
    everything = csr([[0, 1, 2]] * 30, 3)
    valid = Fold(np.arange(4), csr([[0, 1]] * 4, 3), csr([[2]] * 4, 3))
    Thinning(members=members, tune_trials=2).fit(everything, valid, rng=0)
    told = [record.getMessage() for record in caplog.records]
    assert [text.partition(":")[0] for text in told[:-1]] == ["thinning-local", "ease", "elsa", "elsa#2"]
    assert told[2].startswith("elsa: 4 validation users are too few to choose the number of epochs by")


def test_the_network_usually_counts_for_more_where_data_is_worth_the_large_one() -> None:
    parts = ("thinning-pairs", "ials", "thinning-deep", "thinning-deep#2")
    small, large = (usual_weights(parts, Shape(5000, 3000, count)) for count in (299_999, 300_000))
    assert small == {"thinning-pairs": 0.4, "ials": 0.25, "thinning-deep": 0.3, "thinning-deep#2": 0.3}
    assert large == small | {"thinning-deep": 0.8, "thinning-deep#2": 0.8}


def test_neighbourhoods_count_for_as_much_as_pairs_where_they_stand_in_for_them_and_for_less_beside_them() -> None:
    shape = Shape(5000, 3000, 100_000)
    assert usual_weights(("thinning-local", "ials"), shape) == {"thinning-local": 0.4, "ials": 0.25}
    beside = {"thinning-pairs": 0.4, "ials": 0.25, "thinning-local": 0.25}
    assert usual_weights(tuple(beside), shape) == beside


def test_with_validation_users_weights_are_searched_and_a_part_of_none_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mixture_choice, "find_weights", lambda ballot, usual: {**usual, "ease": 0.0})
    model = Thinning(**CHEAP).fit(TRAIN, fold(20, 20), rng=0)
    assert model.weights_ == {"popularity": 0.5, "thinning-linear": 0.5}
    assert list(model.parts_) == ["popularity", "thinning-linear"]
    assert list(model.chosen()["parts"]) == ["popularity", "thinning-linear"]
    assert model.n_parameters == sum(part.n_parameters for part in model.parts_.values())


def test_scores_are_the_weighted_sum_of_the_parts_standardised_scores() -> None:
    model = Thinning(**CHEAP).fit(TRAIN, rng=0)
    expected = sum(model.weights_[name] * standardised(part.score(SEEN), SEEN) for name, part in model.parts_.items())
    assert model.score(SEEN) == pytest.approx(expected, abs=1e-5)


def test_a_part_that_cannot_be_fitted_is_left_out_and_the_rest_go_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise InputError("There is no room.")

    monkeypatch.setattr(EASE, "fit", refuse)
    with caplog.at_level(logging.WARNING):
        model = Thinning(**CHEAP).fit(TRAIN, rng=0)
    assert "The part ease is left out: There is no room." in caplog.text
    assert model.weights_ == {"popularity": 0.5, "thinning-linear": 0.5}
    monkeypatch.setattr(Popularity, "fit", refuse)
    monkeypatch.setattr(ThinningLinear, "fit", refuse)
    with pytest.raises(InputError, match="None of the mixture's parts could be fitted"):
        Thinning(**CHEAP).fit(TRAIN, rng=0)


def test_a_bug_in_a_part_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(EASE, "fit", broken)
    with pytest.raises(ZeroDivisionError):
        Thinning(**CHEAP).fit(TRAIN, rng=0)


def small_net(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the deep denoisers that a mixture makes by their defaults small."""

    def small(name: str) -> Entry:
        settings = {"width": 8, "latent": 4, "layers": 2, "max_epochs": 2} if name == "thinning-deep" else {}
        return replace(entry(name), settings={**entry(name).settings, **settings})

    monkeypatch.setattr(mixture_module, "entry", small)


def test_a_member_named_twice_is_fitted_twice_from_other_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    small_net(monkeypatch)
    model = Thinning(members="thinning-deep, popularity ,thinning-deep,thinning-deep").fit(TRAIN, rng=0)
    labels = ["thinning-deep", "popularity", "thinning-deep#2", "thinning-deep#3"]
    assert list(model.parts_) == labels
    assert [round(model.weights_[name] / model.weights_["popularity"], 2) for name in labels] == [0.8, 1, 0.8, 0.8]
    one, _, two, three = (model.parts_[name].score(SEEN) for name in labels)
    assert not (one == two).any()
    assert not (two == three).any()


def test_members_of_one_name_are_judged_as_one_and_share_its_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    small_net(monkeypatch)
    asked: list[dict[str, float]] = []

    def watched(ballot: Ballot, usual: dict[str, float]) -> dict[str, float]:
        assert ballot.names == ("thinning-deep", "popularity")
        asked.append(usual)
        return {"popularity": 0.4, "thinning-deep": 0.6}

    monkeypatch.setattr(mixture_choice, "find_weights", watched)
    valid = fold(20, 20)
    model = Thinning(members="thinning-deep,popularity,thinning-deep").fit(TRAIN, valid, rng=0)
    assert asked == [{"thinning-deep": 0.6, "popularity": 0.25}]
    assert model.weights_ == {"thinning-deep": 0.3, "popularity": 0.4, "thinning-deep#2": 0.3}


def test_a_second_member_that_given_weights_do_not_name_is_not_fitted() -> None:
    model = Thinning(weights={"thinning-pairs": 1.0, "thinning-deep": 1.0})
    assert list(model._planned(Shape.of(TRAIN))) == ["thinning-pairs", "thinning-local", "ials", "thinning-deep"]


def test_a_part_takes_over_what_one_before_it_has_chosen() -> None:
    model = Thinning(members="thinning-linear,thinning-local", tune_trials=3).fit(TRAIN, fold(25, 20), rng=0)
    linear, local = model.parts_["thinning-linear"], model.parts_["thinning-local"]
    assert linear.trials_ == model.trials_ > 0
    assert local.chosen() == {"a": 0.0}  # it was given all of the rest
    given = {name: getattr(local, name) for name in ("l2", "nu", "kappa", "b", "c")}
    assert given == {name: linear.chosen()[name] for name in given}


def test_an_unknown_member_is_refused_when_the_model_is_made() -> None:
    for members in ("ease,eease", "", "ease,"):
        with pytest.raises(InputError, match=r"Unknown model '.*': choose one of .*ease"):
            Thinning(members=members)


def test_a_saved_mixture_states_its_parts_and_weights_and_scores_as_before(
    groups: Interactions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_net(monkeypatch)
    members = "thinning-deep,ease,thinning-deep,popularity"
    bundle = train("thinning", groups, {"members": members, "tune_trials": 0}, signals="binary")
    folder = bundle.save(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    chosen = config["chosen"]
    assert isinstance(bundle.model, Thinning)
    assert (config["settings"]["parts"], config["settings"]["weights"]) == (None, None)
    assert list(chosen["parts"]) == list(chosen["weights"]) == list(bundle.model.parts_)
    assert set(chosen["parts"]) == {"thinning-deep", "ease", "thinning-deep#2", "popularity"}
    assert chosen["parts"]["thinning-deep#2"]["width"] == 8
    assert chosen["parts"]["ease"]["l2"] is not None
    assert sum(chosen["weights"].values()) == pytest.approx(1, abs=1e-3)
    monkeypatch.undo()
    loaded = Bundle.load(folder).model
    history = split(groups).test.history
    assert (loaded.score(history) == bundle.model.score(history)).all()
    assert loaded == bundle.model


@pytest.mark.parametrize(
    "settings",
    [
        {"parts": {"thinning-linear": {}, "popularity": {}, "ease": {"l2": 5.0}}},
        {"members": "ease,popularity", "weights": {"ease": 3.0, "popularity": 0.0}},
        {"parts": {"ease": {}, "popularity": {}}, "weights": {"ease": 3.0, "popularity": 1.0}},
    ],
    ids=["open parts", "a part of weight 0", "weights that are no shares"],
)
def test_whatever_was_given_is_loaded_and_settled_as_it_was_fitted(
    settings: dict[str, Any], groups: Interactions, tmp_path: Path
) -> None:
    """What given parts left open, and which of them are worth something, is a choice of the fit too."""
    bundle = train("thinning", groups, {**settings, "tune_trials": 0})
    loaded = Bundle.load(bundle.save(tmp_path / "model")).model
    history = split(groups).test.history
    assert (loaded.score(history) == bundle.model.score(history)).all()
    assert loaded.chosen() == bundle.model.chosen()
    again = settled(bundle.model).fit(split(groups).train, rng=0)
    assert again.chosen() == {}
    assert again.score(history) == pytest.approx(bundle.model.score(history), abs=1e-3)


def test_a_mixture_whose_parts_and_weights_are_given_searches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("it searched")

    monkeypatch.setattr(mixture_choice, "find_weights", never)
    parts = {"ease": {"l2": 7.0}, "popularity": {}}
    model = Thinning(parts=parts, weights={"ease": 3.0, "popularity": 1.0}).fit(TRAIN, fold(30, 20), rng=0)
    assert model.weights_ == {"ease": 0.75, "popularity": 0.25}
    ease = model.parts_["ease"]
    assert isinstance(ease, EASE)
    assert ease.l2 == 7
    assert model.chosen() == {}
    again = Thinning(parts=parts, weights=model.weights_).fit(TRAIN, fold(30, 20), rng=1)
    assert (again.score(SEEN) == model.score(SEEN)).all()


@pytest.mark.parametrize("weights", [{"ease": -1.0, "popularity": 2.0}, {"ease": 0.0, "popularity": 0.0}, {}], ids=str)
def test_weights_below_0_or_all_0_are_refused(weights: dict[str, float]) -> None:
    with pytest.raises(InputError, match="Expected weights of at least 0 for ease, popularity, not all of them 0"):
        Thinning(members="ease,popularity", tune_trials=0, weights=weights).fit(TRAIN, rng=0)


def test_every_part_computes_where_the_mixture_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the parts are given: such a mixture is fitted again on all users."""
    small_net(monkeypatch)
    devices: list[str] = []
    monkeypatch.setattr(ThinningDeep, "prepare", lambda self, train: devices.append(self.device))
    for settings in ({"members": "thinning-deep"}, {"parts": {"thinning-deep": {"max_epochs": 1}}}):
        with pytest.raises(RuntimeError):
            Thinning(**settings, device="nowhere").fit(TRAIN, rng=0)
    assert devices == ["nowhere", "nowhere"]


def test_what_would_take_hours_on_large_data_is_left_out_with_a_message(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert len(Thinning()._planned(Shape.of(TRAIN))) == 5
    assert not caplog.text
    monkeypatch.setattr(IALS, "seconds", lambda self, shape: 7200.1 if shape == Shape.of(TRAIN) else 0.0)
    closed = {"thinning-pairs", "thinning-local"}
    assert set(Thinning()._planned(Shape.of(TRAIN))) == closed | {"thinning-deep", "thinning-deep#2"}
    assert "The mixture leaves out ials: it would take too long on 40 users and 20 items." in caplog.text
    monkeypatch.setattr(ThinningDeep, "seconds", lambda self, shape: 7200.1)
    assert set(Thinning()._planned(Shape.of(TRAIN))) == closed
    assert caplog.text.count("The mixture leaves out thinning-deep") == 1  # though it was to be there twice


@pytest.mark.parametrize(
    ("model", "users", "items", "hours"),
    [
        (
            ThinningDeep(),
            138_000,
            20_000,
            1.0,
        ),  # 3 * 14 * 138,000 * (4 * 1000^2 + 300 * 21,000) weights / 1.8e10: 3,300 s
        (IALS(), 138_000, 20_000, 0.1),  # 16 (2 * 1e7 * 128^2 + 158,000 * 128^3 / 3) / 1.2e10: 584 s
        (IALS(factors=512), 138_000, 20_000, 4.6),
    ],
    ids=["deep", "ials", "long factors"],
)
def test_a_part_knows_about_how_long_its_fit_takes(model: Recommender, users: int, items: int, hours: float) -> None:
    seconds = model.forecast(Shape(users, items, 10_000_000)).seconds
    assert seconds is not None
    assert seconds / 3600 == pytest.approx(hours, abs=0.1)


def test_many_items_leave_the_pairs_out(caplog: pytest.LogCaptureFixture) -> None:
    few, many = Shape(10_000, 12_000, 10**6), Shape(10_001, 12_001, 10**6)
    pairs = ThinningLinear(pairs=5000)
    assert pairs.economical(few) == replace(pairs, pairs=2500)
    assert not caplog.text
    assert pairs.economical(many).pairs == 0
    assert "Pairs of items are left out: they would take long on 12001 items." in caplog.text


def test_parts_have_the_size_that_the_data_is_worth() -> None:
    """ML-1M's training users keep the large net; ML-100K's iALS has the penalty 5 for a mean user."""
    large, small = Shape(4827, 3125, 460_000), Shape(750, 1008, 43_500)
    assert ThinningDeep().economical(large) == ThinningDeep()
    assert ThinningDeep().economical(small) == ThinningDeep(width=400, layers=2, latent=200, max_epochs=28)
    assert ThinningDeep(width=8).economical(small).width == 8
    found = IALS().economical(small)
    assert (found.factors, found.iterations) == (64, 6)
    assert found.l2 is not None
    assert found.alpha0 is not None
    assert found.l2 * (43_500 / 750 + found.alpha0 * 1008) == pytest.approx(5)
    planned = Thinning(members="thinning-pairs")._planned(Shape.of(TRAIN))["thinning-pairs"]
    assert isinstance(planned, ThinningLinear)
    assert planned.pairs == 2500


def test_the_trials_of_the_parts_are_limited_and_not_raised() -> None:
    assert [
        part.tune_trials for part in Thinning(**CHEAP)._planned(Shape.of(TRAIN)).values() if isinstance(part, EASE)
    ] == [0]
    usual = EASE().tune_trials
    many = Thinning(members="ease", tune_trials=usual + 100)._planned(Shape.of(TRAIN))["ease"]
    assert isinstance(many, EASE)
    assert many.tune_trials == usual


def test_an_interrupted_mixture_goes_on_to_the_same_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_net(monkeypatch)
    members = "thinning-deep,popularity,thinning-deep"
    whole = Thinning(members=members).fit(TRAIN, rng=0)
    checkpoint = Checkpoint(tmp_path / "run", "this run")
    broken = Thinning(members=members).epochs(TRAIN, rng=0, checkpoint=checkpoint)
    numbers = [next(broken).number for _ in range(5)]
    assert numbers == [1, 2, 3, 4, 1]  # in the first epoch of the second net
    resumed = Thinning(members=members)
    for _ in resumed.epochs(TRAIN, rng=0, checkpoint=checkpoint):
        pass
    assert (resumed.score(SEEN) == whole.score(SEEN)).all()
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_cannot_be_written_to_is_no_reason_to_leave_a_part_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_net(monkeypatch)
    (tmp_path / "file").touch()
    model = Thinning(members="ease,thinning-deep")
    with pytest.raises(InputError, match="Cannot write to"):
        list(model.epochs(TRAIN, rng=0, checkpoint=Checkpoint(tmp_path / "file" / "kept", "run")))


def test_a_checkpoint_of_another_run_is_refused_and_no_reason_to_leave_a_part_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_net(monkeypatch)
    (tmp_path / "kept.thinning-deep").write_bytes(b"no checkpoint")
    model = Thinning(members="ease,thinning-deep")
    with pytest.raises(InputError, match="is damaged"):
        list(model.epochs(TRAIN, rng=0, checkpoint=Checkpoint(tmp_path / "kept", "run")))


def test_a_stored_mixture_imports_no_file_that_its_parts_name(tmp_path: Path) -> None:
    file = tmp_path / "part.py"
    file.write_text("raise SystemExit('this code must not run')")
    part = f"{file}:Part"
    model = Thinning(parts={part: {}}, weights={part: 1.0})
    with pytest.raises(InputError, match="Unknown model"):
        model.load_state({}, {}, 4)


def test_without_signals_the_mixture_has_the_scores_of_version_0_1() -> None:
    """The values are those of commit 1b11c12, before mixtures read signals; same_scores.py compares all bits."""
    valid = Fold(np.arange(40), random_csr(40, 30, 0.15, 1), random_csr(40, 30, 0.1, 2))
    members = "thinning-pairs,thinning-local,ials,popularity"
    model = Thinning(members=members, tune_trials=2).fit(random_csr(80, 30, 0.2, 0), valid, rng=0)
    weights = {"thinning-pairs": 0.1841, "thinning-local": 0.1151, "ials": 0.5857, "popularity": 0.1151}
    assert model.weights_ == pytest.approx(weights, abs=2e-3)
    assert (model.recency_, model.ratings_, model.signal_gains_) == ({}, {}, {})
    expected = [
        [0.0, -0.55111, 1.49907, -0.46924, 0.0, -0.10182],
        [0.57115, 0.0, 1.12984, 0.1324, 0.86683, -0.54456],
        [0.0, -0.53635, 0.0, -0.12915, 0.94648, -0.38436],
    ]
    assert model.score(random_csr(3, 30, 0.2, 3))[:, :6] == pytest.approx(np.array(expected), abs=2e-3)
