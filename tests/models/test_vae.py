"""MultVAE, MultDAE and RecVAE: their losses against brute force, their phases, and resuming."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal as TorchNormal

from conftest import csr, random_csr
from recfusion.data.interactions import Interactions
from recfusion.data.split import split
from recfusion.diffusion.process import Normal, kl
from recfusion.models.neural.network import NeuralRecommender
from recfusion.models.neural.vae import MultVAE, RecVAE, WithOldEncoder
from recfusion.models.registry import make_model
from recfusion.nets.sparse import SparseRows
from recfusion.nets.vae import (
    DenseEncoder,
    composite_log_prob,
    draw_with_log_prob,
    kl_to_standard,
    multinomial_nll,
)
from recfusion.training.batches import dense
from recfusion.training.checkpoint import TrainState
from recfusion.training.epoch import Checkpoint
from recfusion.training.loop import train_epoch

TRAIN = random_csr(30, 12, 0.3, 0)
SMALL = {"width": 8, "latent": 4, "batch_size": 10}


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def count(net: nn.Module) -> int:
    return sum(parameter.numel() for parameter in net.parameters())


def copies(net: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in net.parameters()]


def make(name: str, settings: dict[str, object]) -> NeuralRecommender:
    model = make_model(name, settings)
    assert isinstance(model, NeuralRecommender)
    return model


def test_multvae_has_the_paper_s_number_of_parameters() -> None:
    model = MultVAE(max_epochs=1).fit(random_csr(4, 3416, 0.01, 0), rng=0)
    assert model.n_parameters == 4_464_216


def test_recvae_has_a_parameter_for_each_weight_of_its_description() -> None:
    """The encoder: items to 600, four times 600 to 600, five norms, mean and log-variance; then a linear decoder."""
    dense_layers = 100 * 600 + 600 + 4 * (600 * 600 + 600) + 5 * 2 * 600
    assert count(RecVAE().make_net(100)) == dense_layers + 600 * 400 + 400 + 200 * 100 + 100


def test_multdae_is_a_row_of_the_registry_with_one_hidden_layer() -> None:
    model = make("multdae", {"max_epochs": 1, "latent": 200})
    assert isinstance(model, MultVAE)
    assert model.fit(TRAIN, rng=0).n_parameters == 12 * 200 + 200 + 200 * 12 + 12


def test_the_multinomial_likelihood_equals_brute_force_with_its_gradient() -> None:
    matrix = csr([[0, 3], [], [1, 2, 4]], 5)
    logits = (20 * torch.randn(3, 5, generator=rng())).requires_grad_()
    twin = logits.detach().clone().requires_grad_()
    expected = -(dense(matrix) * (twin.exp() / twin.exp().sum(1, keepdim=True)).log()).sum(1)
    found = multinomial_nll(logits, SparseRows.of(matrix))
    assert found.tolist() == pytest.approx(expected.tolist(), rel=1e-5, abs=1e-5)
    assert found[1] == 0
    found.sum().backward()  # type: ignore[no-untyped-call]
    expected.sum().backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert twin.grad is not None
    assert torch.allclose(logits.grad, twin.grad, atol=1e-5)


def test_the_likelihood_of_equal_logits_is_that_of_a_fair_die() -> None:
    found = multinomial_nll(torch.full((1, 6), 2.5), SparseRows.of(csr([[1, 4]], 6)))
    assert found.item() == pytest.approx(2 * math.log(6))


def test_multvae_s_kl_equals_torch_s_and_its_monte_carlo_estimate() -> None:
    mean, log_variance = torch.tensor([[0.5, -1.0]]), torch.tensor([[0.3, -0.7]])
    code = Normal(mean, (log_variance / 2).exp())
    prior = Normal(torch.zeros(1, 2), torch.ones(1, 2))
    exact = kl_to_standard(code).sum()
    assert exact.item() == pytest.approx(kl(code, prior).sum().item())
    many = Normal(mean.expand(200_000, 2), code.scale.expand(200_000, 2))
    z = many.draw(rng())
    assert (many.log_prob(z) - prior.log_prob(z)).sum(1).mean().item() == pytest.approx(exact.item(), abs=0.01)


def test_the_weight_of_the_kl_term_rises_in_a_straight_line_to_its_cap() -> None:
    """With weights of 0 the code is N(0, 1) but for the head's bias, so that the KL is known."""
    model = MultVAE(kl_cap=0.4, anneal_steps=4, width=8, latent=1)
    net = model.net_ = model.make_net(6)
    for parameter in net.parameters():
        nn.init.zeros_(parameter)
    head = net.encoder.get_submodule("2").get_submodule("both")
    assert isinstance(head, nn.Linear)
    nn.init.constant_(head.bias[:1], 2.0)  # a mean of 2: the KL is 2
    trained = model.training_module()
    (phase,) = model.phases(TRAIN, trained, rng())
    rows = csr([[0, 1]], 6)
    weights = [(phase.loss(rows).item() - 2 * math.log(6)) / 2 for _ in range(6)]
    assert weights == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4, 0.4], abs=1e-5)


