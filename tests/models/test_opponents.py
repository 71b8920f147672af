"""Neighbour models, truncated decompositions, sparse MRF, FlowCF and LightGCN against their papers' formulas."""

import numpy as np
import pytest
import torch

from conftest import random_csr
from recfusion.core.errors import InputError
from recfusion.models.baselines.item_neighbours import ItemNeighbours
from recfusion.models.baselines.truncated_svd import TruncatedSVD
from recfusion.models.factors.lightgcn import Factors, LightGCN
from recfusion.models.linear.sparse_mrf import SparseMRF
from recfusion.models.neural.flowcf import FlowCF, FlowNet
from recfusion.models.registry import make_model
from recfusion.training.batches import dense

TRAIN = random_csr(30, 12, 0.3, seed=1)
X = TRAIN.toarray().astype(np.float64)
N, LENGTHS = X.sum(0), X.sum(1)


def test_item_knn_keeps_the_largest_cosines_of_each_item_without_its_own() -> None:
    model = ItemNeighbours(neighbours=3).fit(TRAIN)
    cosine = X.T @ X / np.sqrt(np.outer(N, N))
    np.fill_diagonal(cosine, 0)
    for column in cosine.T:
        column[np.argsort(-column, kind="stable")[3:]] = 0
    assert model.weights_.toarray() == pytest.approx(cosine, abs=1e-6)
    assert model.score(TRAIN) == pytest.approx(X @ cosine, abs=1e-5)


def test_shrinking_lowers_the_cosine_of_items_with_few_shared_users() -> None:
    shared = X.T @ X
    expected = shared / np.sqrt(np.outer(N, N)) * shared / (shared + 10)
    assert ItemNeighbours(shrink=10, neighbours=0).fit(TRAIN).weights_.toarray() == pytest.approx(expected, abs=1e-6)


def test_rp3beta_is_a_random_walk_with_its_probabilities_to_a_power() -> None:
    alpha, beta = 0.7, 0.4
    model = ItemNeighbours(users=alpha, history=alpha, candidate=beta, neighbours=0).fit(TRAIN)
    to_user, to_item = (X.T / N[:, None]) ** alpha, (X / LENGTHS[:, None]) ** alpha
    assert model.weights_.toarray() == pytest.approx(to_user @ to_item / N**beta, abs=1e-6)


@pytest.mark.parametrize("filter_", ["linear", "second", "third"])
def test_turbo_cf_is_a_polynomial_of_the_asymmetric_item_graph(filter_: str) -> None:
    alpha, s = 0.6, 0.7
    model = make_model("turbo-cf", {"filter": filter_}).fit(TRAIN)
    tilde = (X / LENGTHS[:, None] ** alpha) / N ** (1 - alpha)
    p = (tilde.T @ tilde) ** s
    h = {"linear": p, "second": 2 * p - p @ p, "third": p + 0.01 * (-p @ p @ p + 10 * p @ p - 29 * p)}[filter_]
    assert model.score(TRAIN) == pytest.approx(X @ h, rel=1e-4)


def test_puresvd_projects_a_row_on_the_leading_singular_vectors() -> None:
    v = np.linalg.svd(X)[2][:3].T
    assert TruncatedSVD(factors=3).fit(TRAIN, rng=0).score(TRAIN) == pytest.approx(X @ v @ v.T, abs=2e-3)


def test_svd_ae_is_the_pseudo_inverse_of_the_truncated_normalised_rows() -> None:
    tilde = X / np.sqrt(LENGTHS)[:, None] / np.sqrt(N)
    u, s, vt = np.linalg.svd(tilde, full_matrices=False)
    expected = tilde @ vt[:3].T @ np.diag(1 / s[:3]) @ u[:, :3].T @ X
    model = TruncatedSVD("autoencoder", factors=3).fit(TRAIN, rng=0)
    assert model.score(TRAIN) == pytest.approx(expected, abs=5e-3)


