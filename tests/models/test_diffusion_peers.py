"""CODIGEM and DiffRec: their sizes, losses, weights of the steps and draws of t, by hand; and resuming."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from conftest import random_csr
from recfusion.core.errors import InputError
from recfusion.diffusion.schedule import make_schedule
from recfusion.models.abilities import fit_in_epochs
from recfusion.models.neural.codigem import CODIGEM, ReverseSteps
from recfusion.models.neural.diffrec import DiffRec, StepSampler, linear_variance, step_weights
from recfusion.models.neural.network import NeuralRecommender
from recfusion.models.registry import make_model
from recfusion.training.batches import dense
from recfusion.training.epoch import Checkpoint

TRAIN = random_csr(40, 12, 0.3, 0)


def weights(model: NeuralRecommender) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.net_.parameters()])


@pytest.mark.parametrize("preset", ["tuned", "paper"])
def test_codigem_has_as_many_parameters_as_in_the_paper(preset: str) -> None:
    model = make_model("codigem", {"preset": preset, "max_epochs": 1}).fit(random_csr(4, 3416, 0.01, 0), rng=0)
    assert model.n_parameters == 5_603_886


def test_codigem_s_steps_share_no_weights() -> None:
    net = CODIGEM().make_net(5)
    assert isinstance(net, ReverseSteps)
    assert len(net.steps) == 3
    for one, other in combinations(net.steps, 2):
        assert not {p.data_ptr() for p in one.parameters()} & {p.data_ptr() for p in other.parameters()}


def test_each_of_codigem_s_nets_learns_from_its_own_step_alone() -> None:
    net = ReverseSteps(5, 3, width=4, depth=1, shared=True)
    net(torch.randn(2, 5), torch.tensor([2, 2])).sum().backward()
    learning = [any(p.grad is not None for p in step.parameters()) for step in net.steps]
    assert learning == [False, True, False]
    with pytest.raises(InputError, match="one step t for the whole batch"):
        net(torch.randn(2, 5), torch.tensor([1, 2]))


def test_codigem_s_loss_is_the_bound_written_out() -> None:
    model = CODIGEM(schedule="linear", beta_low=0.1, beta_high=0.5, width=4)
    net = ReverseSteps(3, 3, width=4, depth=1, shared=True)
    rows = random_csr(2, 3, 0.5, 1)
    rng = torch.Generator().manual_seed(7)
    found = float(model.phases(rows, net, rng)[0].loss(rows).detach())

    rng = torch.Generator().manual_seed(7)
    x0 = dense(rows)
    beta = [0.1, 0.3, 0.5]
    alpha_bar = np.cumprod([1.0, 0.9, 0.7, 0.5])
    kl_to_prior = -0.5 * np.log(1 - alpha_bar[3]) + (1 - alpha_bar[3] + alpha_bar[3] * x0.numpy() ** 2) / 2 - 0.5
    total = kl_to_prior.sum()
    for t in (1, 2, 3):
        noise = torch.randn(x0.shape, generator=rng)
        xt = alpha_bar[t] ** 0.5 * x0 + (1 - alpha_bar[t]) ** 0.5 * noise
        out = net.steps[t - 1](xt.float(), torch.tensor([t, t])).detach().numpy()
        if t == 1:
            total += ((x0.numpy() - out) ** 2 / 2 + np.log(2 * np.pi) / 2).sum()
            continue
        left, before = 1 - beta[t - 1], alpha_bar[t - 1]
        precision = left / beta[t - 1] + 1 / (1 - before)  # of x^{t-1}, from x^t and from x^0
        mean = (left**0.5 / beta[t - 1] * xt + before**0.5 / (1 - before) * x0).numpy() / precision
        off, variance = mean - out[:, :3], np.exp(out[:, 3:])
        total += (np.log(variance * precision) + (1 / precision + off**2) / variance - 1).sum() / 2
    assert found == pytest.approx(total / 2, rel=1e-5)


def test_codigem_can_start_its_way_back_at_a_later_step() -> None:
    model = CODIGEM(start=3, width=6, max_epochs=2).fit(TRAIN, rng=0)
    net = model.net_
    assert isinstance(net, ReverseSteps)
    x = dense(TRAIN)
    for t in (3, 2, 1):
        x = net.steps[t - 1](x, torch.full((40,), t))[:, :12]
    assert model.score(TRAIN) == pytest.approx(x.detach().numpy(), abs=1e-6)
    with pytest.raises(InputError, match=r"start in 1\.\.3, got 4"):
        CODIGEM(start=4)


def test_diffrec_s_noise_variances_rise_in_a_straight_line() -> None:
    schedule = linear_variance(3, 0.5, 0.2, 0.6)
    assert (1 - schedule.alpha_bar(torch.tensor([1, 2, 3]))).tolist() == pytest.approx([0.1, 0.2, 0.3])
    assert linear_variance(1, 0.5, 0.2, 0.6).betas.tolist() == pytest.approx([0.1])


def test_diffrec_s_steps_count_by_half_the_loss_of_signal_to_noise() -> None:
    schedule = linear_variance(3, 0.5, 0.2, 0.6)  # SNR: .9/.1 = 9, .8/.2 = 4, .7/.3
    found = step_weights(schedule, torch.tensor([1, 2, 3, 1]))
    assert found.tolist() == pytest.approx([1, (9 - 4) / 2, (4 - 7 / 3) / 2, 1])
    constant = make_schedule("constant", 2, high=0.5)  # SNR: 1, then .25/.75
    assert step_weights(constant, torch.tensor([2])).tolist() == pytest.approx([(1 - 1 / 3) / 2])


def test_steps_are_drawn_uniformly_until_each_has_ten_losses() -> None:
    sampler = StepSampler(2)
    sampler.remember(torch.tensor([1] * 10 + [2] * 9), torch.full((19,), 5.0))
    assert sampler.probabilities().tolist() == [0.5, 0.5]
    sampler.remember(torch.tensor([2]), torch.tensor([5.0]))
    sampler.remember(torch.tensor([2]), torch.tensor([50.0]))
    assert sampler.probabilities()[1] > 0.5


def test_steps_are_drawn_by_the_root_of_their_mean_squared_losses() -> None:
    sampler = StepSampler(2)
    sampler.remember(torch.tensor([1] * 10 + [2] * 10), torch.tensor([3.0] * 10 + [100.0] * 10))
    sampler.remember(torch.tensor([2] * 10), torch.tensor([6.0, 8.0] * 5))  # the hundreds are forgotten
    second = 50**0.5 / (3 + 50**0.5)  # the mean of 36 and 64 is 50
    p = 0.999 * second + 0.001 / 2
    assert sampler.probabilities().tolist() == pytest.approx([1 - p, p])
    t, relative = sampler.draw(20_000, torch.Generator().manual_seed(0))
    assert float((t == 2).float().mean()) == pytest.approx(p, abs=0.015)
    assert float((1 / relative).mean()) == pytest.approx(1, abs=0.02)
    assert relative[t == 2][0] == pytest.approx(2 * p)


def test_diffrec_s_loss_is_the_weighted_error_over_the_probability() -> None:
    model = DiffRec(T=1, noise_scale=0.5, noise_min=0.2, noise_max=0.6, dropout=0, width=4)
    model.net_ = model.make_net(12)
    trained = model.training_module()
    rng = torch.Generator().manual_seed(3)
    found = float(model.phases(TRAIN, trained, rng)[0].loss(TRAIN).detach())
    rng = torch.Generator().manual_seed(3)
    torch.multinomial(torch.ones(1), 40, replacement=True, generator=rng)
    x0 = dense(TRAIN)
    x1 = 0.9**0.5 * x0 + 0.1**0.5 * torch.randn(x0.shape, generator=rng)
    error = model.net_(x1, torch.ones(40, dtype=torch.int64)) - x0
    assert found == pytest.approx(float(error.detach().square().mean()), rel=1e-5)


def test_diffrec_recommends_by_the_means_of_all_reverse_steps() -> None:
    model = DiffRec(T=2, noise_scale=0.5, noise_min=0.2, noise_max=0.6, width=4, noised_steps=1, max_epochs=1)
    model.fit(TRAIN, rng=0)
    x = 0.9**0.5 * dense(TRAIN)
    x0 = model.net_(x, torch.full((40,), 2))
    # x^1 is known from x^2 with precision alpha/beta, and from x^0 with 1/.1; alpha_2 = .7/.9
    alpha = 0.7 / 0.9
    mean = (alpha**0.5 / (1 - alpha) * x + 0.9**0.5 / 0.1 * x0) / (alpha / (1 - alpha) + 1 / 0.1)
    expected = model.net_(mean, torch.ones(40, dtype=torch.int64)).detach().numpy()
    assert model.score(TRAIN) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("normalised", [False, True])
def test_dropout_acts_in_training_alone(normalised: bool) -> None:
    net = DiffRec(normalised=normalised, width=4).make_net(12)
    x, t = dense(TRAIN), torch.ones(40, dtype=torch.int64)
    assert torch.equal(net(x, t), net(x, t))
    assert torch.allclose(net(x, t), net(2 * x, t)) is normalised
    assert not torch.equal(net(x, t, torch.Generator().manual_seed(0)), net(x, t))


@pytest.mark.parametrize("name", ["codigem", "diffrec"])
def test_an_interrupted_training_ends_in_the_same_weights(name: str, tmp_path: Path) -> None:
    settings = {"max_epochs": 8, "width": 6, "batch_size": 15}
    checkpoint = Checkpoint(tmp_path / "run.checkpoint", "this run")
    whole, broken, resumed = (make_model(name, settings) for _ in range(3))
    assert isinstance(whole, NeuralRecommender)
    assert isinstance(resumed, NeuralRecommender)
    whole.fit(TRAIN, rng=0)
    for epoch in fit_in_epochs(broken, TRAIN, rng=0, checkpoint=checkpoint):
        if epoch.number == 5:
            break
    assert len(list(resumed.epochs(TRAIN, rng=0, checkpoint=checkpoint))) == 3
    assert torch.equal(weights(resumed), weights(whole))


def test_what_importance_sampling_remembers_is_no_part_of_the_saved_model() -> None:
    model = DiffRec(width=4, max_epochs=1).fit(TRAIN, rng=0)
    assert not [name for name in model.state() if "sampler" in name]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"noised_steps": 6, "T": 5}, "noised_steps up to 5, got 6"),
        ({"dropout": 1.0}, "dropout to be below 1, got 1"),
        ({"noise_min": 0.02, "noise_max": 0.01}, r"increasing noise variances in \(0, 1\)"),
        ({"noise_scale": 100, "noise_max": 0.02}, r"increasing noise variances in \(0, 1\)"),
    ],
)
def test_settings_of_diffrec_that_make_no_sense_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_model("diffrec", settings)
