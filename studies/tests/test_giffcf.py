"""GiffCF: the graph and its filter by hand, the loss, the recursion of the scores, and the network's two stages."""

import numpy as np
import pytest
import torch
from torch import Tensor

from conftest import csr, random_csr
from giffcf import GiffCF, Mixer, TwoStages, item_graph
from recfusion.core.errors import InputError
from recfusion.testing import Check, Subject, check_recommender, checks
from recfusion.training.batches import dense

TRAIN = random_csr(20, 9, 0.4, seed=2)
ROWS = random_csr(4, 9, 0.4, seed=3)
RNG = np.random.default_rng(0)


def prepared(**settings: float) -> GiffCF:
    model = GiffCF(**{"width": 5, **settings})  # type: ignore[arg-type]
    model.before_training(TRAIN, None, None, np.random.default_rng(0))
    model.net_ = model.make_net(9)
    return model


def test_the_graph_of_two_users_by_hand() -> None:
    """Users {0, 1} and {1}: X'D_u^-1/2 X = [[a, a], [a, a + 1]] with a = 2^-1/2, and counts 1 and 2."""
    a = 0.5**0.5
    graph = np.array([[a, a / 2**0.5], [a / 2**0.5, (a + 1) / 2]])
    graph /= np.linalg.eigvalsh(graph).max()
    assert item_graph(csr([[0, 1], [1]], 2), 0.0, 1, RNG) == pytest.approx(graph, abs=1e-6)


def test_the_ideal_filter_raises_the_leading_eigenvalues_and_lowers_the_others() -> None:
    plain, vectors = np.linalg.eigh(item_graph(TRAIN, 0.0, 1, RNG).astype(np.float64))
    both = item_graph(TRAIN, 0.2, 3, RNG).astype(np.float64)
    assert plain[-1] == pytest.approx(1, abs=1e-5)
    expected = (plain + 0.2 * (np.arange(9) >= 6)) / 1.2
    assert vectors.T @ both @ vectors == pytest.approx(np.diag(expected), abs=1e-5)


def test_a_step_s_filter_has_the_eigenvalues_of_a_linear_decay() -> None:
    model = prepared(T=4, alpha=1.2)
    s, vectors = np.linalg.eigh(model.smooth_.astype(np.float64))
    identity = torch.eye(9)
    for t in range(5):
        f = (identity + t * model.slope(identity)).numpy()
        assert vectors.T @ f @ vectors == pytest.approx(np.diag(1 - 1.2 * t / 4 * (1 - s)), abs=1e-5)
    assert torch.equal(identity + 0 * model.slope(identity), identity)


@pytest.mark.parametrize("decay", [0.0, 0.5, 1.0])
def test_with_a_perfect_network_the_scores_are_the_row(decay: float) -> None:
    model = prepared(noise_decay=decay)
    asked: list[int] = []

    def perfect(z: Tensor, c: Tensor, smooth: Tensor, t: Tensor) -> Tensor:
        asked.append(int(t[0]))
        torch.testing.assert_close(smooth, c @ torch.from_numpy(model.smooth_))
        return dense(ROWS)

    model.net_ = perfect  # type: ignore[assignment]
    torch.testing.assert_close(model.scores(ROWS), dense(ROWS))
    assert asked == [3, 2, 1]


def test_the_recursion_keeps_a_share_of_what_the_network_misses() -> None:
    """Without smoothing, z_(t-1) = xhat + decay (z_t - xhat): here half of the distance to 3 is left each time."""
    model = prepared(alpha=0.0, noise_decay=0.5, T=2)
    model.net_ = lambda z, c, smooth, t: torch.full_like(z, 3.0)  # type: ignore[assignment]
    torch.testing.assert_close(model.scores(ROWS), 3 + (dense(ROWS) - 3) / 4)


def test_the_loss_is_the_squared_error_from_a_smoothed_row_with_the_noise_of_its_step() -> None:
    model = prepared(T=3, alpha=0.9, noise_scale=0.4, noise_decay=0.5, dropout=0.25)
    found = model.loss(ROWS, model.net_, torch.Generator().manual_seed(5))
    draws = torch.Generator().manual_seed(5)
    x, s = dense(ROWS), torch.from_numpy(model.smooth_)
    t = torch.randint(1, 4, (4, 1), generator=draws)
    noise = 0.4 * 0.5 ** (3 - t) * torch.randn(4, 9, generator=draws)
    z = (1 - 0.3 * t) * x + 0.3 * t * (x @ s) + noise
    c = x * (torch.rand(4, 9, generator=draws) >= 0.25) / 0.75
    torch.testing.assert_close(found, (model.net_(z, c, c @ s, t[:, 0]) - x).square().sum() / 4)


def test_the_network_mixes_entries_twice() -> None:
    torch.manual_seed(0)
    net = TwoStages(9, 5)
    z, c, smooth, t = torch.randn(4, 9), dense(ROWS), torch.randn(4, 9), torch.tensor([1, 2, 3, 1])

    def mixed(mixer: Mixer, *signals: Tensor) -> Tensor:
        w, b = mixer.hidden.weight, mixer.hidden.bias
        hidden = [sum((w[h, i] * x for i, x in enumerate(signals)), b[h]) for h in range(2)]
        return mixer.out.bias + sum(mixer.out.weight[0, h] * hidden[h] * hidden[h].sigmoid() for h in range(2))

    angles = t[:, None] * 10_000.0 ** (-torch.arange(0, 20, 2) / 20)
    waves = torch.stack([angles.sin(), angles.cos()], 2).flatten(1)
    shares = c / c.sum(1, keepdim=True).clamp(min=1)
    latent = mixed(net.first, z @ net.items / 9, shares @ net.items, net.times[0](waves))
    expected = mixed(net.second, latent @ net.items.T, c, smooth, net.times[1](waves))
    torch.testing.assert_close(net(z, c, smooth, t), expected)
    assert expected.shape == (4, 9)


@pytest.mark.parametrize("check", checks(), ids=str)
def test_it_keeps_the_contract(check: Check) -> None:
    check(Subject(GiffCF(width=8, max_epochs=2, ideal_weight=0.1, ideal_factors=4, noise_scale=0.1)))


def test_the_item_withheld_from_a_checkerboard_ranks_first() -> None:
    check_recommender(GiffCF(width=16, max_epochs=20), only="learns_tastes")


def test_it_refuses_to_hide_every_item() -> None:
    with pytest.raises(InputError, match="below 1, got 1"):
        GiffCF(dropout=1.0)
