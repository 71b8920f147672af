"""The closed form with features of items, by brute force, and columns of items that are new."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray
from recfusion.data.interactions import Features
from recfusion.data.signals import Extra
from recfusion.models.thinning.blocks import solve_blocks
from recfusion.models.thinning.linear import ThinningLinear
from recfusion.models.thinning.new_items import Columns, as_new, fair_lift, with_added
from recfusion.models.thinning.signals import ThinningSignals

N, F = 9, 3
FIXED: dict[str, Any] = {"l2": 4.0, "nu": 0.3, "kappa": 0.5, "b": 0.0, "c": 0.2, "tune_trials": 0}


def rows(seed: int = 0, users: int = 60) -> Csr:
    rng = np.random.default_rng(seed)
    return csr_array((rng.random((users, N)) < 0.4).astype(np.float32))


def features(seed: int = 1) -> FloatArray:
    rng = np.random.default_rng(seed)
    return ((rng.random((N, F)) < 0.6) * rng.random((N, F))).astype(np.float32)


def extra(matrix: FloatArray) -> Extra:
    return Extra(item_features=Features(csr_array(matrix), tuple(f"f{n}" for n in range(matrix.shape[1]))))


def test_every_column_is_the_regression_on_the_other_items_and_on_their_features() -> None:
    x, f = rows().toarray().astype(np.float64), features().astype(np.float64)
    g, penalty, l2 = x.T @ x, np.linspace(1, 5, N), 2.3
    noise = 0.7 * np.diag(g)
    found = solve_blocks(
        np.asfortranarray(g, np.float32),
        penalty.astype(np.float32),
        noise.astype(np.float32),
        csr_array(features()),
        l2,
    )
    for j in range(N):
        others = np.array([i for i in range(N) if i != j])
        of, og = f[others], (g + np.diag(noise))[np.ix_(others, others)]
        # What j adds to the features of a history is left out: rows of `of` are those of the other items.
        whole = np.block([[og + np.diag(penalty[others]), og @ of], [of.T @ og, of.T @ og @ of + l2 * np.eye(F)]])
        solution = np.linalg.solve(whole, np.concatenate([g[others, j], of.T @ g[others, j]]))
        items, shared = solution[: N - 1], solution[N - 1 :]
        np.testing.assert_allclose(found.weights[others, j], items + of @ shared, atol=1e-5)
        np.testing.assert_allclose(found.shared[:, j], shared, atol=1e-5)
    assert not np.diag(found.weights).any()


def test_without_features_it_is_the_linear_denoiser() -> None:
    train = rows()
    plain, own = ThinningLinear(**FIXED).fit(train), ThinningSignals(uses="features", **FIXED).fit(train)
    np.testing.assert_allclose(own.score(rows(3, 5)), plain.score(rows(3, 5)), rtol=1e-4, atol=1e-6)


def test_an_item_left_out_of_the_map_is_predicted_by_a_map_made_without_it() -> None:
    f, scores = csr_array(features()), np.random.default_rng(2).random((4, N)).astype(np.float32)
    found = as_new(f, np.ones(N, bool), 0.5).left_out(scores)
    for j in range(N):
        known = np.arange(N) != j
        expected = (scores @ as_new(f, known, 0.5).map) @ f.toarray()[j]
        np.testing.assert_allclose(found[:, j], expected, rtol=1e-4, atol=1e-5)


def test_at_the_fair_lift_items_have_as_many_places_as_new_ones_as_they_have_as_known_ones() -> None:
    rng = np.random.default_rng(0)
    n = 60
    history = csr_array((rng.random((40, n)) < 0.2).astype(np.float32))
    weights = rng.random((n, n)).astype(np.float32)
    new = as_new(csr_array(rng.random((n, 5)).astype(np.float32)), np.ones(n, bool), 1.0)
    scale, k = np.ones(n, np.float32), n // 2
    factor = fair_lift(history, Columns(weights, scale, new.features, np.ones(n, bool)), [0.4], new)[0]
    seen = history.toarray() > 0
    plain = np.where(seen, -np.inf, history @ weights)
    guessed = np.where(seen, -np.inf, factor * new.left_out(history @ weights + np.float32(0.4) * seen))
    ends = np.sort(plain, axis=1)[:, [-k]]
    assert abs(int((guessed >= ends * 0.99999).sum()) - k * 40) <= 2


@pytest.fixture(params=["exact", "local"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Fit with the inverse, or with neighbourhoods as if there were many items."""
    if request.param == "local":
        monkeypatch.setattr("recfusion.models.thinning.signals.EXACT_ITEMS", 2)
    return str(request.param)


