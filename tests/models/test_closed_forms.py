"""The infinite-width autoencoder, iALS and BSPM against their definitions."""

from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from conftest import csr, random_csr
from recfusion.core.arrays import Csr, column_counts
from recfusion.core.errors import InputError
from recfusion.models.base import Recommender
from recfusion.models.baselines.bspm import BSPM, ideal_low_pass, item_graph
from recfusion.models.factors.ials import IALS, Fixed, frequencies, half_step
from recfusion.models.neural import infinite_ae as kernel
from recfusion.models.neural.infinite_ae import InfiniteAE

MODELS = pytest.mark.parametrize(
    "model", [BSPM(), IALS(factors=8), InfiniteAE(), InfiniteAE(max_users=5)], ids=["bspm", "ials", "exact", "nystroem"]
)


def ntk_by_sampling(a: NDArray[np.float64], b: NDArray[np.float64], bias: float, width: int) -> NDArray[np.float64]:
    """Return the tangent kernel of a random network v.relu(w.x + c) / sqrt(width): its gradients' inner products."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=(width, a.shape[1]))
    c = rng.normal(scale=np.sqrt(bias), size=width)
    v = rng.normal(size=width)
    hidden_a, hidden_b = a @ w.T + c, b @ w.T + c
    by_v = np.maximum(hidden_a, 0) @ np.maximum(hidden_b, 0).T
    by_w_and_c = ((hidden_a > 0) * v) @ ((hidden_b > 0) * v).T * (a @ b.T + bias)  # c = sqrt(bias) * normal
    return (by_v + by_w_and_c) / width


def test_the_kernel_is_the_tangent_kernel_of_a_wide_relu_network() -> None:
    x = random_csr(12, 9, 0.4, 0)
    weights = kernel.input_weights(x, 0.25)
    a = kernel.weighted(x, weights)
    b = kernel.weighted(random_csr(5, 9, 0.2, 1), weights)
    sampled = ntk_by_sampling(a.toarray().astype(np.float64), b.toarray().astype(np.float64), 0.3, 200_000)
    k = kernel.ntk(a, b, 0.3)
    assert k == pytest.approx(sampled, rel=0.03, abs=0.005)
    assert np.ptp(k) > 0.2  # far more than the tolerance


def test_the_kernel_of_a_row_with_itself_is_its_squared_norm_plus_bias() -> None:
    a = kernel.weighted(csr([[0, 1], [2], []], 3), np.array([1, 2, 3], np.float32))
    assert np.diag(kernel.ntk(a, a, 0.5)).tolist() == pytest.approx([5.5, 9.5, 0.5], rel=1e-3)
    assert np.diag(kernel.symmetric_ntk(a, 0.5)).tolist() == [5.5, 9.5, 0.5]


def test_rows_without_common_items_and_without_bias_have_the_kernel_of_a_right_angle() -> None:
    """theta = pi/2 and S = 0: K1 = sqrt(q_a q_b) / (2 pi), and S K0 = 0."""
    a = kernel.weighted(csr([[0], [1], []], 2), np.array([2, 3], np.float32))
    k = kernel.ntk(a, a, 0.0)
    assert k[0, 1] == pytest.approx(6 / (2 * np.pi))
    assert k[2].tolist() == [0, 0, 0]


def test_a_block_of_one_row_gives_the_same_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    a = kernel.weighted(random_csr(12, 9, 0.4, 0), np.ones(9, np.float32))
    whole = kernel.symmetric_ntk(a, 0.01)
    monkeypatch.setattr(kernel, "_CELLS_PER_BLOCK", 1)
    assert (kernel.symmetric_ntk(a, 0.01) == whole).all()
    assert kernel.ntk(a, a, 0.01) == pytest.approx(whole, abs=1e-3)


def test_input_weights_follow_counts_and_give_users_the_mean_squared_norm_1() -> None:
    x = csr([[0, 1], [0], [0], [0, 2]], 4)  # counts 4, 1, 1, 0
    weights = kernel.input_weights(x, 0.5)
    assert weights[1] / weights[0] == pytest.approx(2)
    assert weights[3] == 0
    assert kernel.weighted(x, weights).multiply(kernel.weighted(x, weights)).sum() / 4 == pytest.approx(1)


@pytest.mark.parametrize(("power", "norms"), [(0.0, [4.0, 9.0, 0.0]), (0.5, [2.0, 3.0, 0.0]), (1.0, [1.0, 1.0, 0.0])])
def test_rows_are_divided_by_a_power_of_their_norm(power: float, norms: list[float]) -> None:
    a = kernel.weighted(csr([[0], [1], []], 2), np.array([4, 9], np.float32), power)
    assert np.linalg.norm(a.toarray(), axis=1).tolist() == pytest.approx(norms)


def ridge_by_hand(train: Csr, history: Csr, ridge: float, ridge_power: float) -> NDArray[np.float64]:
    """Return the kernel ridge regression's scores, by a dense solve in float64."""
    weights = kernel.input_weights(train, 0.25)
    inputs = kernel.weighted(train, weights)
    k = kernel.symmetric_ntk(inputs, 0.01).astype(np.float64)
    lengths = np.diff(train.indptr)
    r = ridge * np.trace(k) / len(k) * (lengths / lengths.mean()) ** ridge_power
    alpha = np.linalg.solve(k + np.diag(r), train.toarray().astype(np.float64))
    return np.asarray(kernel.ntk(kernel.weighted(history, weights), inputs, 0.01) @ alpha)


