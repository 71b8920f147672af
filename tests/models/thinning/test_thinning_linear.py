"""The linear denoiser of thinned rows against its objective, summed over every mask, and against numbers by hand."""

import tracemalloc
from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from conftest import csr, random_csr
from recfusion.core.arrays import Csr
from recfusion.core.errors import InputError
from recfusion.data.split import Fold
from recfusion.models.linear.ease import EASE
from recfusion.models.linear.gram import user_weighted
from recfusion.models.thinning.linear import ThinningLinear, penalty

Dense = NDArray[np.float64]
GIVEN: dict[str, Any] = {"l2": 2.0, "nu": 0.3, "kappa": 0.5, "b": 0.5, "c": 0.2}
SMALL = csr([[0, 1, 2], [0, 1], [1, 3, 4], [0, 2, 3, 4], [2], [0, 1, 4]], 5)
SIZES = pytest.mark.parametrize("pairs", [0, 3], ids=["items", "items and pairs"])


@pytest.fixture(autouse=True)
def _pairs_of_single_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pairs that one user has be features: data this small has no others."""
    monkeypatch.setattr("recfusion.models.thinning.linear._PAIR_USERS", 1)


def plain(l2: float, kappa: float = 0.0) -> ThinningLinear:
    """Return the model without item penalties, user weights and a popularity prior."""
    return ThinningLinear(l2=l2, nu=0, kappa=kappa, b=0, c=0)


def thinned(x: Dense, levels: Mapping[float, float]) -> tuple[Dense, Dense, Dense]:
    """Return every x_t, its x_0, and the weight of each squared error, for each user, mask and noise level.

    `levels` gives each share of survivors its weight. Masks are drawn on ones and zeros alike; the loss counts where
    they are 0.
    """
    masks = np.array(list(product([0.0, 1.0], repeat=x.shape[1])))
    rows, targets, weights = [], [], []
    for a, weight in levels.items():
        chance = (a**masks * (1 - a) ** (1 - masks)).prod(axis=1)
        for user in x:
            rows.append(masks * user)
            targets.append(np.tile(user, (len(masks), 1)))
            weights.append(weight * chance[:, None] * (1 - masks))
    return np.concatenate(rows), np.concatenate(targets), np.concatenate(weights)


def descend(xt: Dense, x0: Dense, weights: Dense, l2: float, steps: int = 6000) -> Dense:
    """Return B after gradient descent from 0 on sum of weights (x0 - xt B)^2 + l2 |B|^2."""
    b = np.zeros((xt.shape[1], xt.shape[1]))
    rate = 1 / ((xt * xt * weights.max(axis=1, keepdims=True)).sum() + l2)
    for _ in range(steps):
        b += rate * (xt.T @ (weights * (x0 - xt @ b)) - l2 * b)
    return b


@pytest.mark.parametrize("a", [0.3, 0.6, 0.9])
def test_gradient_descent_on_the_masked_loss_ends_in_the_closed_form(a: float) -> None:
    """Its normal equations are (a^2 G + a (1 - a) diag n) B = a G_.j, times 1 - a: B is 1 / a times the closed form."""
    x = SMALL.toarray().astype(np.float64)
    found = descend(*thinned(x, {a: 1.0}), l2=0.5 * a**2 * (1 - a))
    closed = plain(0.5, (1 - a) / a).fit(SMALL).weights_
    assert a * found == pytest.approx(closed, abs=1e-4)
    for wrong in (0.8 * (1 - a) / a, 1.2 * (1 - a) / a):
        assert np.abs(plain(0.5, wrong).fit(SMALL).weights_ - a * found).max() > 2e-3


def test_several_noise_levels_are_one_with_their_mean_kappa() -> None:
    """With w = weight (1 - a), the chance that a target counts: kappa = E[w a] / E[w a^2] - 1."""
    levels = {0.2: 3.0, 0.5: 1.0, 0.9: 4.0}
    xt, x0, weights = thinned(SMALL.toarray().astype(np.float64), levels)
    first, second = (sum(w * (1 - a) * a**power for a, w in levels.items()) for power in (1, 2))
    closed = plain(0.5, first / second - 1).fit(SMALL).weights_
    for j in range(5):
        others = np.delete(np.arange(5), j)
        inputs, weight = xt[:, others], weights[:, [j]]
        moment = inputs.T @ (weight * inputs) + 0.5 * second * np.eye(4)
        solution = np.linalg.solve(moment, inputs.T @ (weight * x0[:, [j]]))[:, 0]
        assert solution * second / first == pytest.approx(closed[others, j], abs=1e-5)


def test_a_uniform_noise_level_has_a_kappa_of_one_half() -> None:
    """Weights 1 / (1 - a) cancel the chance 1 - a that a target counts: E[a] / E[a^2] - 1 = (1/2) / (1/3) - 1."""
    middles = (np.arange(1000) + 0.5) / 1000
    assert middles.mean() / (middles**2).mean() - 1 == pytest.approx(0.5, abs=1e-5)


@pytest.mark.parametrize("l2", [0.5, 30.0])
def test_without_noise_item_penalties_user_weights_and_prior_it_is_ease(l2: float) -> None:
    x = random_csr(80, 25, 0.2, 0)
    assert plain(l2).fit(x).weights_ == pytest.approx(EASE(l2=l2).fit(x).weights_, abs=1e-5)


def test_ease_is_thinning_with_survival_rates_that_depend_on_the_item() -> None:
    """Items that survive with a_i = n_i / (n_i + l2) have the Gram matrix G + diag(n_i (1 - a_i) / a_i) = G + l2 I."""
    x = SMALL.toarray().astype(np.float64)
    a = x.sum(axis=0) / (x.sum(axis=0) + 2.0)
    masks = np.array(list(product([0.0, 1.0], repeat=5)))
    chance = (a**masks * (1 - a) ** (1 - masks)).prod(axis=1)
    moment = sum((masks * user / a).T @ (chance[:, None] * (masks * user / a)) for user in x)
    ease = EASE(l2=2.0).fit(SMALL).weights_
    for j in range(5):
        others = np.delete(np.arange(5), j)
        solution = np.linalg.solve(moment[np.ix_(others, others)], x[:, others].T @ x[:, j])
        assert ease[others, j] == pytest.approx(solution, abs=1e-5)


def test_the_weights_of_two_items_are_the_ones_computed_by_hand() -> None:
    """G = [[3, 1], [1, 1]], mean n = 2; l2 = 2, nu = 1, kappa = 1/2: Lambda = (3 + 1.5, 1 + .5)."""
    x = csr([[0, 1], [0], [0]], 2)
    model = ThinningLinear(l2=2, nu=1, kappa=0.5, b=0, c=0.5).fit(x)
    before_prior = np.array([[0, 1 / 7.5], [1 / 2.5, 0]])
    prior = np.array([1.5**-0.5, 0.5**-0.5])  # (n / mean n)^-c
    assert model.weights_ == pytest.approx(before_prior * prior, abs=1e-6)
    assert model.score(csr([[0]], 2))[0] == pytest.approx([0, 0.5**-0.5 / 7.5], abs=1e-6)


def test_the_penalty_of_an_item_grows_with_its_popularity_and_never_vanishes() -> None:
    """Popularities 4, 1, 1 and 0 in units of their mean 1.5; that of an item that nobody has counts as 1 / 1000."""
    n = np.array([4, 1, 1, 0], np.float32)
    expected = 3 * np.array([4 / 1.5, 1 / 1.5, 1 / 1.5, 0.001]) ** 0.5
    assert penalty(n, l2=3, nu=0.5) == pytest.approx(expected, rel=1e-5)
    assert penalty(n, l2=3, nu=0).tolist() == [3, 3, 3, 3]


def test_user_weights_keep_the_sum_over_all_entries() -> None:
    """Users of 1 and 4 items, b = 1: weights 1 and 1/4 cover 1 + 1 entries of 5, so both are times 5/2."""
    x = csr([[0], [], [0, 1, 2, 3]], 4)
    squares = user_weighted(x, 1.0).toarray().astype(np.float64) ** 2
    expected = np.array([[2.5, 0, 0, 0], [0, 0, 0, 0], [0.625] * 4])
    assert squares == pytest.approx(expected, abs=1e-6)
    assert user_weighted(x, 0.3).power(2).sum() == pytest.approx(5, rel=1e-6)
    assert (user_weighted(x, 0.0) != x).nnz == 0


def test_weighted_users_and_item_penalties_solve_the_weighted_regression() -> None:
    x = random_csr(40, 9, 0.3, 2)
    dense = x.toarray().astype(np.float64)
    lengths = dense.sum(axis=1)
    weight = lengths**-0.7 * lengths.sum() / (lengths**0.3).sum()
    n = weight @ dense
    ridge = 4 * (n / n.mean()) ** 0.6 + 0.9 * n
    model = ThinningLinear(l2=4, nu=0.6, kappa=0.9, b=0.7, c=0).fit(x)
    for j in range(9):
        others = np.delete(np.arange(9), j)
        design = dense[:, others]
        moment = design.T @ (weight[:, None] * design) + np.diag(ridge[others])
        expected = np.linalg.solve(moment, design.T @ (weight * dense[:, j]))
        assert model.weights_[others, j] == pytest.approx(expected, abs=1e-5)


def test_the_prior_divides_scores_by_the_power_of_the_unweighted_popularity() -> None:
    x, history = random_csr(40, 9, 0.3, 2), random_csr(5, 9, 0.3, 3)
    counts = x.toarray().sum(axis=0)
    without, with_prior = (ThinningLinear(**GIVEN | {"c": c}).fit(x).score(history) for c in (0.0, 0.4))
    assert with_prior == pytest.approx(without * (counts / counts.mean()) ** -0.4, rel=1e-4, abs=1e-7)


@SIZES
@pytest.mark.parametrize(
    "train",
    [
        csr([[0, 1, 2]] * 20, 5),
        csr([[0], [1], [2]] * 5, 5),
        csr([[0, 1], [], [3]] * 3, 5),
        csr([[0, 1], [0]], 2),
        csr([[0, 1, 2]], 5),
        csr([[0]], 1),
        csr([[], []], 3),
    ],
    ids=["all alike", "one item each", "empty users", "two items", "one user", "one item", "nothing"],
)
def test_odd_data_has_finite_scores(train: Csr, pairs: int) -> None:
    n_items = train.shape[1]
    scores = ThinningLinear(pairs=pairs).fit(train, rng=0).score(csr([[], [0], list(range(n_items))], n_items))
    assert scores.shape == (3, n_items)
    assert np.isfinite(scores).all()
    assert scores.dtype == np.float32


@SIZES
def test_a_fit_that_does_not_fit_into_memory_is_refused_and_says_what_to_do(
    pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recfusion.core.memory.available_bytes", lambda: 100)
    what = "5 items and 3 pairs needs .*: ask for fewer pairs" if pairs else "5 items needs .*: train thinning-local"
    with pytest.raises(InputError, match=f"A linear thinning model on {what}"):
        ThinningLinear(pairs=pairs).fit(SMALL)


def test_only_a_search_needs_memory_for_a_second_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recfusion.core.memory.available_bytes", lambda: int(1.5 * 4 * 5**2))
    assert ThinningLinear(**GIVEN).fit(SMALL, fold(30)).weights_.shape == (5, 5)
    with pytest.raises(InputError, match="needs"):
        ThinningLinear().fit(SMALL, fold(30))


def test_a_fit_with_given_settings_holds_little_more_than_one_matrix() -> None:
    x = random_csr(300, 2000, 0.05, 0)
    ThinningLinear(**GIVEN).fit(SMALL)  # what imports and caches take
    tracemalloc.start()
    ThinningLinear(**GIVEN).fit(x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * 4 * 2000**2


def test_settings_that_are_all_given_need_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("there is nothing to search for")

    monkeypatch.setattr("recfusion.models.self_tuning.by_scaling", refuse)
    model = ThinningLinear(**GIVEN).fit(SMALL, fold(30), rng=0)
    assert model.pair_l2 is None  # it has no pairs


def fold(n_users: int) -> Fold:
    """Return validation users on the items of SMALL."""
    rows = [[user % 5, (user + 1) % 5] for user in range(n_users)]
    return Fold(np.arange(n_users), csr([row[:1] for row in rows], 5), csr([row[1:] for row in rows], 5))
