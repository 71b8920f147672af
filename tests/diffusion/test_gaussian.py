"""The Gaussian process against Bayes' rule on a grid, against Monte Carlo, and its variances."""

import math

import pytest
import torch

from enumeration import SCHEDULES, linear
from recfusion.core.errors import InputError
from recfusion.diffusion.gaussian import Gaussian
from recfusion.diffusion.sampling import forward_steps


def entry(value: float) -> torch.Tensor:
    return torch.tensor([[value]], dtype=torch.float64)


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_posterior_is_bayes_rule(name: str) -> None:
    process = Gaussian(SCHEDULES[name])
    x0, xt = entry(0.7), entry(-0.4)
    for t in range(2, process.T + 1):
        grid = torch.linspace(-12, 12, 200_001, dtype=torch.float64)[:, None]
        log = process.q_marginal(x0, t - 1).log_prob(grid) + process.q_step(grid, t).log_prob(xt)
        weight = torch.softmax(log[:, 0], 0)
        mean = (weight * grid[:, 0]).sum()
        variance = (weight * (grid[:, 0] - mean) ** 2).sum()
        posterior = process.q_posterior(x0, xt, t)
        assert posterior.mean.item() == pytest.approx(mean.item(), abs=1e-8)
        assert posterior.variance.item() == pytest.approx(variance.item(), abs=1e-8)


@pytest.mark.parametrize("name", SCHEDULES)
def test_steps_in_a_row_have_the_closed_form_marginal(name: str) -> None:
    process = Gaussian(SCHEDULES[name])
    mean, variance = 0.7, 0.0
    for t in range(1, process.T + 1):
        beta = SCHEDULES[name].beta(t).item()
        mean, variance = math.sqrt(1 - beta) * mean, (1 - beta) * variance + beta
        marginal = process.q_marginal(entry(0.7), t)
        assert marginal.mean.item() == pytest.approx(mean, abs=1e-12)
        assert marginal.variance.item() == pytest.approx(variance, abs=1e-12)


def test_draws_agree_with_the_marginal_and_with_the_simulated_chain() -> None:
    process, n = Gaussian(linear(4, 0.1, 0.4)), 20_000
    x0 = torch.full((n, 1), 2.0)
    *_, simulated = forward_steps(process, x0, torch.Generator().manual_seed(0))
    drawn = process.q_sample(x0, 4, torch.Generator().manual_seed(1))
    marginal = process.q_marginal(x0[:1], 4)
    for sample in (simulated, drawn):
        assert sample.mean().item() == pytest.approx(marginal.mean.item(), abs=4 * marginal.stddev.item() / n**0.5)
        assert sample.var().item() == pytest.approx(marginal.variance.item(), rel=0.05)


def test_a_right_prediction_makes_the_reverse_step_the_posterior() -> None:
    process = Gaussian(linear(4, 0.1, 0.4))
    x0, xt, t = torch.randn(3, 5).double(), torch.randn(3, 5).double(), torch.tensor([2, 3, 4])
    reverse, posterior = process.p_reverse(x0, xt, t), process.q_posterior(x0, xt, t)
    assert torch.allclose(reverse.mean, posterior.mean)
    assert torch.allclose(reverse.stddev, posterior.stddev)


def test_the_first_step_is_certain_and_its_reverse_borrows_the_variance_of_the_second() -> None:
    process = Gaussian(linear(3, 0.1, 0.3))
    x0, xt = entry(0.7), entry(0.1)
    assert process.q_posterior(x0, xt, 1).mean.item() == pytest.approx(0.7)
    assert process.q_posterior(x0, xt, 1).stddev.item() == 0
    second = 0.2 * 0.1 / (1 - 0.9 * 0.8)
    for t in (1, torch.tensor([1])):
        assert process.p_reverse(x0, xt, t).variance.item() == pytest.approx(second)
    assert Gaussian(linear(1, 0.1, 0.1)).p_reverse(x0, xt, 1).variance.item() == pytest.approx(0.1)
    assert Gaussian(linear(3, 0.1, 0.3), "beta").p_reverse(x0, xt, 1).variance.item() == pytest.approx(0.1)


def test_a_predicted_variance_lies_between_the_two_fixed_ones() -> None:
    schedule = linear(4, 0.1, 0.4)
    process, t = Gaussian(schedule, "predicted"), torch.tensor([3])
    x0, xt = torch.tensor([[0.7, 0.2, 0.1]]).double(), torch.zeros(1, 3).double()
    variance = process.p_reverse(torch.cat([x0, torch.tensor([[-1.0, 0.0, 1.0]])], dim=1), xt, t).variance[0]
    small = Gaussian(schedule).p_reverse(x0, xt, t).variance[0, 0].item()
    large = Gaussian(schedule, "beta").p_reverse(x0, xt, t).variance[0, 0].item()
    assert variance.tolist() == pytest.approx([small, math.sqrt(small * large), large])


def test_the_prior_is_standard_normal() -> None:
    prior = Gaussian(linear(2)).prior((2, 3))
    assert prior.mean.shape == (2, 3)
    assert (prior.mean == 0).all()
    assert (prior.stddev == 1).all()


def test_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match="posterior, beta, predicted"):
        Gaussian(linear(2), "learned")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"x\.float"):
        Gaussian(linear(2)).check_data(torch.zeros(2, 3, dtype=torch.int64))
