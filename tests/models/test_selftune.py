"""Self-tuning: what is given stays, what is open is chosen on enough validation users, and noise chooses nothing."""

import logging
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from conftest import csr
from recfusion.core.arrays import Csr
from recfusion.data.split import Fold
from recfusion.evaluation.evaluate import evaluate
from recfusion.models.abilities import needs_validation, settled
from recfusion.models.base import Recommender, Shape
from recfusion.models.leave_one_out import left_out, nobody
from recfusion.models.linear.ease import EASE, LinearAutoencoder, penalties, solve
from recfusion.models.linear.gram import gram
from recfusion.models.self_tuning import (
    LEAST_USERS,
    Judged,
    Jury,
    cannot_choose,
    choose,
    judged_users,
    jury,
    ndcg,
    ndcg_of,
    open_settings,
    scalings,
    searched_items,
    settle,
)
from recfusion.models.settings import search_space, setting_values
from recfusion.models.thinning.linear import ThinningLinear
from recfusion.training.search_space import Interval

N_ITEMS = 40


@pytest.fixture(autouse=True)
def _pairs_of_single_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pairs that one user has be features: data this small has no others."""
    monkeypatch.setattr("recfusion.models.thinning.linear._PAIR_USERS", 1)


def tastes(n_users: int, seed: int) -> Csr:
    """Return users of four groups with items of their own, popular ones more often, and a few of others'."""
    rng = np.random.default_rng(seed)
    rows = []
    for user in range(n_users):
        chance = np.where(np.arange(N_ITEMS) // 10 == user % 4, 0.6, 0.1) * (1 - (np.arange(N_ITEMS) % 10) / 14)
        row = np.flatnonzero(rng.random(N_ITEMS) < chance)
        rows.append(np.union1d(row, [10 * (user % 4), 10 * (user % 4) + 1]).tolist())
    return csr(rows, N_ITEMS)


def hold_out(x: Csr) -> Fold:
    """Return the users of `x`, every third of whose items is held out."""
    rows = [row.indices.tolist() for row in x]
    shown = [[item for place, item in enumerate(row) if place % 3 != 1] for row in rows]
    hidden = [row[1::3] for row in rows]
    return Fold(np.arange(len(rows)), csr(shown, N_ITEMS), csr(hidden, N_ITEMS))


TRAIN = tastes(150, 0)
VALID = hold_out(tastes(60, 1))
JURY = Jury(nobody(TRAIN), VALID)
SELF_TUNED = pytest.mark.parametrize(
    "kind",
    [
        (EASE, {}),
        (LinearAutoencoder, {}),
        (ThinningLinear, {}),
        (ThinningLinear, {"pairs": 30}),
    ],
    ids=["ease", "autoencoder", "linear", "pairs"],
)
Kind = tuple[type[Recommender], dict[str, Any]]


def make(kind: Kind, **settings: Any) -> Recommender:
    return kind[0](**kind[1], **settings)


def starts(kind: Kind) -> dict[str, Any]:
    """Return what the open settings are without a search; one that the model has no use for is never chosen."""
    found = open_settings(make(kind))
    if kind[0] is ThinningLinear:
        found["l2"] = pytest.approx(20 * (TRAIN.nnz / N_ITEMS) ** 0.7)
        if not kind[1]:
            del found["pair_l2"]
    return found


@SELF_TUNED
def test_what_the_fit_chose_can_be_seen_and_the_settings_stay_open(kind: Kind) -> None:
    model = make(kind, tune_trials=4).fit(TRAIN, VALID, rng=0)
    assert all(setting_values(model)[name] is None for name in starts(kind))
    assert model.chosen().keys() == starts(kind).keys()
    for name, value in model.chosen().items():
        span = search_space(kind[0], [name])[name]
        assert isinstance(span, Interval)
        assert span.low <= value <= span.high
        assert getattr(model, f"{name}_") == value
    assert model.trials_ >= 3  # with defaults that fit, a search ends early


@SELF_TUNED
def test_a_settled_model_has_what_was_chosen_and_gives_the_same_without_validation_users(kind: Kind) -> None:
    model = make(kind, tune_trials=4).fit(TRAIN, VALID, rng=0)
    again = settled(model)
    assert setting_values(again) == setting_values(model) | model.chosen()
    again.fit(TRAIN, rng=0)
    assert again.chosen() == {}
    assert again.trials_ == 0
    assert (again.score(VALID.history) == model.score(VALID.history)).all()


@SELF_TUNED
def test_a_second_fit_chooses_anew(kind: Kind) -> None:
    model = make(kind, tune_trials=4).fit(TRAIN, VALID, rng=0)
    other = tastes(150, 5)
    fresh = make(kind, tune_trials=4).fit(other, rng=0)
    model.fit(other, rng=0)
    assert model.chosen() == fresh.chosen()
    assert model.trials_ == fresh.trials_ > 0


@SELF_TUNED
def test_given_settings_are_never_overwritten(kind: Kind) -> None:
    """Each setting in turn is given a value that no search would choose: the others' search leaves it alone."""
    for name in starts(kind):
        span = search_space(kind[0], [name])[name]
        assert isinstance(span, Interval)
        odd = span.low + 0.987654 * (span.high - span.low)
        model = make(kind, tune_trials=2, **{name: odd}).fit(TRAIN, VALID, rng=0)
        assert getattr(model, name) == getattr(model, f"{name}_") == odd
        assert model.chosen().keys() == starts(kind).keys() - {name}


@SELF_TUNED
def test_without_trials_the_starts_are_taken(kind: Kind, caplog: pytest.LogCaptureFixture) -> None:
    assert make(kind, tune_trials=0).fit(TRAIN, VALID, rng=0).chosen() == starts(kind)
    assert not caplog.records  # nothing to warn of: nobody asked for a search


@SELF_TUNED
def test_without_validation_users_training_users_judge(kind: Kind) -> None:
    model = make(kind, tune_trials=4).fit(TRAIN, rng=0)
    assert model.chosen().keys() == starts(kind).keys()
    assert model.trials_ > 0
    assert not needs_validation(model, Shape.of(TRAIN))


@SELF_TUNED
def test_too_few_users_choose_nothing_and_that_is_said_once(kind: Kind, caplog: pytest.LogCaptureFixture) -> None:
    few = TRAIN[: LEAST_USERS - 1]
    model = make(kind).fit(few, rng=0)
    usual = starts(kind)
    if "l2" in usual and kind[0] is ThinningLinear:
        usual["l2"] = pytest.approx(20 * (few.nnz / N_ITEMS) ** 0.7)
    assert model.chosen() == usual
    said = [record.getMessage() for record in caplog.records]
    named = [name for text in said for name in text.split("choose ")[1].split(" by ")[0].split(", ")]
    assert sorted(named) == sorted(usual)  # each setting in one warning
    assert all(text.startswith("19 users are too few to choose") for text in said)


@SELF_TUNED
@pytest.mark.parametrize(
    ("train", "why"),
    [
        (csr([[0, *sorted({1 + user % 7, 1 + user % 5})] for user in range(60)], 8), None),  # some tell, others not
        (csr([[0]] * 40, 1), "No user has 2 items, one to show and one to find, to choose "),
        (csr([[0, 1]] * 30, 2), "All settings are equally good for the 30 users that score them: the defaults of "),
        (csr([list(range(9))] * 30, 9), "All settings are equally good for the 30 users that score them: the defau"),
    ],
    ids=["an item that all have", "a single item", "everybody has both items", "everybody has everything"],
)
def test_data_that_says_little_is_fitted_all_the_same_and_what_it_cannot_choose_is_said(
    kind: Kind, train: Csr, why: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    model = make(kind, tune_trials=4).fit(train, rng=0)
    assert np.isfinite(model.score(train)).all()
    wanted = starts(kind).keys() - ({"pair_l2"} if len(getattr(model, "pairs_", "x")) == 0 else set())
    assert model.chosen().keys() == wanted
    if why is not None:
        told = [record.getMessage() for record in caplog.records]
        assert all(text.startswith(why) for text in told)
        named = [word for text in told for word in re.findall(r"\w+", text) if word in wanted]
        assert sorted(named) == sorted(wanted)  # each setting in one warning


def test_settings_that_some_user_tells_apart_are_no_tie(caplog: pytest.LogCaptureFixture) -> None:
    """One of 60 users likes a setting better and one less: no reason to choose it, and nothing to warn of."""

    def objective(values: Mapping[str, Any], _: Jury) -> list[Judged]:
        return [Judged({}, (np.eye(60)[0] - np.eye(60)[1]) * (values["l2"] == 3.0))]

    model = EASE()
    settle(model, objective, JURY, np.random.default_rng(0), searched=("l2",), first=[{"l2": 3.0}], trials=4)
    assert model.l2_ == 500.0
    assert not caplog.records


def test_one_user_is_too_few_in_the_singular() -> None:
    assert cannot_choose(1, "l2").startswith("1 user is too few to choose l2 by (at least 20")
    assert cannot_choose(2, "weights", "validation").startswith("2 validation users are too few to choose weights by")


@SELF_TUNED
def test_the_same_seed_makes_the_same_choice(kind: Kind) -> None:
    one, two = (make(kind, tune_trials=4).fit(TRAIN, VALID, rng=7) for _ in range(2))
    assert one.chosen() == two.chosen()
    assert (one.score(VALID.history) == two.score(VALID.history)).all()


def test_a_search_that_tpe_guides_makes_the_same_choice_too() -> None:
    """Eight trials are at random; TPE asks for those after them."""
    one, two = (ThinningLinear(tune_trials=11).fit(TRAIN, VALID, rng=7) for _ in range(2))
    assert one.chosen() == two.chosen()


def test_the_self_tuned_l2_of_ease_is_at_least_as_good_as_its_start() -> None:
    tuned = EASE().fit(TRAIN, VALID, rng=0)
    start = EASE(l2=open_settings(EASE())["l2"]).fit(TRAIN)
    found, usual = (evaluate(model, VALID, TRAIN, ("ndcg@100",)).mean()["ndcg@100"] for model in (tuned, start))
    assert found >= usual
    assert tuned.l2_ != start.l2_  # there was something to gain: 500 is far too much for 150 users


def by_hand(values: Mapping[float, list[float]]) -> list[Judged]:
    return [Judged({"l2": l2}, np.array(users)) for l2, users in values.items()]


def test_a_gain_of_one_standard_error_or_less_leaves_the_starts() -> None:
    """Gains (3, 3, -1, -1) have the mean 1, the deviation 2 and the standard error 2 / sqrt 4 = 1: not enough."""
    assert choose(by_hand({5.0: [1, 1, 1, 1], 7.0: [4, 4, 0, 0]}), {"l2": 5.0}) == {"l2": 5.0}
    assert choose(by_hand({5.0: [1, 1, 1, 1], 7.0: [3, 3, 0, 0]}), {"l2": 5.0}) == {"l2": 5.0}
    assert choose(by_hand({5.0: [1, 1, 1, 1], 7.0: [1, 1, 1, 1]}), {"l2": 5.0}) == {"l2": 5.0}


def test_a_gain_of_more_than_one_standard_error_is_taken() -> None:
    """Gains (3.5, 3.5, -.5, -.5) have the mean 1.5 and the standard error 1; the users are compared in pairs."""
    assert choose(by_hand({5.0: [1, 1, 1, 1], 7.0: [4.5, 4.5, 0.5, 0.5]}), {"l2": 5.0}) == {"l2": 7.0}
    assert choose(by_hand({5.0: [0, 9, 0, 9], 7.0: [1, 9.5, 1, 9.5]}), {"l2": 5.0}) == {"l2": 7.0}
    assert choose(by_hand({5.0: [1, 1], 7.0: [2, 2], 9.0: [3, 3], 8.0: [2, 3]}), {"l2": 5.0}) == {"l2": 9.0}


@pytest.mark.parametrize(("gain", "trials"), [(0.0, 2), (0.19, 2), (0.21, 6)])
def test_a_search_goes_on_only_where_a_probe_is_better_by_two_standard_errors(gain: float, trials: int) -> None:
    """Of 100 users half gain 1 more than the mean and half 1 less: the standard error of the gain is .1."""
    noise = np.where(np.arange(100) % 2, 1.0, -1.0)
    asked: list[float] = []

    def objective(values: Mapping[str, Any], _: Jury) -> list[Judged]:
        asked.append(values["l2"])
        return [Judged({}, noise + gain if values["l2"] == 3.0 else np.zeros(100))]

    model = EASE()
    crowd = Jury(left_out(tastes(100, 3), 100, np.random.default_rng(0)), nobody(TRAIN))
    rng = np.random.default_rng(0)
    settle(model, objective, crowd, rng, searched=("l2",), first=[{"l2": 3.0}], trials=6, probes=2)
    assert len(asked) == model.trials_ == trials
    assert asked[:2] == [500.0, 3.0]


def test_the_starts_and_the_given_points_are_tried_first() -> None:
    asked: list[dict[str, Any]] = []

    def objective(values: Mapping[str, Any], _: Jury) -> list[Judged]:
        asked.append(dict(values))
        return [Judged({}, np.full(60, -abs(values["l2"] - 3.0)))]

    model = EASE()
    rng = np.random.default_rng(0)
    first = [{"l2": 3.0, "kappa": 1.0}]  # what the space does not have is left out
    settle(model, objective, JURY, rng, searched=("l2",), first=first, trials=4)
    assert asked[:2] == [{"l2": 500.0}, {"l2": 3.0}]
    assert len(asked) == 4
    assert model.l2_ == 3.0
    assert model.l2 is None


def test_a_point_that_is_the_start_is_tried_once() -> None:
    asked: list[float] = []

    def objective(values: Mapping[str, Any], _: Jury) -> list[Judged]:
        asked.append(values["l2"])
        return [Judged({}, np.zeros(60))]

    rng = np.random.default_rng(0)
    settle(EASE(), objective, JURY, rng, searched=("l2",), first=[{"kappa": 0.0}], trials=4)
    assert len(asked) == len(set(asked)) == 4


def test_bounds_and_scales_that_a_trial_tries_are_judged_as_if_the_model_had_them() -> None:
    solved = solve(gram(TRAIN), penalties(TRAIN, 5.0, 0.2))
    weights = np.ones(TRAIN.shape[0], np.float32)
    tried = LinearAutoencoder()._judged(solved, TRAIN, weights, JURY)
    assert len(tried) == 121
    for one in (tried[0], tried[27], tried[80]):
        model = LinearAutoencoder(l2=5.0, p=0.2, beta=0.0, **one.settings).fit(TRAIN)
        assert one.values == pytest.approx(evaluate(model, VALID, TRAIN, ("ndcg@100",)).per_user["ndcg@100"])
    assert tried[27].settings == {"xi": 0.5, "a": 0.2}
    assert len(LinearAutoencoder(xi=0.0, a=0.1)._judged(solved, TRAIN, weights, JURY)) == 1


@pytest.mark.parametrize("settings", [{"xi": 0.0, "a": 0.0}, {"xi": 0.4, "a": 0.3}, {"xi": 1.0, "a": 0.0}])
def test_users_left_out_are_judged_as_by_fits_without_them(settings: dict[str, Any]) -> None:
    """Refits hold the penalties fixed; the bound on the diagonal is met anew in each of them."""
    penalty, fold = penalties(TRAIN, 5.0, 0.2), left_out(TRAIN, 6, np.random.default_rng(0))
    solved = solve(gram(TRAIN), penalty)
    weights = np.ones(TRAIN.shape[0], np.float32)
    [found] = LinearAutoencoder(**settings)._judged(solved, TRAIN, weights, Jury(fold, nobody(TRAIN)))
    out = scalings(TRAIN, (settings["a"],))[0]
    for place, user in enumerate(fold.users):
        others = solve(gram(TRAIN[np.arange(TRAIN.shape[0]) != user]), penalty)
        refitted = EASE()
        refitted.weights_ = others.weights * (others.scale(settings["xi"]) * out) / out[:, None]
        alone = Fold(fold.users[[place]], fold.history[[place]], fold.held_out[[place]])
        assert found.values[place] == pytest.approx(ndcg(refitted.score, alone)[0], abs=1e-5)


def test_without_training_users_all_validation_users_judge() -> None:
    train, valid = csr([[0], [1]] * 30, 3), Fold(np.arange(30), csr([[0]] * 30, 3), csr([[1]] * 30, 3))
    found = jury(train, valid, np.random.default_rng(0), most=0)
    assert (len(found.left_out.users), len(found.valid.users), found.n_users) == (0, 30, 30)


def test_a_search_looks_at_an_even_choice_of_many_users() -> None:
    assert judged_users(VALID) is VALID
    few = judged_users(VALID, 4)
    assert few.users.tolist() == [0, 19, 39, 59]
    assert (few.history != VALID.history[[0, 19, 39, 59]]).nnz == 0
    assert (few.held_out != VALID.held_out[[0, 19, 39, 59]]).nnz == 0


def test_scalings_are_judged_as_if_the_model_had_them() -> None:
    model = EASE(l2=20.0).fit(TRAIN)
    rows = np.stack([np.ones(N_ITEMS), np.linspace(0.1, 2, N_ITEMS)]).astype(np.float32)
    found = ndcg_of(lambda users: (model.score(VALID.history[users]) * row for row in rows), VALID)
    for scaling, values in zip(rows, found, strict=True):
        scaled = EASE(l2=20.0)
        scaled.weights_ = model.weights_ * scaling
        expected = evaluate(scaled, VALID, TRAIN, ("ndcg@100",)).per_user["ndcg@100"]
        assert values == pytest.approx(expected)
    assert found[0].mean() != found[1].mean()


def test_the_choice_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="recfusion")
    EASE(tune_trials=3).fit(TRAIN, VALID, rng=0)
    assert "3 trials chose {'l2':" in caplog.text


def test_a_search_over_many_items_looks_at_the_most_popular_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    train = csr([[0, 1, 3], [1, 3], [3, 2]], 4)  # popularity 1, 2, 1, 3
    judged = Fold(np.arange(3), csr([[1], [3], [0]], 4), csr([[3], [0], [1]], 4))
    assert searched_items(train, judged)[0] is train
    monkeypatch.setattr("recfusion.models.self_tuning.MOST_ITEMS", 2)
    small, seen = searched_items(train, judged)
    assert seen is not None
    assert small.toarray().tolist() == [[1, 1], [1, 1], [0, 1]]  # items 1 and 3
    assert seen.users.tolist() == [0]  # the others have nothing left to show, or to find
    assert seen.history.toarray().tolist() == [[1, 0]]
    assert seen.held_out.toarray().tolist() == [[0, 1]]
