"""The linear autoencoders after EASE against their objectives, summed over every drop-out mask, and their limits."""

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

from conftest import csr, random_csr
from recfusion.core.errors import InputError
from recfusion.evaluation.topk import top_k
from recfusion.experiments.tuning.space_file import tuning_space
from recfusion.models.linear.ease import EASE, LinearAutoencoder, penalties, solve
from recfusion.models.linear.gram import gram
from recfusion.models.registry import MODELS, make_model
from recfusion.models.thinning.linear import ThinningLinear

Dense = NDArray[np.float64]
SMALL = csr([[0, 1, 2], [0, 1], [1, 3, 4], [0, 2, 3, 4], [2], [0, 1, 4]], 5)
X: Dense = SMALL.toarray().astype(np.float64)
OFF = ~np.eye(5, dtype=bool)


def model(l2: float, p: float = 0.0, xi: float = 0.0, beta: float = 0.0, a: float = 0.0) -> LinearAutoencoder:
    return LinearAutoencoder(l2=l2, p=p, xi=xi, beta=beta, a=a).fit(SMALL)


def dropped(p: float) -> tuple[Dense, Dense, Dense]:
    """Return, for each user and mask, the input over 1 - p, the whole row, and the chance where entries are dropped."""
    masks = np.array(list(product([0.0, 1.0], repeat=5)))
    chance = ((1 - p) ** masks * p ** (1 - masks)).prod(axis=1)
    inputs = np.concatenate([masks * user / (1 - p) for user in X])
    return inputs, np.repeat(X, len(masks), axis=0), np.concatenate([chance[:, None] * (1 - masks)] * len(X))


@pytest.mark.parametrize("p", [0.2, 0.5, 0.8])
def test_edlae_minimises_the_mean_error_on_dropped_entries_over_all_masks(p: float) -> None:
    """A target counts with the chance p that it is dropped itself, so that the penalty is p times l2."""
    inputs, whole, weights = dropped(p)
    found = model(0.5, p).weights_
    for j in range(5):
        others = np.delete(np.arange(5), j)
        design, weight = inputs[:, others], weights[:, [j]]
        moment = design.T @ (weight * design) + 0.5 * p * np.eye(4)
        expected = np.linalg.solve(moment, design.T @ (weight * whole[:, [j]]))[:, 0]
        assert found[others, j] == pytest.approx(expected, abs=1e-5)
        assert found[j, j] == 0


@pytest.mark.parametrize("xi", [0.0, 0.2, 0.4, 1.0])
def test_rdlae_is_the_least_error_over_all_masks_and_entries_with_a_bounded_diagonal(xi: float) -> None:
    """A bounded least-squares solver looks at each target alone: every mask of every user, and the ridge, is a row."""
    p, l2 = 0.4, 0.5
    masks = np.array(list(product([0.0, 1.0], repeat=5)))
    roots = np.sqrt(np.tile(((1 - p) ** masks * p ** (1 - masks)).prod(axis=1), len(X)))[:, None]
    inputs, whole, _ = dropped(p)
    rows = np.concatenate([roots * inputs, np.sqrt(l2) * np.eye(5)])
    found, bound = model(l2, p, xi).weights_, np.full(5, np.inf)
    for j in range(5):
        target = np.concatenate([(roots * whole)[:, j], np.zeros(5)])
        best = lsq_linear(rows, target, (-bound, np.where(np.arange(5) == j, xi, bound)), tol=1e-12)
        others = np.delete(np.arange(5), j)
        assert best.x[j] <= xi + 1e-9
        assert found[others, j] == pytest.approx(best.x[others], abs=1e-4)


def test_a_bounded_diagonal_meets_the_optimality_conditions() -> None:
    """(G + L) B + diag mu = G with mu >= 0 and B_jj <= xi; mu_j is 0 where the bound is not reached."""
    g = X.T @ X
    solved = solve(gram(SMALL), penalties(SMALL, 0.5, 0.4))
    scale = solved.scale(0.4).astype(np.float64)  # s_j P_jj
    ridge = 0.5 + 0.4 / 0.6 * X.sum(axis=0)
    b = np.where(OFF, solved.weights * scale, np.diag(1 - scale))
    mu = scale / solved.diagonal - ridge
    assert (g + np.diag(ridge)) @ b + np.diag(mu) == pytest.approx(g, abs=1e-4)
    assert mu.min() > -1e-5
    assert np.diag(b).max() < 0.4 + 1e-5
    free = np.diag(b) < 0.4 - 1e-4
    assert mu[free] == pytest.approx(0, abs=1e-5)
    assert mu[~free].min() > 1e-3
    assert 0 < free.sum() < 5  # both kinds are there