def test_the_composite_prior_equals_a_sum_of_densities() -> None:
    z = torch.randn(5, 3, generator=rng())
    old = Normal(torch.randn(5, 3, generator=rng(1)), torch.rand(5, 3, generator=rng(2)) + 0.1)
    parts = [TorchNormal(0.0, 1.0), TorchNormal(old.loc, old.scale), TorchNormal(0.0, math.exp(5))]
    one, two, three = (part.log_prob(z).exp() for part in parts)  # type: ignore[no-untyped-call]
    expected = 0.15 * one + 0.75 * two + 0.1 * three
    assert torch.allclose(composite_log_prob(z, old, (0.15, 0.75, 0.1)).exp(), expected, atol=1e-6)


def test_the_composite_prior_is_a_density() -> None:
    grid = torch.linspace(-1500, 1500, 60_001, dtype=torch.float64)[None]
    old = Normal(torch.full_like(grid, 0.7), torch.full_like(grid, 0.2))
    density = composite_log_prob(grid, old, (0.15, 0.75, 0.1)).exp()
    assert torch.trapezoid(density, grid).item() == pytest.approx(1, abs=1e-4)


def test_a_drawn_code_comes_with_its_log_density() -> None:
    code = Normal(torch.randn(5, 3, generator=rng()), torch.rand(5, 3, generator=rng(1)) + 0.1)
    z, log_q = draw_with_log_prob(code, rng(2))
    assert torch.equal(z, code.draw(rng(2)))
    assert torch.allclose(log_q, code.log_prob(z), atol=1e-5)


def test_the_dense_encoder_adds_all_earlier_layers() -> None:
    net = DenseEncoder(12, 6, layers=3)
    x = dense(TRAIN)

    def norm(h: Tensor, k: int) -> Tensor:
        out: Tensor = net.norms[k](h * torch.sigmoid(h))
        return out

    h1 = norm(x @ net.first.weight + net.first.bias, 0)
    h2 = norm(net.rest[0](h1) + h1, 1)
    h3 = norm(net.rest[1](h2) + h1 + h2, 2)
    assert torch.allclose(net(SparseRows.of(TRAIN)), h3, atol=1e-5)


def test_each_phase_of_recvae_trains_its_own_part() -> None:
    model = RecVAE(width=8, latent=4)
    net = model.net_ = model.make_net(12)
    trained = model.training_module()
    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-2)
    phases = model.phases(TRAIN, trained, rng())
    assert len(phases) == 4
    moved = []
    for phase in (phases[0], phases[-1]):
        before = copies(net.encoder), copies(net.decoder)
        train_epoch(TrainState(trained, optimizer, rng()), [phase], TRAIN, 10)
        after = copies(net.encoder), copies(net.decoder)
        moved.append(
            [any(not torch.equal(a, b) for a, b in zip(*pair, strict=True)) for pair in zip(before, after, strict=True)]
        )
    assert moved == [[True, False], [False, True]]


def test_the_old_encoder_is_the_encoder_before_the_decoder_s_pass() -> None:
    model = RecVAE(width=8, latent=4)
    net = model.net_ = model.make_net(12)
    trained = model.training_module()
    start = copies(net.encoder)
    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-2)
    phases = model.phases(TRAIN, trained, rng())
    train_epoch(TrainState(trained, optimizer, rng()), phases[:-1], TRAIN, 10)
    assert all(torch.equal(a, b) for a, b in zip(copies(trained.old), start, strict=True))
    train_epoch(TrainState(trained, optimizer, rng()), phases[-1:], TRAIN, 10)
    assert all(torch.equal(a, b) for a, b in zip(copies(trained.old), copies(net.encoder), strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(copies(trained.old), start, strict=True) if a.dim() == 2)


def test_a_saved_recvae_has_the_net_alone() -> None:
    model = RecVAE(width=8, latent=4, max_epochs=1).fit(TRAIN, rng=0)
    assert isinstance(model.training_module(), WithOldEncoder)
    assert sum(array.size for array in model.state().values()) == count(model.make_net(12))


@pytest.mark.parametrize("name", ["multvae", "multdae", "recvae"])
def test_an_interrupted_training_ends_in_the_same_weights(name: str, groups: Interactions, tmp_path: Path) -> None:
    parts = split(groups)
    settings: dict[str, object] = {**SMALL, "max_epochs": 5, "patience": 5}
    whole = make(name, settings).fit(parts.train, parts.valid, rng=3)
    checkpoint = Checkpoint(tmp_path / "run", "this run")
    broken = make(name, settings).epochs(parts.train, parts.valid, rng=3, checkpoint=checkpoint)
    assert [next(broken).number, next(broken).number] == [1, 2]  # then it is interrupted
    resumed = make(name, settings)
    numbers = [epoch.number for epoch in resumed.epochs(parts.train, parts.valid, rng=3, checkpoint=checkpoint)]
    assert numbers == [3, 4, 5]
    for key, array in whole.state().items():
        assert (array == resumed.state()[key]).all(), key


@pytest.mark.parametrize("name", ["multvae", "multdae", "recvae"])
def test_learning_lowers_the_loss(name: str, groups: Interactions) -> None:
    epochs = 12 if name == "recvae" else 30  # of four passes over the users each
    model = make(name, {**SMALL, "max_epochs": epochs, "lr": 1e-2, "weight_decay": 0.0})
    losses = [epoch.loss for epoch in model.epochs(split(groups).train, rng=0)]
    assert losses[-1] < 0.9 * losses[0]