def covariance(alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the scaled covariance of the items (times users) and the scale of each item."""
    c = X.T @ X - np.outer(N, N) / len(X)
    scale = np.diag(c) ** (-alpha / 2)
    return scale[:, None] * c * scale, scale


def test_a_markov_random_field_with_all_neighbours_is_the_dense_solution() -> None:
    s, scale = covariance(0.75)
    p = np.linalg.inv(s + 2 * np.eye(12))
    b = -p / np.diag(p)
    np.fill_diagonal(b, 0)
    model = SparseMRF(l2=2.0, threshold=0.0).fit(TRAIN)
    assert model.weights_.toarray() == pytest.approx(scale[:, None] * b / scale, abs=1e-4)


@pytest.mark.parametrize("shared", [0.0, 0.5])
def test_a_sparse_markov_random_field_solves_each_neighbourhood_and_averages(shared: float) -> None:
    s, scale = covariance(0.75)
    near = [np.flatnonzero((np.abs(s[:, j]) > 0.3) | (np.arange(12) == j)) for j in range(12)]
    total, times = np.zeros((12, 12)), np.zeros((12, 12))
    done: set[int] = set()
    for j in sorted(range(12), key=lambda j: -len(near[j])):
        if j in done:
            continue
        block = sorted(near[j], key=lambda i: -np.inf if i == j else -abs(s[i, j]))
        served = block[: max(1, int(np.ceil(shared * len(block))))]
        done |= {int(item) for item in served}
        p = np.linalg.inv(s[np.ix_(block, block)] + 2 * np.eye(len(block)))
        for place, item in enumerate(served):
            total[block, item] += -p[:, place] / p[place, place]
            times[block, item] += 1
    b = np.divide(total, times, out=np.zeros_like(total), where=times > 0)
    for j in range(12):
        b[[i for i in range(12) if i not in near[j] or i == j], j] = 0
    model = SparseMRF(l2=2.0, threshold=0.3, shared=shared).fit(TRAIN)
    assert model.weights_.toarray() == pytest.approx(scale[:, None] * b / scale, abs=1e-4)


def test_an_item_that_nobody_has_gets_no_score_and_breaks_nothing() -> None:
    wider = TRAIN.copy()
    wider.resize((30, 13))
    for name in ("item-knn", "rp3beta", "turbo-cf", "puresvd", "svd-ae", "mrf"):
        scores = make_model(name, {}).fit(wider, rng=0).score(wider)
        assert np.isfinite(scores).all()
        assert scores[:, -1] == pytest.approx(0, abs=1e-5), name


def test_flowcf_s_loss_is_the_squared_error_of_rows_mixed_with_popular_items() -> None:
    model = FlowCF(T=3, steps=1, width=4, dropout=0.0)
    model.prepare(TRAIN)
    net = model.make_net(12)
    found = float(model.loss(TRAIN, net, torch.Generator().manual_seed(3)).detach())
    rng = torch.Generator().manual_seed(3)
    t = torch.randint(3, (30,), generator=rng) / 3
    x0 = (torch.rand(30, 12, generator=rng).numpy() < X.mean(0)).astype(np.float32)
    kept = torch.rand(30, 12, generator=rng).numpy() < t.numpy()[:, None]
    xt = torch.from_numpy(np.where(kept, X, x0).astype(np.float32))
    assert found == pytest.approx(float((net(xt, t) - dense(TRAIN)).square().mean().detach()), rel=1e-5)


def test_flowcf_rounds_its_steps_keeps_the_history_and_scores_by_the_last_prediction() -> None:
    model = FlowCF(T=9, steps=2, width=6, max_epochs=3).fit(TRAIN, rng=0)
    net, x = model.net_, dense(TRAIN)
    assert isinstance(net, FlowNet)
    assert isinstance(net.layers[-1], torch.nn.Linear)
    with torch.no_grad():
        net.layers[-1].bias[:3] += 1  # so that some predictions exceed 1, which a step needs to add an item
    predicted = net(x, torch.full((30,), 7 / 9))
    second = x + (predicted - x) / (1 - 7 / 9) / 9
    second = torch.maximum(x, (second > 0.5).float())
    assert float((second - x).sum()) > 0  # some step changes a row
    assert model.score(TRAIN) == pytest.approx(net(second, torch.full((30,), 8 / 9)).detach().numpy(), abs=1e-6)


@pytest.mark.parametrize("wrong", [{"steps": 10}, {"dropout": 1.0}, {"time_width": 3}])
def test_flowcf_refuses_settings_that_do_not_fit_together(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        make_model("flowcf", wrong)


def test_lightgcn_scores_by_the_mean_over_all_steps_of_the_graph() -> None:
    model = LightGCN(width=4, layers=2, max_epochs=2).fit(TRAIN, rng=0)
    net = model.net_
    assert isinstance(net, Factors)
    users, items = net.users.detach().numpy().astype(np.float64), net.items.detach().numpy().astype(np.float64)
    a = X / np.sqrt(LENGTHS)[:, None] / np.sqrt(N)
    graph = np.block([[np.zeros((30, 30)), a], [a.T, np.zeros((12, 12))]])
    walks = [np.linalg.matrix_power(graph, k) @ np.vstack([users, items]) for k in range(3)]
    mean = np.mean(walks, axis=0)
    first = np.unique(X, axis=0, return_index=True)[1]  # of several equal rows
    assert model.score(TRAIN[first]) == pytest.approx(mean[first] @ mean[30:].T, abs=1e-5)
    with torch.no_grad():
        net.items.add_(1)  # as a step of training does: nothing is remembered from before
    assert not np.allclose(model.score(TRAIN[first]), mean[first] @ mean[30:].T)
    stranger = TRAIN[:1].copy()
    stranger.indices[:1] = next(item for item in range(12) if item not in stranger.indices)
    assert model.score(stranger).shape == (1, 12)


def test_lightgcn_s_loss_is_bpr_over_all_interactions_of_a_batch() -> None:
    model = LightGCN(width=4, layers=1, l2=0.3)
    model.prepare(TRAIN)
    net = model.make_net(12)
    rows = model.training_rows(TRAIN, None)[[3, 5]]
    found = float(model.loss(rows, net, torch.Generator().manual_seed(1)).detach())
    others = model._others(TRAIN[[3, 5]], torch.Generator().manual_seed(1)).tolist()
    users, items = (part.detach().numpy() for part in model.walked(net))
    pairs = [(u, i) for u in (3, 5) for i in TRAIN[[u]].indices]
    e_u, e_i = net.users.detach().numpy(), net.items.detach().numpy()
    losses = [np.log1p(np.exp(users[u] @ (items[j] - items[i]))) for (u, i), j in zip(pairs, others, strict=True)]
    squared = [(e_u[u] ** 2).sum() + (e_i[[i, j]] ** 2).sum() for (u, i), j in zip(pairs, others, strict=True)]
    assert found == pytest.approx(np.mean(losses) + 0.3 / 2 * np.mean(squared), rel=1e-5)
    assert all(X[u, j] == 0 for (u, _), j in zip(pairs, others, strict=True))
