"""Training one model: by name, place or instance, ours or anybody's, on a part of the users or on all."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from conftest import raw
from foreign import Mine
from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.data.load import load
from recfusion.data.options import Preparation, SplitPlan
from recfusion.data.prepare import prepare
from recfusion.data.split import split
from recfusion.evaluation.evaluate import evaluate
from recfusion.experiments import fit as judge
from recfusion.experiments.candidate import Candidate
from recfusion.experiments.comparison import compare
from recfusion.experiments.train import train
from recfusion.experiments.tuning.space_file import tuning_space
from recfusion.experiments.tuning.tune import SearchRequest
from recfusion.inference.bundle import Bundle
from recfusion.models.abilities import settled
from recfusion.models.base import Recommender
from recfusion.models.linear.ease import EASE
from recfusion.models.linear.elsa import ELSA
from recfusion.models.registry import entry
from recfusion.models.thinning.mixture import Thinning


def test_an_instance_of_somebody_s_class_becomes_a_bundle(groups: Interactions, tmp_path: Path) -> None:
    model = Mine(power=2)
    bundle = train(model, groups, seed=3)
    parts = split(groups, seed=3)
    counts = np.bincount(parts.train.indices, minlength=groups.n_items)
    assert bundle.model.scores_.tolist() == (counts**2).tolist()  # type: ignore[attr-defined]
    assert (bundle.name, bundle.seed, bundle.all_users) == ("Mine", 3, False)
    wanted = evaluate(bundle.model, parts.valid, parts.train).mean()["ndcg@100"]
    assert bundle.metrics["validation"]["ndcg@100"]["mean"] == pytest.approx(wanted)
    assert "test" not in bundle.metrics
    with pytest.raises(InputError, match="not fitted yet"):
        model.score(parts.test.history)
    bundle.save(tmp_path / "model")
    again = Bundle.load(tmp_path / "model", trust=[Mine])
    assert again.model == model
    assert again.model.scores_.tolist() == bundle.model.scores_.tolist()  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="trust"):
        Bundle.load(tmp_path / "model")


def test_a_name_an_instance_and_a_candidate_give_the_same_model(groups: Interactions) -> None:
    models = [
        train("ease", groups, {"l2": "10"}).model,
        train(EASE(l2=10), groups).model,
        train(Candidate.of("label", EASE(l2=10)), groups).model,
    ]
    for model in models:
        assert isinstance(model, EASE)
        np.testing.assert_array_equal(model.weights_, models[0].weights_)  # type: ignore[attr-defined]


def test_a_model_of_all_users_keeps_what_the_split_s_fit_chose(groups: Interactions) -> None:
    plan = SplitPlan(valid=0.3)  # enough validation users for a search
    mixture = Thinning(members="ease,popularity", tune_trials=0)
    bundle = train(mixture, groups, plan=plan, all_users=True)
    searched = train(mixture, groups, plan=plan)
    assert isinstance(bundle.model, Thinning)
    assert (bundle.all_users, set(bundle.searched), bundle.metrics) == (True, {"parts", "weights", "recency"}, {})
    assert bundle.model.weights == searched.model.chosen()["weights"]


def test_networks_of_a_mixture_of_all_users_continue_what_the_split_s_fit_learned(
    groups: Interactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second fit repeats the last 2 of 6 epochs of a network, with the chosen settings and weights."""
    monkeypatch.setattr("recfusion.models.thinning.deep.LARGE", 1)
    small = {"width": 8, "latent": 4, "layers": 2, "max_epochs": 6}
    mixture = Thinning(parts={"ease": {"l2": 5.0}, "thinning-deep": small}, weights={"ease": 1.0, "thinning-deep": 1.0})
    epochs: list[tuple[int, int]] = []
    bundle = train(mixture, groups, all_users=True, on_epoch=lambda epoch: epochs.append((epoch.number, epoch.of)))
    assert isinstance(bundle.model, Thinning)
    assert (bundle.model.chosen(), bundle.model.start) == ({}, None)
    assert epochs == [*((number, 6) for number in range(1, 7)), (1, 2), (2, 2)]