@pytest.mark.parametrize("ridge_power", [0.0, 0.4])
@pytest.mark.parametrize("max_users", [40, 39], ids=["exact", "almost all users as landmarks"])
def test_the_regression_is_a_dense_solve(max_users: int, ridge_power: float) -> None:
    train, history = random_csr(40, 15, 0.3, 0), random_csr(7, 15, 0.2, 1)
    weights = kernel.input_weights(train, 0.25)
    fitted = kernel.fit_kernel_ridge(
        train, weights, ridge=0.5, ridge_power=ridge_power, bias=0.01, max_users=max_users,
        rng=np.random.default_rng(0), model="test",
    )  # fmt: skip
    scores = kernel.predict(fitted, kernel.weighted(history, weights), 0.01)
    error = np.abs(scores - ridge_by_hand(train, history, 0.5, ridge_power)).max()
    assert error < 1e-4 if max_users == 40 else 1e-4 < error < 0.1


@pytest.mark.parametrize("cells", [1 << 24, 40 * 7], ids=["at once", "streamed"])
def test_nystroem_with_all_users_as_landmarks_is_exact(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    train, history = random_csr(40, 60, 0.2, 0), random_csr(7, 60, 0.2, 1)
    weights = kernel.input_weights(train, 0.25)
    inputs = kernel.weighted(train, weights)
    ridges = np.linspace(0.2, 2, 40).astype(np.float32)
    exact = kernel.fit_exact(inputs, train, ridges, 0.01)
    monkeypatch.setattr(kernel, "_CELLS_PER_STREAM", cells)
    features = kernel.fit_nystroem(inputs, train, ridges, 0.01, np.arange(40))
    ask = kernel.weighted(history, weights)
    assert kernel.predict(features, ask, 0.01) == pytest.approx(kernel.predict(exact, ask, 0.01), abs=1e-4)


def test_landmarks_that_would_not_fit_into_memory_are_refused_before_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recfusion.core.memory.available_bytes", lambda: 100)
    with pytest.raises(InputError, match=r"InfiniteAE with 5 landmark users on 10 items needs .*: lower max_users"):
        InfiniteAE(max_users=5).fit(random_csr(100, 10, 0.3, 0), rng=0)
    with pytest.raises(InputError, match="InfiniteAE on 100 users needs"):
        InfiniteAE().fit(random_csr(100, 10, 0.3, 0), rng=0)


def ials_loss(model: IALS, x: Csr, users: NDArray[np.float32], items: NDArray[np.float32]) -> float:
    """Return the objective of iALS at nu = 1, by its definition in float64."""
    assert model.alpha0 is not None
    assert model.l2 is not None
    dense = x.toarray().astype(np.float64)
    w, v = users.astype(np.float64), items.astype(np.float64)
    p = w @ v.T
    fit = (dense * (1 - p) ** 2).sum() + model.alpha0 * (p**2).sum()
    per_user = dense.sum(axis=1) + model.alpha0 * dense.shape[1]
    per_item = dense.sum(axis=0) + model.alpha0 * dense.shape[0]
    return float(fit + model.l2 * (per_user @ (w**2).sum(axis=1) + per_item @ (v**2).sum(axis=1)))


def test_a_half_step_solves_the_normal_equations_of_each_row() -> None:
    x = csr([[0, 2, 5], [], [1], [0, 1, 2, 3, 4, 5]], 6)
    v = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    l2 = np.array([0.5, 1.0, 2.0, 4.0], np.float32)
    solved = half_step(x, Fixed(v, 0.2), l2)
    for row, ones in enumerate(x.toarray().astype(np.float64)):
        weights = ones + 0.2  # of an entry's square; the observed ones also pull towards 1
        expected = np.linalg.solve((v.T * weights) @ v + l2[row] * np.eye(3), v.T @ ones)
        assert solved[row] == pytest.approx(expected, abs=1e-5)


def test_rows_with_few_ones_are_solved_as_those_with_many() -> None:
    """With 16 factors, up to four ones are few: they are solved in the space of the ones."""
    rng = np.random.default_rng(1)
    x = csr([[0, 2, 5], [], [1], list(range(9)), [3, 4, 6, 8], [0, 1, 2, 3, 7], [4]], 9)
    v = rng.normal(size=(9, 16)).astype(np.float32)
    l2 = rng.uniform(0.1, 4, 7).astype(np.float32)
    solved = half_step(x, Fixed(v, 0.2), l2)
    for row, ones in enumerate(x.toarray().astype(np.float64)):
        expected = np.linalg.solve((v.T * (ones + 0.2)) @ v + l2[row] * np.eye(16), v.T @ ones)
        assert solved[row] == pytest.approx(expected, abs=1e-5)


def test_the_usual_penalty_does_not_grow_with_the_number_of_items() -> None:
    """With l2 = 0.01, whatever the size, a user of 200,000 items would have a penalty of 2,000 for ten ones."""
    rows = [list(range(10 * (u % 3), 10 * (u % 3) + 10)) for u in range(300)]
    few, many = (csr(rows, items) for items in (30, 20_000))
    for train in (few, many):
        model = IALS(factors=8, iterations=5).fit(train, rng=0)
        user_penalty = model.l2_ * (10 + model.alpha0_ * train.shape[1])
        assert user_penalty == pytest.approx(4)
        assert np.linalg.norm(model.items_[:30]) > 1


def test_every_half_step_lowers_the_objective() -> None:
    x = random_csr(40, 15, 0.3, 0)
    by_item = x.T.tocsr()
    model = IALS(factors=4, alpha0=0.1, l2=0.01, nu=1.0)
    assert model.alpha0 is not None
    assert model.l2 is not None
    rng = np.random.default_rng(0)
    users, items = (rng.normal(scale=0.05, size=(n, 4)).astype(np.float32) for n in x.shape)
    losses = [ials_loss(model, x, users, items)]
    for _ in range(4):
        users = half_step(x, Fixed(items, model.alpha0), (model.l2 * frequencies(x, model.alpha0)).astype(np.float32))
        losses.append(ials_loss(model, x, users, items))
        items = half_step(
            by_item, Fixed(users, model.alpha0), (model.l2 * frequencies(by_item, model.alpha0)).astype("f4")
        )
        losses.append(ials_loss(model, x, users, items))
    assert (np.diff(losses) < 0).all()
    assert losses[-1] < 0.7 * losses[0]


def test_fitting_is_the_alternation_and_a_training_user_folds_in_to_the_best_factor() -> None:
    """After `fit`, no nudge of a training user's folded-in factor lowers the objective."""
    x = random_csr(40, 15, 0.3, 0)
    short, longer = (IALS(factors=4, iterations=n, alpha0=0.1, l2=0.01, nu=1.0).fit(x, rng=0) for n in (1, 12))
    users = longer.fold_in(x)
    best = ials_loss(longer, x, users, longer.items_)
    assert best < ials_loss(short, x, short.fold_in(x), short.items_)
    for seed in range(5):
        nudge = np.random.default_rng(seed).normal(scale=0.02, size=users.shape).astype(np.float32)
        assert ials_loss(longer, x, users + nudge, longer.items_) > best
    assert longer.fold_in(x[[3]])[0] == pytest.approx(users[3], abs=1e-6)


def test_the_penalties_of_all_nu_have_the_same_sum() -> None:
    x = random_csr(40, 15, 0.3, 0)
    sums = []
    for nu in (0.0, 0.5, 1.0):
        model = IALS(factors=2, iterations=1, nu=nu).fit(x, rng=0)
        sums.append(sum((model.penalty_[0] * frequencies(rows, 0.1) ** nu).sum() for rows in (x, x.T.tocsr())))
    assert sums == pytest.approx([sums[0]] * 3, rel=1e-5)


def test_the_item_graph_of_three_items_is_the_one_computed_by_hand() -> None:
    """Users {0, 1} and {1}; item 2 has nobody. R~ = [[1/sqrt 2, 1/2, 0], [0, 1/sqrt 2, 0]]."""
    p = item_graph(csr([[0, 1], [1]], 3))
    root = np.sqrt(2)
    assert p == pytest.approx(np.array([[1 / 2, root / 4, 0], [root / 4, 3 / 4, 0], [0, 0, 0]]), abs=1e-6)


def test_one_step_of_blurring_and_sharpening_is_the_one_computed_by_hand() -> None:
    """Without a low pass: x = r + (rP - r) / 2 = (r + rP) / 2, then x - x P."""
    train = csr([[0, 1], [1]], 3)
    model = BSPM(low_pass=0, blur_time=0.5, sharpen_time=1.0).fit(train)
    root = np.sqrt(2)
    blurred = np.array([3 / 4, root / 8, 0])
    by_p = np.array([3 / 8 + 1 / 16, root * 3 / 16 + root * 3 / 32, 0])
    assert model.score(csr([[0]], 3))[0] == pytest.approx(blurred - by_p, abs=1e-6)


def test_the_low_pass_of_all_eigenvectors_returns_the_row_and_of_one_follows_popularity() -> None:
    """The leading eigenvector of P is proportional to sqrt(n_i), so the filter spreads a row in proportion to n_i."""
    x = random_csr(60, 8, 0.4, 0)
    counts = column_counts(x)
    assert ideal_low_pass(item_graph(x), counts, 99) == pytest.approx(np.eye(8), abs=1e-5)
    spread = ideal_low_pass(item_graph(x), counts, 1)
    assert spread == pytest.approx(np.tile(counts / counts.sum(), (8, 1)), abs=1e-5)


@pytest.mark.parametrize("merge", ["early", "late"])
def test_bspm_is_its_simulation_step_by_step(merge: Literal["early", "late"]) -> None:
    train, history = random_csr(30, 12, 0.3, 0), random_csr(4, 12, 0.2, 1)
    model = BSPM(factors=5, low_pass=0.4, blur_time=0.9, blur_steps=3, sharpen_time=1.2, sharpen_steps=4, merge=merge)
    r = train.toarray().astype(np.float64)
    d_u, d_i = np.diag(r.sum(axis=1) ** -0.5), np.diag(r.sum(axis=0) ** -0.5)
    normalised = d_u @ r @ d_i
    v = np.linalg.svd(normalised)[2][:5]  # (factors, items)
    x = history.toarray().astype(np.float64)
    low_pass = 0.4 * x @ d_i @ v.T @ v @ np.linalg.inv(d_i)
    for _ in range(3):
        x = x + 0.3 * ((x @ normalised.T) @ normalised - x)
    if merge == "early":
        x = x + low_pass
    for _ in range(4):
        x = x - 0.3 * ((x @ normalised.T) @ normalised)
    if merge == "late":
        x = x + low_pass
    assert model.fit(train).score(history) == pytest.approx(x, abs=1e-5)


@MODELS
def test_odd_data_has_finite_scores(model: Recommender) -> None:
    """Users who are all alike, have one item or none, and items that nobody has; histories of each kind too."""
    for train in (csr([[0, 1, 2]] * 20, 5), csr([[0], [1], [2]] * 5, 5), csr([[0, 1], [], [3]] * 3, 5)):
        scores = model.fit(train, rng=0).score(csr([[], [4], [0], [0, 1, 2, 3, 4]], 5))
        assert np.isfinite(scores).all()
        assert scores.dtype == np.float32


@pytest.mark.parametrize("max_users", [30, 10], ids=["exact", "nystroem"])
def test_the_saved_arrays_of_the_infinite_autoencoder_give_its_scores(max_users: int) -> None:
    x = random_csr(30, 12, 0.3, 0)
    model = InfiniteAE(max_users=max_users).fit(x, rng=0)
    again = InfiniteAE(max_users=max_users)
    again.load_state(model.state(), model.chosen(), 12)
    assert len(model.solution_) == max_users
    assert (again.score(x) == model.score(x)).all()


@pytest.mark.parametrize(("n_users", "n_items"), [(60, 20), (20, 60)])
def test_folding_the_solution_into_the_targets_changes_no_score_and_takes_no_more_room(
    n_users: int, n_items: int
) -> None:
    train = random_csr(n_users, n_items, 0.3, seed=1)
    inputs = kernel.weighted(train, kernel.input_weights(train, 0.25), 0.5)
    whole = kernel.fit_exact(inputs, train, np.full(n_users, 0.5, np.float32), 0.01)
    used = kernel.folded(whole)
    np.testing.assert_allclose(
        kernel.predict(used, inputs[:7], 0.01), kernel.predict(whole, inputs[:7], 0.01), atol=1e-5
    )
    assert used.solution.shape == (n_users, min(n_users, n_items))
