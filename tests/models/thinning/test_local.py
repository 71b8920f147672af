"""The denoiser on neighbourhoods against the whole one, and its candidates against numbers by brute force."""

from typing import Any

import numpy as np
import pytest

from conftest import csr, random_csr, raw
from recfusion.core.arrays import Csr, column_counts
from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.data.options import Preparation, SplitPlan
from recfusion.data.prepare import prepare
from recfusion.data.signals import valued
from recfusion.data.split import Fold, split
from recfusion.models import self_tuning as selftune
from recfusion.models.linear.ease import EASE
from recfusion.models.linear.gram import gram, user_weighted
from recfusion.models.self_tuning import ndcg
from recfusion.models.thinning import local
from recfusion.models.thinning.linear import ThinningLinear, penalty
from recfusion.models.thinning.local import ThinningLocal
from recfusion.models.thinning.low_rank import far_field, leading
from recfusion.models.thinning.neighbours import nearest, nearest_of_whole

GIVEN: dict[str, Any] = {"l2": 2.0, "nu": 0.3, "kappa": 0.5, "b": 0.5, "c": 0.2}


@pytest.fixture(params=["compiled", "whole"])
def _both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the neighbourhoods be solved as those of many items are, and as those of few."""
    monkeypatch.setattr(local, "WHOLE_ITEMS", 0 if request.param == "compiled" else 1000)


@pytest.fixture
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let both loops over blocks have many of them."""
    monkeypatch.setattr("recfusion.models.linear.gram._PRODUCTS_PER_BLOCK", 200)
    monkeypatch.setattr(local, "GRAM_BYTES", 4 * 7**2 * 5)


@pytest.mark.usefixtures("_small_blocks", "_both_ways")
def test_with_all_items_as_neighbours_it_is_the_whole_model() -> None:
    train = random_csr(60, 25, 0.2, seed=0)
    whole = ThinningLinear(**GIVEN).fit(train)
    part = ThinningLocal(**GIVEN, neighbours=25).fit(train)
    assert part.weights_.toarray() == pytest.approx(whole.weights_, abs=2e-5)


def test_settings_are_chosen_as_the_whole_model_chooses_them() -> None:
    users, items = random_csr(150, 30, 0.2, seed=4).nonzero()
    rows = {"user": users.tolist(), "item": items.tolist()}
    parts = split(prepare(raw(rows), Preparation(min_items_per_user=2)), SplitPlan(valid=0.2, test=0.2), seed=0)
    whole, part = (
        model.fit(parts.train, parts.valid, rng=1)
        for model in (ThinningLinear(tune_trials=3), ThinningLocal(tune_trials=3, neighbours=1000))
    )
    pair_free = {name: value for name, value in whole.chosen().items() if name != "pair_l2"}
    assert part.chosen() == {**pair_free, "a": 0.0}
    assert part.trials_ == whole.trials_ > 0
    assert part.score(parts.test.history) == pytest.approx(whole.score(parts.test.history), abs=1e-4)


@pytest.mark.usefixtures("_small_blocks", "_both_ways")
def test_each_column_is_the_ridge_regression_on_its_neighbours() -> None:
    train = random_csr(80, 30, 0.15, seed=1)
    model = ThinningLocal(**GIVEN, neighbours=7, factors=0).fit(train)
    g = gram(user_weighted(train, 0.5)).astype(np.float64)
    n = np.diag(g).astype(np.float32)
    ridge = penalty(n, l2=2.0, nu=0.3) + 0.5 * n
    popularity = np.maximum(np.bincount(train.indices, minlength=30) / (train.nnz / 30), 1e-3) ** -0.2
    for j in range(30):
        gain = g[:, j] / (n + ridge) ** 0.75
        gain[g[:, j] == 0] = -np.inf
        gain[j] = -np.inf
        own = np.sort(np.argsort(-gain)[: min(7, int(np.isfinite(gain).sum()))])
        expected = np.zeros(30)
        expected[own] = np.linalg.solve(g[np.ix_(own, own)] + np.diag(ridge[own]), g[own, j])
        assert model.weights_[:, [j]].toarray()[:, 0] == pytest.approx(popularity[j] * expected, abs=1e-5)


@pytest.mark.usefixtures("_both_ways")
@pytest.mark.parametrize("near", [0, 7])
def test_on_the_span_of_its_factors_it_is_the_whole_model_but_for_the_diagonal_of_the_inverse(near: int) -> None:
    """With 1 / P_jj exact, u' Lambda^1/2 (L + far) is u' Lambda^1/2 B; B's own diagonal of 0 is part of that."""
    train = random_csr(80, 30, 0.15, seed=1)
    rows = user_weighted(train, 0.5)
    g = gram(rows).astype(np.float64)
    n = np.diag(g).astype(np.float32)
    ridge = penalty(n, l2=2.0, nu=0.3) + np.float32(0.5) * n
    inverse = np.linalg.inv(g + np.diag(ridge))
    whole = np.eye(30) - inverse / np.diag(inverse)
    close, explained = local.near_field(rows, n, ridge, near)
    s, u = leading(rows, ridge, 14, np.random.default_rng(0))
    left, right = far_field(close, (1 / np.diag(inverse)).astype(np.float32), ridge, s, u)
    span = u.T * np.sqrt(ridge)
    assert span @ (close.toarray() + left @ right) == pytest.approx(span @ whole, abs=1e-4)
    estimate = ridge + n - explained  # from few neighbours: no smaller than the exact one, and near it
    assert (estimate >= 0.999 / np.diag(inverse)).all()


