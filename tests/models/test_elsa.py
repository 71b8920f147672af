"""ELSA: what its matrix is by construction, and that its loss is the distance it is said to be."""

import numpy as np
import pytest
import torch

from conftest import random_csr
from recfusion.models.linear.elsa import ELSA, LowRank
from recfusion.nets.sparse import SparseRows

X = random_csr(120, 15, 0.3, 0)


def matrix(net: torch.nn.Module) -> torch.Tensor:
    """Return B = A A' - I of a net, in full."""
    assert isinstance(net, LowRank)
    a = net.rows().detach()
    return a @ a.T - torch.eye(len(a))


def test_rows_have_length_1_so_that_the_diagonal_is_0() -> None:
    net = ELSA(max_epochs=3, factors=4).fit(X, rng=0).net_
    assert isinstance(net, LowRank)
    assert net.rows().detach().norm(dim=1).numpy() == pytest.approx(np.ones(15), abs=1e-6)
    assert matrix(net).diagonal().numpy() == pytest.approx(np.zeros(15), abs=1e-6)


def test_scores_are_the_rows_times_the_whole_matrix() -> None:
    model = ELSA(max_epochs=2, factors=4).fit(X, rng=0)
    assert model.score(X) == pytest.approx(X.toarray() @ matrix(model.net_).numpy(), abs=1e-5)


def test_the_loss_is_the_squared_distance_of_rows_and_images_of_length_1() -> None:
    model = ELSA(max_epochs=1, factors=4).fit(X, rng=0)
    rows = torch.from_numpy(X.toarray()[:7])
    image = rows @ matrix(model.net_)
    apart = rows / rows.norm(dim=1, keepdim=True) - image / image.norm(dim=1, keepdim=True)
    [phase] = model.phases(X, model.net_, torch.Generator())
    assert float(phase.loss(X[:7]).detach()) == pytest.approx(float(apart.square().sum(dim=1).mean()), abs=1e-5)


def test_the_gradient_is_that_of_dense_algebra() -> None:
    net = LowRank(15, 4)
    weights = torch.randn(120, 15, generator=torch.Generator().manual_seed(0))
    (net(SparseRows.of(X)) * weights).sum().backward()
    found = net.factors.grad
    dense = net.factors.detach().clone().requires_grad_()
    a = dense / dense.norm(dim=1, keepdim=True)
    (torch.from_numpy(X.toarray()) @ (a @ a.T - torch.eye(15)) * weights).sum().backward()
    assert found is not None
    assert dense.grad is not None
    assert found.numpy() == pytest.approx(dense.grad.numpy(), abs=1e-4)


def test_the_loss_falls_and_memory_grows_with_items_times_factors() -> None:
    model = ELSA(max_epochs=10, factors=4)
    losses = [epoch.loss for epoch in model.epochs(X, rng=0)]
    assert losses[-1] < 0.9 * losses[0]
    assert model.n_parameters == 15 * 4