def test_a_closed_form_of_all_users_needs_no_split(groups: Interactions, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each user judges settings as one who was left out: all of them are asked, and all of them are learned from."""
    bundle = train(EASE(tune_trials=5), groups, all_users=True)
    assert isinstance(bundle.model, EASE)
    assert (bundle.searched, bundle.model.trials_) == ((), 5)
    assert bundle.model.l2 is None
    np.testing.assert_array_equal(bundle.model.weights_, EASE(l2=bundle.model.l2_).fit(groups.matrix).weights_)
    monkeypatch.setattr("recfusion.experiments.train.split", None)  # nobody calls it
    train(EASE(tune_trials=1), groups, all_users=True)


def test_a_device_that_is_none_is_refused(groups: Interactions) -> None:
    with pytest.raises(InputError, match="Unknown device 'gpu': choose one of cpu, cuda"):
        train("ease", groups, device="gpu")


def test_the_recipe_of_a_production_model_is_judged_on_test_users_first(groups: Interactions, tmp_path: Path) -> None:
    bundle = train("thinning-linear", groups, all_users=True, judge=True)
    plain = train("thinning-linear", groups)
    parts = split(groups, seed=0)
    wanted = evaluate(plain.model, parts.test, parts.train).mean()["ndcg@100"]
    assert bundle.metrics["test"]["ndcg@100"]["mean"] == pytest.approx(wanted)
    assert (bundle.all_users, bundle.train_users) == (True, groups.n_users)
    again = settled(plain.model).fit(groups.matrix, rng=0)
    assert np.array_equal(bundle.model.score(groups.matrix), again.score(groups.matrix))
    card = (bundle.save(tmp_path / "model") / "README.md").read_text()
    assert "after a fit on a split, then fitted again on all users" in card


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (Thinning(members="thinning-pairs,ease"), ["No user of 'made up' can be held out", "No user has 2 items"]),
        (ELSA(factors=4, max_epochs=3), ["No user of 'made up' can be held out for validation: epochs and mixture "]),
        (EASE(), ["No user has 2 items"]),
    ],
    ids=["mixture", "network", "closed form"],
)
def test_everybody_with_one_item_is_learned_from_with_the_defaults_and_that_is_said(
    model: Recommender, said: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    data = prepare(raw({"user": range(60), "item": [7] * 60}), Preparation(min_items_per_user=1))
    bundle = train(model, data, all_users=True)
    assert np.isfinite(bundle.model.score(data.matrix)).all()
    assert [record.getMessage()[: len(start)] for record, start in zip(caplog.records, said, strict=True)] == said
    if isinstance(bundle.model, Thinning):
        assert bundle.model.weights_ == {"thinning-pairs": 0.6154, "ease": 0.3846}  # .4 and .25
    if isinstance(bundle.model, ELSA):
        assert bundle.model.best_epoch_ == 3
    for judged in (False, True):
        with pytest.raises(InputError, match=r"No user of 'made up' has 2 items.*train on everybody with --all-users"):
            train(model, data, all_users=judged, judge=judged)


def test_of_very_many_validation_users_some_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    data = load("ml-latest-small")
    parts = split(data, SplitPlan(), seed=0)
    monkeypatch.setattr(judge, "_FEWEST", 7)
    monkeypatch.setattr(judge, "_CELLS", 10 * data.n_items)
    found = train("popularity", data).metrics["validation"]["ndcg@100"]["users"]
    assert found == 10 < len(parts.valid.users)
    monkeypatch.setattr(judge, "_CELLS", 1)
    assert train("popularity", data).metrics["validation"]["ndcg@100"]["users"] == 7


@pytest.mark.parametrize("seed", range(3))
def test_a_grade_off_the_scale_is_found_before_the_first_fit_whoever_has_it(
    seed: int, monkeypatch: pytest.MonkeyPatch, installed_studies: None
) -> None:
    rows = [(u, (u + 3 * i) % 15, 7.0 if (u, i) == (5, 2) else 4.0 + i % 2) for u in range(40) for i in range(8)]
    data = load(
        pl.DataFrame(rows, schema=["user", "item", "rating"], orient="row"), Preparation(min_rating=4), name="one 7"
    )
    for fits in ("train.fit_and_judge", "train.fit", "run.fit_and_judge"):
        monkeypatch.setattr(f"recfusion.experiments.{fits}", None)  # nobody calls them
    space = tuning_space(entry("recfusion-grades"), {})
    words = "Expected ratings 1, 2, 3, 4, 5 in the data, got 7: correct it, or set levels and step"
    for everybody in (False, True):
        with pytest.raises(InputError, match=words):
            train("recfusion-grades", data, signals="graded", seed=seed, all_users=everybody)
    with pytest.raises(InputError, match=words):
        compare(data, ["recfusion-grades"], signals="graded", splits=[seed])
    with pytest.raises(InputError, match=words):
        SearchRequest(entry("recfusion-grades"), space, signals="graded", seed=seed).protocol(data)
