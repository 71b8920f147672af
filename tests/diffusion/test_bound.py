"""The bound against exact likelihoods of tiny cases, its unbiased estimates, and gradients to a learned schedule."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from enumeration import CHAINS, TinyNet, all_bits, build, exact_bound, exact_log_likelihood, linear
from recfusion.core.errors import InputError
from recfusion.diffusion.binomial import Binomial, Prediction
from recfusion.diffusion.bound import Bound, bound_term, elbo, learned_elbo
from recfusion.diffusion.gaussian import Gaussian
from recfusion.diffusion.process import Denoiser, Normal
from recfusion.diffusion.schedule import LearnedSchedule, NoiseSchedule

SCHEDULE = linear(3, 0.2, 0.7)
DATA = torch.tensor([0.02, 0.2, 0.03, 0.25, 0.1, 0.05, 0.3, 0.05], dtype=torch.float64)  # p(x^0) of the 8 states


def optimal(process: Binomial) -> Denoiser:
    """Return the best x^0-prediction for DATA: the exact logits of p(x^0_i = 1 | x^t)."""
    states = all_bits(3)

    def denoiser(xt: Tensor, t: Tensor) -> Tensor:
        start = states.repeat(len(xt), 1)
        log_q = process.q_marginal(start, t.repeat_interleave(8)).log_prob(xt.repeat_interleave(8, 0)).sum(1)
        weight = torch.softmax(log_q.reshape(-1, 8) + DATA.log(), dim=1)
        return torch.logit(weight @ states, eps=1e-12)

    return denoiser


@pytest.mark.parametrize("predicts", ["x0", "previous"])
@pytest.mark.parametrize("chain", CHAINS)
def test_the_bound_never_falls_below_the_exact_likelihood(chain: str, predicts: Prediction) -> None:
    process = build(chain, SCHEDULE)
    process.predicts = predicts
    for seed in range(5):
        denoiser = TinyNet(3, seed)
        log_p = exact_log_likelihood(process, denoiser, 3)
        assert log_p.exp().sum().item() == pytest.approx(1, abs=1e-12)
        assert (exact_bound(process, denoiser, all_bits(3)) >= -log_p - 1e-10).all()


@pytest.mark.parametrize("chain", CHAINS)
def test_the_bound_is_nearly_tight_for_the_best_denoiser(chain: str) -> None:
    process = build(chain, linear(40, 0.02, 0.4))
    log_p = exact_log_likelihood(process, optimal(process), 3)
    slack = exact_bound(process, optimal(process), all_bits(3)) + log_p
    entropy = -(DATA * DATA.log()).sum()
    assert (slack >= -1e-10).all()
    assert (DATA * slack).sum() < 0.1 * entropy
    assert exact_bound(process, optimal(process), all_bits(3)) @ DATA < 1.15 * entropy


def test_with_one_entry_and_the_exact_reverse_the_bound_is_the_likelihood() -> None:
    process = Binomial.drift(SCHEDULE, 0.3)
    x0 = all_bits(1)

    def denoiser(xt: Tensor, t: Tensor) -> Tensor:
        one, zero = (process.q_marginal(torch.full_like(xt, value), t).log_prob(xt) for value in (1.0, 0.0))
        return one - zero + torch.logit(torch.tensor(0.3, dtype=torch.float64))

    expected = -torch.tensor([0.7, 0.3], dtype=torch.float64).log()
    assert torch.allclose(exact_bound(process, denoiser, x0), expected, atol=1e-12)


def estimates(bound: Callable[[Tensor], Bound], n: int = 20_000) -> Tensor:
    """Return n estimates of the bound of one example, as the rows of one batch."""
    return bound(torch.tensor([[1.0, 0.0, 1.0]], dtype=torch.float64).expand(n, 3)).total.detach()


@pytest.mark.parametrize("weights", [None, torch.tensor([3.0, 1.0, 2.0])], ids=["uniform", "weighted"])
@pytest.mark.parametrize("chain", ["paper_kernel", "thinning"])
def test_every_estimate_of_the_bound_is_unbiased(chain: str, weights: Tensor | None) -> None:
    process, denoiser = build(chain, SCHEDULE), TinyNet(3, 0)
    exact = exact_bound(process, denoiser, torch.tensor([[1.0, 0.0, 1.0]], dtype=torch.float64)).item()
    rng = torch.Generator().manual_seed(0)
    for sample in (
        estimates(lambda x0: elbo(process, denoiser, x0, rng)),
        estimates(lambda x0: elbo(process, denoiser, x0, rng, 1, weights)),
        estimates(lambda x0: elbo(process, denoiser, x0, rng, 4, weights)),
        estimates(lambda x0: learned_elbo(process, denoiser, x0, rng, 2, weights)),
    ):
        error = sample.std() / len(sample) ** 0.5
        assert abs(sample.mean().item() - exact) < 4 * error


def test_the_parts_of_a_sampled_bound_are_unbiased_each() -> None:
    process, denoiser, rng = Binomial.paper_kernel(SCHEDULE), TinyNet(3, 0), torch.Generator().manual_seed(0)
    x0 = torch.ones(20_000, 3, dtype=torch.float64)
    whole, sampled = elbo(process, denoiser, x0, rng), elbo(process, denoiser, x0, rng, 1)
    assert torch.equal(whole.L_T, sampled.L_T)
    for a, b in ((whole.L_0, sampled.L_0), (whole.L_steps, sampled.L_steps)):
        assert abs(a.mean() - b.mean()) < 4 * (a.var() + b.var()).sqrt() / len(x0) ** 0.5


def test_terms_of_mixed_steps_stay_with_their_examples() -> None:
    process, denoiser = Binomial.paper_kernel(SCHEDULE), TinyNet(3, 0)
    x0, xt, t = all_bits(3), all_bits(3).flip(0), torch.tensor([2, 1, 3, 1, 1, 2, 3, 1])
    together = bound_term(process, denoiser, x0, xt, t)
    alone = [bound_term(process, denoiser, x0[i : i + 1], xt[i : i + 1], t[i : i + 1]) for i in range(8)]
    assert torch.allclose(together, torch.cat(alone))


def test_the_gaussian_bound_of_gaussian_data_is_nearly_its_entropy() -> None:
    # x0 ~ N(0, s^2): the best prediction of x0 is linear, and the marginal likelihood is known.
    s, process = 0.5, Gaussian(linear(200, 1e-3, 0.08), "beta")
    x0 = s * torch.randn(400, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def denoiser(xt: Tensor, t: Tensor) -> Tensor:
        alpha_bar = process.schedule.alpha_bar(t)[:, None]
        return alpha_bar.sqrt() * s**2 / (alpha_bar * s**2 + 1 - alpha_bar) * xt

    bound = elbo(process, denoiser, x0, torch.Generator().manual_seed(1)).total.mean().item()
    exact = -Normal(torch.zeros_like(x0), torch.full_like(x0, s)).log_prob(x0).mean().item()
    assert exact < bound < exact + 0.05


def finite_differences(value: Callable[[], Tensor], w: Tensor, step: float = 1e-5) -> Tensor:
    gradient = torch.zeros_like(w)
    with torch.no_grad():
        for i in range(len(w)):
            w[i] += step
            above = value()
            w[i] -= 2 * step
            below = value()
            w[i] += step
            gradient[i] = (above - below) / (2 * step)
    return gradient


@pytest.mark.parametrize("make", [Binomial.paper_kernel, Binomial.thinning], ids=["paper kernel", "thinning"])
@pytest.mark.parametrize("t", ["all", 1])
def test_the_score_function_gradient_is_the_true_one(make: Callable[[NoiseSchedule], Binomial], t: str | int) -> None:
    schedule, denoiser = LearnedSchedule(SCHEDULE), TinyNet(3, 0)
    x0 = torch.tensor([[1.0, 0.0, 1.0]], dtype=torch.float64)
    exact = finite_differences(lambda: exact_bound(make(schedule), denoiser, x0).sum(), schedule.w.data)
    rng, samples = torch.Generator().manual_seed(0), []
    for _ in range(40):
        bound = learned_elbo(make(schedule), denoiser, x0.expand(500, 3), rng, t)  # type: ignore[arg-type]
        samples.append(torch.autograd.grad(bound.total.mean(), schedule.w)[0])
    gradient = torch.stack(samples)
    error = gradient.std(0) / len(samples) ** 0.5
    assert ((gradient.mean(0) - exact).abs() < 4 * error).all()
    assert (error < 0.2 * exact.abs().max()).all()


def test_without_the_score_term_the_gradient_would_be_wrong() -> None:
    schedule, denoiser, rng = LearnedSchedule(SCHEDULE), TinyNet(3, 0), torch.Generator().manual_seed(0)
    x0 = torch.tensor([[1.0, 0.0, 1.0]], dtype=torch.float64)
    exact = finite_differences(
        lambda: exact_bound(Binomial.paper_kernel(schedule), denoiser, x0).sum(), schedule.w.data
    )
    bound = elbo(Binomial.paper_kernel(schedule), denoiser, x0.expand(20_000, 3), rng)
    (naive,) = torch.autograd.grad(bound.total.mean(), schedule.w)
    assert ((naive - exact).abs() > 0.05 * exact.abs().max()).any()


def test_the_gaussian_gradient_flows_through_the_noise() -> None:
    schedule, denoiser = LearnedSchedule(linear(4, 0.1, 0.5)), TinyNet(3, 1)
    process, x0 = Gaussian(schedule), torch.randn(6, 3, generator=torch.Generator().manual_seed(2)).double()

    def bound() -> Tensor:
        return learned_elbo(process, denoiser, x0, torch.Generator().manual_seed(3)).total.mean()

    (gradient,) = torch.autograd.grad(bound(), schedule.w)
    assert torch.allclose(gradient, finite_differences(bound, schedule.w.data), rtol=1e-5, atol=1e-7)


def test_the_value_of_a_learned_bound_is_the_bound() -> None:
    process, denoiser, x0 = Binomial.thinning(LearnedSchedule(SCHEDULE)), TinyNet(3, 0), all_bits(3)
    learned = learned_elbo(process, denoiser, x0, torch.Generator().manual_seed(0), draws=3)
    plain = elbo(process, denoiser, x0.repeat_interleave(3, 0), torch.Generator().manual_seed(0))
    assert torch.allclose(learned.total, plain.total.reshape(8, 3).mean(1))


def test_bad_requests_are_refused() -> None:
    process, denoiser, x0 = Binomial.thinning(SCHEDULE), TinyNet(3, 0), all_bits(3)
    with pytest.raises(InputError, match="binary data"):
        elbo(process, denoiser, x0 + 0.5, None)
    with pytest.raises(InputError, match="at least 1 step"):
        elbo(process, denoiser, x0, None, 0)
    with pytest.raises(InputError, match="positive weights"):
        elbo(process, denoiser, x0, None, 1, torch.ones(2))
    with pytest.raises(InputError, match="draws >= 2"):
        learned_elbo(process, denoiser, x0, None, draws=1)