def test_with_many_items_known_items_have_the_scores_of_neighbourhoods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recfusion.models.thinning.signals.EXACT_ITEMS", 2)
    train = rows()
    model = ThinningSignals(uses="features", **FIXED).fit(train, extra=extra(features()))
    assert isinstance(model.weights_, csr_array)
    expected = ThinningLinear(**FIXED).fit(train).score(rows(3, 5))  # all other items are neighbours
    np.testing.assert_allclose(model.score(rows(3, 5)), expected, rtol=1e-3, atol=1e-5)
    loaded = ThinningSignals(uses="features", **FIXED)
    loaded.load_state(model.state(), model.chosen(), N)
    np.testing.assert_array_equal(loaded.score(rows(3, 5)), model.score(rows(3, 5)))


@pytest.mark.usefixtures("form")
def test_an_item_added_later_is_scored_as_one_that_nobody_had_in_training() -> None:
    f, gone = features(), [3, 6]
    dense = rows().toarray()
    dense[:, gone] = 0
    there = ThinningSignals(uses="features", **FIXED).fit(csr_array(dense), extra=extra(f))
    kept = [n for n in range(N) if n not in gone]
    model = ThinningSignals(uses="features", **FIXED).fit(csr_array(dense[:, kept]), extra=extra(f[kept]))
    state = model.state()
    added = with_added(state.__getitem__, csr_array(f[gone]), model.features_)
    for name, value in added.items():
        setattr(model, name, value)
    asked = np.zeros((2, N), np.float32)
    asked[0, [0, 1]] = asked[1, [4, 5]] = 1
    expected = there.score(csr_array(asked))[:, [*kept, *gone]]
    np.testing.assert_allclose(model.score(csr_array(asked[:, [*kept, *gone]])), expected, rtol=1e-3, atol=1e-5)
    assert (expected[:, -2:] != 0).all()


@pytest.mark.usefixtures("form")
def test_reasons_add_up_to_the_scores_also_of_new_items() -> None:
    dense = rows().toarray()
    dense[:, [3, 6]] = 0
    model = ThinningSignals(uses="features", **FIXED).fit(csr_array(dense), extra=extra(features()))
    dense[0, 6] = 2  # a new item in the history, with the weight of an entry
    history, items = csr_array(dense[:1]), np.array([2, 3, 5])
    reasons = model.reasons(history, items)
    np.testing.assert_allclose(reasons.parts.sum(axis=1), model.score(history)[0, items], rtol=1e-4, atol=1e-6)
    named = np.array([source[0] >= N for source in reasons.sources])
    assert reasons.parts[1, named].any()
    assert not reasons.parts[1, ~named].any()
    assert not reasons.parts[0, named].any()


def test_a_user_without_history_gets_what_users_with_the_same_features_have() -> None:
    train = np.zeros((40, 4), np.float32)
    train[:20, [0, 1]] = train[20:, [2, 3]] = 1
    train[0, 2] = 1
    kinds = np.repeat(np.eye(2, dtype=np.float32), 20, axis=0)
    people = Features(csr_array(kinds), ("a", "b"))
    model = ThinningSignals(uses="features", **FIXED).fit(csr_array(train), extra=Extra(user_features=people))
    nobody = csr_array((2, 4), dtype=np.float32)
    asked = Extra(user_features=replace(people, matrix=csr_array(np.eye(2, dtype=np.float32))))
    scores = model.score(nobody, extra=asked)
    assert scores[0, :2].min() > scores[0, 2:].max()
    assert scores[1, 2:].min() > scores[1, :2].max()
    assert model.score(nobody) == pytest.approx(0)


@pytest.mark.parametrize("uses", ["history", "features"])
def test_folders_from_before_the_two_closed_forms_became_one_still_load(uses: Any) -> None:
    model = ThinningSignals(uses=uses, **FIXED).fit(rows(), extra=extra(features()))
    own = {"history": ("weights_", "typical_"), "features": tuple(set(model.state()) - {"typical_"})}
    again = ThinningSignals(uses=uses, **FIXED)
    again.load_state({name: model.state()[name] for name in own[uses]}, {}, N)
    np.testing.assert_array_equal(again.score(rows(3, 5)), model.score(rows(3, 5)))