def test_leading_vectors_are_those_of_the_scaled_gram_matrix() -> None:
    train = random_csr(300, 40, 0.1, seed=5)
    ridge = np.linspace(1, 3, 40, dtype=np.float32)
    s, u = leading(train, ridge, 24, np.random.default_rng(0))
    exact_s, exact_u = np.linalg.eigh(gram(train) / np.sqrt(np.outer(ridge, ridge)))
    assert s == pytest.approx(exact_s[-24:], rel=1e-4)
    assert np.abs(u[:, -1] @ exact_u[:, -1]) == pytest.approx(1, abs=1e-4)


def test_factors_bring_the_local_model_nearer_to_the_whole_one(groups: Interactions) -> None:
    whole = ThinningLinear(**GIVEN).fit(groups.matrix).weights_
    far = [
        np.abs(model.score(csr([[i] for i in range(40)], 40)) - whole)[~np.eye(40, dtype=bool)].mean()
        for model in (ThinningLocal(**GIVEN, neighbours=3, factors=k).fit(groups.matrix, rng=0) for k in (0, 8, 30))
    ]
    assert far[0] > far[1] > 1.3 * far[2]


@pytest.mark.usefixtures("_both_ways")
def test_neighbours_and_their_solutions_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    train = random_csr(200, 60, 0.1, seed=3)
    n, ridge = train.sum(0).astype(np.float32), np.full(60, 2.0, np.float32)
    found = []
    for cores in (1, 5):
        monkeypatch.setattr("recfusion.core.compiled.available_cores", lambda cores=cores: cores)
        near, explained = local.near_field(train, n, ridge, 9)
        found.append((near.toarray(), explained))
    assert np.array_equal(found[0][0], found[1][0])
    assert np.array_equal(found[0][1], found[1][1])


def test_of_equally_good_neighbours_the_first_ones_are_taken() -> None:
    """Items 1 to 4 are with item 0 once each and have the same popularity; 5 is twice as good, 6 half."""
    rows = csr([[0, 1], [0, 2], [0, 3], [0, 4], [0, 5], [0, 5], [0, 6], [6]], 7)
    ones = np.ones(7, np.float32)
    ones[6] = 3
    nothing = np.zeros(7, np.float32)
    found, shared = nearest(rows, rows.T.tocsr(), ones, nothing, 3)
    assert found[0].tolist() == [1, 2, 5]
    assert shared[0].tolist() == [1, 1, 2]
    assert found[6].tolist() == [0, 6, 6]  # itself in the places left over
    assert shared[6].tolist() == [1, 0, 0]
    found, shared = nearest_of_whole(gram(rows), ones, nothing, 3, slice(0, 7))
    assert found[0].tolist() == [5, 1, 2]  # the best first
    assert shared[0].tolist() == [2, 1, 1]
    assert found[6].tolist() == [0, 6, 6]
    assert shared[6].tolist() == [1, 0, 0]


@pytest.mark.usefixtures("_both_ways")
@pytest.mark.parametrize("count", [2, 3])
def test_a_neighbourhood_without_a_solution_is_refused(count: int) -> None:
    n = np.full(4, 3, np.float32)
    with pytest.raises(InputError, match="raise the penalty"):
        local.near_field(csr([[0, 1, 2, 3]] * 3, 4), n, np.float32(-0.9) * n, count)


