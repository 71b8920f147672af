"""Counts by thinning against enumeration: every path of one entry, and every chain of two entries."""

import math
from itertools import product

import pytest
import torch
from torch import Tensor

from count_diffusion import Arrivals, CountThinning, Survivors
from recfusion.core.errors import InputError
from recfusion.diffusion import Binomial, ancestral, elbo, forward_steps, simple
from recfusion.diffusion.bound import bound_term
from recfusion.diffusion.process import kl, per_example, same_step

CURVE = (0.7, 0.4, 0.1)
PROCESS = CountThinning(CURVE, torch.tensor([1.5, 0.5], dtype=torch.float64))
MOST = 14  # counts beyond have a probability below 1e-9 in the tests


def numbers(*rows: tuple[float, ...]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def binomial(k: int, n: int, p: float) -> float:
    return math.comb(n, k) * p**k * (1 - p) ** (n - k) if 0 <= k <= n else 0.0


def paths(x0: int) -> dict[tuple[int, ...], float]:
    """Return every path x^1, x^2, x^3 of one entry with its probability."""
    keep = [CURVE[0], CURVE[1] / CURVE[0], CURVE[2] / CURVE[1]]
    return {
        (a, b, c): binomial(a, x0, keep[0]) * binomial(b, a, keep[1]) * binomial(c, b, keep[2])
        for a, b, c in product(range(x0 + 1), repeat=3)
    }


@pytest.mark.parametrize("t", [1, 2, 3])
def test_marginals_and_posteriors_are_those_of_all_paths(t: int) -> None:
    x0 = 3
    for xt in range(x0 + 1):
        through = {path: p for path, p in paths(x0).items() if path[t - 1] == xt}
        total = sum(through.values())
        assert float(PROCESS.q_marginal(numbers((x0,)), t).log_prob(numbers((xt,))).exp()) == pytest.approx(total)
        for before in range(x0 + 1):
            share = sum(p for path, p in through.items() if (x0, *path)[t - 1] == before) / total
            found = PROCESS.q_posterior(numbers((x0,)), numbers((xt,)), t).log_prob(numbers((before,))).exp()
            assert float(found) == pytest.approx(share, abs=1e-12)


def test_zeros_and_ones_are_option_c() -> None:
    bits, x0 = Binomial.thinning_from_survival(CURVE), numbers((1.0, 0.0))
    for t in (1, 2, 3):
        assert PROCESS.q_marginal(x0, t).mean[0].tolist() == pytest.approx(bits.q_marginal(x0, t).mean[0].tolist())
        zero = numbers((0.0, 0.0))
        assert PROCESS.q_posterior(x0, zero, t).mean[0].tolist() == pytest.approx(
            bits.q_posterior(x0, zero, t).mean[0].tolist()
        )


def test_the_divergence_is_the_sum_over_all_counts() -> None:
    q, p = (
        Survivors(numbers((1, 0)), numbers((3, 2)), numbers((0.3, 0.6))),
        Arrivals(numbers((1, 0)), numbers((0.2, -1))),
    )
    wanted = []
    for entry, (n, s, rate) in enumerate(((3, 0.3, math.exp(0.2)), (2, 0.6, math.exp(-1)))):
        terms = []
        for j in range(n + 1):
            poisson = math.exp(-rate) * rate**j / math.factorial(j)
            terms.append(binomial(j, n, s) * math.log(binomial(j, n, s) / poisson))
        wanted.append(sum(terms))
        assert float(kl(q, p)[0, entry]) == pytest.approx(wanted[-1])


def denoiser(xt: Tensor, t: Tensor) -> Tensor:
    """Return log rates that depend on both entries and on t."""
    return torch.stack([0.3 * xt[:, 1] - 0.2 * t, 0.5 - 0.4 * xt[:, 0].clamp(max=3)], dim=1)


def enumerated_likelihood(x0: Tensor) -> float:
    """Return log p(x^0) by summing over all chains of two entries with counts up to MOST."""
    states = torch.tensor(list(product(range(MOST + 1), repeat=2)), dtype=torch.float64)
    density = PROCESS.prior(states.shape, torch.float64).log_prob(states).sum(1).exp()
    for t in (3, 2, 1):
        steps = same_step(t, states)
        reverse = PROCESS.p_reverse(denoiser(states, steps), states, steps)
        more = states[None] - states[:, None]  # (from, to, 2)
        rate = reverse.log_rate.exp()[:, None]
        log_p = more * reverse.log_rate[:, None] - rate - torch.lgamma(more.clamp(min=0) + 1)
        density = density @ torch.where((more >= 0).all(2), log_p.sum(2).exp(), 0)
    assert float(density.sum()) == pytest.approx(1, abs=1e-3)
    return float(density[(states == x0).all(1)].log())


@pytest.mark.parametrize("counts", [(0.0, 0.0), (2.0, 1.0), (3.0, 0.0)])
def test_the_bound_is_that_of_all_chains_and_above_the_likelihood(counts: tuple[float, float]) -> None:
    x0 = numbers(counts)
    exact = float(per_example(kl(PROCESS.q_marginal(x0, 3), PROCESS.prior(x0.shape, torch.float64))))
    for t in (1, 2, 3):
        for state in product(*(range(int(count) + 1) for count in counts)):
            xt = numbers(tuple(float(value) for value in state))
            weight = float(PROCESS.q_marginal(x0, t).log_prob(xt).sum().exp())
            exact += weight * float(bound_term(PROCESS, denoiser, x0, xt, same_step(t, xt)))
    assert exact >= -enumerated_likelihood(x0) - 1e-6
    many = x0.expand(4000, 2)
    estimate = elbo(PROCESS, denoiser, many, torch.Generator().manual_seed(0)).total
    assert float(estimate.mean()) == pytest.approx(exact, abs=4 * float(estimate.std()) / 4000**0.5 + 1e-9)


def test_samples_have_the_mean_of_the_process() -> None:
    rng = torch.Generator().manual_seed(0)
    x0 = numbers((4.0, 2.0)).expand(5000, 2)
    *_, last = forward_steps(PROCESS, x0, rng)
    assert last.mean(0).tolist() == pytest.approx([0.4, 0.2], abs=0.05)
    # A constant rate of one removed event: the prior's mean plus rho_3 + rho_2 + rho_1.
    sample = ancestral(PROCESS, lambda xt, t: torch.zeros_like(xt), (5000, 2), rng)
    wanted = 0.1 * torch.tensor([1.5, 0.5]) + (0.3 / 0.9 + 0.3 / 0.6 + 1)
    assert sample.mean(0).tolist() == pytest.approx(wanted.tolist(), abs=0.08)


def test_what_is_no_count_and_what_has_no_mean_is_refused() -> None:
    for wrong in (-1.0, 0.5):
        with pytest.raises(InputError, match="Expected counts"):
            elbo(PROCESS, denoiser, numbers((wrong, 0.0)), None)
    with pytest.raises(InputError, match="mean counts above 0"):
        CountThinning(CURVE, 0.0)
    with pytest.raises(InputError, match="decreasing survival curve"):
        CountThinning((0.4, 0.7))
    with pytest.raises(InputError, match="use elbo"):
        simple(PROCESS, denoiser, numbers((1.0, 0.0)), None)