def test_ease_dan_is_the_published_formula() -> None:
    """Weights |u|^-beta as they are: rescaling them is the same as dividing both penalties by the factor."""
    beta, a, l2, kappa = 0.6, 0.3, 0.8, 0.25
    lengths, n = X.sum(axis=1), X.sum(axis=0)
    inverse = np.linalg.inv(X.T @ np.diag(lengths**-beta) @ X + np.diag(l2 + kappa * n))
    b = np.where(OFF, -inverse / np.diag(inverse), 0)
    published = np.diag(n**a) @ b @ np.diag(n**-a)
    factor = lengths.sum() / (lengths ** (1 - beta)).sum()
    ours = model(factor * l2, p=factor * kappa / (1 + factor * kappa), beta=beta, a=a)
    assert ours.weights_ == pytest.approx(published, abs=1e-5)


@pytest.mark.parametrize("l2", [0.5, 30.0])
def test_without_drop_out_bound_weights_and_scales_it_is_ease(l2: float) -> None:
    assert model(l2).weights_ == pytest.approx(EASE(l2=l2).fit(SMALL).weights_, abs=1e-6)


def test_drop_out_alone_is_thinning_with_one_noise_level() -> None:
    thinned = ThinningLinear(l2=2, nu=0, kappa=0.25, b=0, c=0).fit(SMALL)
    assert model(2, p=0.2).weights_ == pytest.approx(thinned.weights_, abs=1e-6)


def test_a_wide_bound_leaves_the_diagonal_free() -> None:
    """DLAE: B = I - P diag L. It has no diagonal of 1 or more, so that every bound from 1 on is the same."""
    ridge = 0.5 + 0.25 * X.sum(axis=0)
    free = np.eye(5) - np.linalg.inv(X.T @ X + np.diag(ridge)) @ np.diag(ridge)
    assert np.diag(free).max() < 1
    for xi in (1.0, 7.0):
        assert model(0.5, p=0.2, xi=xi).weights_[OFF] == pytest.approx(free[OFF], abs=1e-5)


@pytest.mark.parametrize("xi", [0.0, 0.2, 1.0])
def test_with_seen_items_masked_the_family_ranks_by_a_scale_of_the_inverse_s_columns(xi: float) -> None:
    """s_j is 1 / P_jj for EDLAE, L_j for DLAE and the larger of L_j and (1 - xi) / P_jj between them."""
    x, history = random_csr(60, 12, 0.3, 1), random_csr(20, 12, 0.2, 2)
    dense = x.toarray().astype(np.float64)
    ridge = 3 + 0.5 * dense.sum(axis=0)
    p = np.linalg.inv(dense.T @ dense + np.diag(ridge))
    scale = {0.0: 1 / np.diag(p), 1.0: ridge}.get(xi, np.maximum(ridge, (1 - xi) / np.diag(p)))
    by_columns = (history @ (-p * scale)).astype(np.float32)
    found = LinearAutoencoder(l2=3, p=1 / 3, xi=xi, beta=0, a=0).fit(x).score(history)
    assert (top_k(found, history, 6)[0] == top_k(by_columns, history, 6)[0]).all()


@pytest.mark.parametrize(
    ("name", "searched"),
    [
        ("edlae", {"l2", "p"}),
        ("rdlae", {"l2", "p", "xi"}),
        ("ease-dan", {"l2", "p", "beta", "a"}),
        ("ease-pairs", {"l2", "pair_l2"}),
    ],
)
def test_an_opponent_searches_what_its_paper_does_with_as_many_trials_as_ours(name: str, searched: set[str]) -> None:
    assert set(tuning_space(MODELS[name], {})) == searched
    assert make_model(name).fit(SMALL).chosen().keys() | {"pair_l2"} == searched | {"pair_l2"}  # SMALL has no pairs
    trials = [getattr(make_model(each), "tune_trials", None) for each in (name, "ease", "thinning-linear")]
    assert trials == [20] * 3


def test_a_drop_out_of_everything_is_refused() -> None:
    with pytest.raises(InputError, match=r"Expected p of a linear autoencoder to be below 1, got 1\.0"):
        LinearAutoencoder(p=1.0)


def test_a_fit_that_does_not_fit_into_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recfusion.core.memory.available_bytes", lambda: 50)
    with pytest.raises(InputError, match="A linear autoencoder on 5 items needs"):
        LinearAutoencoder().fit(SMALL)