def test_few_items_compile_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compilation takes seconds, where the neighbourhoods of some thousand items take one."""
    monkeypatch.setattr("recfusion.core.compiled.compiled", lambda loop: pytest.fail(f"{loop} is compiled"))
    ThinningLocal(**GIVEN, neighbours=7, factors=4).fit(random_csr(80, 30, 0.15, seed=1))


def test_beside_a_whole_model_it_takes_what_that_one_has_chosen_and_searches_nothing() -> None:
    train = random_csr(150, 30, 0.2, seed=4)
    whole = ThinningLinear(tune_trials=4).fit(train, rng=1)
    taken = ThinningLocal(kappa=0.1, neighbours=9).beside(whole)
    assert (taken.l2, taken.nu, taken.b, taken.c) == (whole.l2_, whole.nu_, whole.b_, whole.c_)
    assert taken.kappa == 0.1  # what is given stays
    assert taken.fit(train, rng=1).trials_ == 0
    assert ThinningLocal().beside(EASE()) == ThinningLocal()


@pytest.mark.usefixtures("_both_ways")
def test_items_that_stand_alone_or_were_never_seen_have_no_weights() -> None:
    train = csr([[0, 1], [0, 1, 2], [3], [1, 2]], 5)
    weights = ThinningLocal(**GIVEN, neighbours=3, factors=0).fit(train).weights_.toarray()
    assert not weights[:, [3, 4]].any()
    assert not weights[[3, 4]].any()
    assert not np.diag(weights).any()
    assert (weights[[0, 1], [1, 0]] > 0).all()


def test_weights_stay_sparse_and_memory_is_refused_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    train: Csr = random_csr(200, 100, 0.1, seed=2)
    assert ThinningLocal(**GIVEN, neighbours=5).fit(train).weights_.nnz <= 500
    monkeypatch.setattr("recfusion.core.memory.available_bytes", lambda: 1000)
    with pytest.raises(InputError, match="fewer neighbours"):
        ThinningLocal(**GIVEN, neighbours=5).fit(train)


def test_the_power_of_popularity_is_chosen_on_all_items_if_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each group has 2 popular and 18 rare items; validation users have rare ones alone, which the popular hide."""
    rng, groups = np.random.default_rng(0), 5
    rare = [[20 * (user % groups) + 2 + int(i) for i in rng.permutation(18)[:5]] for user in range(300)]
    both = [[20 * (user % groups), 20 * (user % groups) + 1, *items] for user, items in enumerate(rare)]
    train, n_items = csr(both[:240], 20 * groups), 20 * groups
    valid = Fold(
        np.arange(240, 300), csr([r[:4] for r in rare[240:]], n_items), csr([r[4:] for r in rare[240:]], n_items)
    )
    settings: dict[str, Any] = {**GIVEN, "c": None, "neighbours": 10, "factors": 4}
    monkeypatch.setattr(selftune, "MOST_ITEMS", 2 * groups)
    chosen = ThinningLocal(**settings).fit(train, valid, rng=0).c_
    by_power = [
        ndcg(ThinningLocal(**{**settings, "c": c}).fit(train, rng=0).score, valid).mean() for c in selftune.POWERS
    ]
    assert chosen == selftune.POWERS[int(np.argmax(by_power))] > 0.2
    assert ThinningLocal(**settings).fit(train, rng=0).c_ == 0.2  # without validation users, on popular items
    assert ThinningLocal(**{**settings, "c": 0.1}).fit(train, valid, rng=0).c_ == 0.1


def test_entries_are_divided_by_a_power_of_popularity(monkeypatch: pytest.MonkeyPatch) -> None:
    train, history = random_csr(60, 25, 0.2, seed=0), random_csr(5, 25, 0.2, seed=1)
    settings: dict[str, Any] = {**GIVEN, "neighbours": 6, "factors": 3}
    plain, scaled = (ThinningLocal(**settings, a=a).fit(train, rng=0) for a in (0.0, 0.5))
    popularity = selftune.relative(column_counts(train).astype(np.float32))
    by_hand = valued(history, history.data * popularity[history.indices] ** np.float32(-0.5))
    assert scaled.score(history) == pytest.approx(plain.score(by_hand), abs=1e-5)
    monkeypatch.setattr(selftune, "MOST_ITEMS", 10)
    valid = Fold(np.arange(60), *(random_csr(60, 25, 0.2, seed=seed) for seed in (2, 3)))
    assert ThinningLocal(**settings).fit(train, valid, rng=0).a_ == 0  # it is tried with very many items alone
    monkeypatch.setattr(local, "EXACT_ITEMS", 20)
    chosen = ThinningLocal(**{**settings, "c": None}).fit(train, valid, rng=0)
    assert (chosen.a_, chosen.c_) in {(a, c) for a in (0.0, 0.25, 0.5) for c in selftune.POWERS}
    assert ThinningLocal(**{**settings, "c": None, "a": 0.1}).fit(train, valid, rng=0).a_ == 0.1


@pytest.mark.parametrize(("seed", "kept"), [(0, 0.5), (6, 0.25)])
def test_with_very_many_items_settings_are_refined_on_all_of_them(
    seed: int, kept: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = random_csr(60, 25, 0.2, seed=seed)
    valid = Fold(np.arange(60), *(random_csr(60, 25, 0.2, seed=seed) for seed in (2, 3)))
    monkeypatch.setattr(selftune, "MOST_ITEMS", 10)
    settings: dict[str, Any] = {**GIVEN, "neighbours": 6, "factors": 3, "a": 0.25, "b": None, "tune_trials": 1}
    before = ThinningLocal(**settings).fit(train, valid, rng=0)
    assert before.b_ == 0.5
    monkeypatch.setattr(local, "EXACT_ITEMS", 20)
    after = ThinningLocal(**settings).fit(train, valid, rng=0)
    values = {
        b: ndcg(ThinningLocal(**{**settings, "b": b, "c": 0.0}).fit(train, rng=0).score, valid) for b in (0.5, 0.25)
    }
    gain = values[0.25] - values[0.5]
    assert (gain.mean() > gain.std() / np.sqrt(len(gain))) == (kept == 0.25)
    assert after.b_ == kept
    assert after.trials_ == before.trials_ + 1  # l2 is given
    assert ThinningLocal(**settings).fit(train, rng=0).b_ == 0.5  # nobody to judge it
