"""Conditional sampling by sequential Monte Carlo, exact in the limit of many particles."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from recfusion.core.errors import InputError
from recfusion.diffusion.process import Denoiser, Process, Rng, per_example, same_step
from recfusion.diffusion.sampling import check_mask


@dataclass(frozen=True)
class _Known:
    """The known entries, repeated for all particles of all examples."""

    values: Tensor  # (examples * particles, ...)
    mask: Tensor

    def log(self, entries: Tensor) -> Tensor:
        """Return the sum of log densities over the known entries, (examples * particles,)."""
        return per_example(torch.where(self.mask, entries, 0))


def condition(
    process: Process, denoiser: Denoiser, known: Tensor, mask: Tensor, rng: Rng, particles: int = 64
) -> Tensor:
    """Sample p_theta(x^0 | its entries where mask is true), (examples, ...); exact for infinitely many particles.

    Sequential Monte Carlo with twisted weights (Wu et al., 2023). Every example has `particles` particles. Unknown
    entries move by p_theta(x^{t-1} | x^t); the known entries y by q(x^{t-1} | x^t, y), which leads to y, corrected by
    the weight p_theta / q. The twist psi_t(x^t) = p_theta(y | x^t), the denoiser's probability of y, finds bad
    particles early: weights are multiplied by psi_{t-1} / psi_t. The last step uses the true p_theta(y | x^1), so the
    limit is exact for any psi. Particles are resampled if their effective number falls below half. The cost is
    `particles` times that of an ancestral sample; `inpaint` is cheaper and approximate.
    """
    check_mask(known, mask)
    if particles < 1:
        raise InputError(f"Expected at least one particle, got {particles}: choose 64, for example.")
    given = _Known(known.repeat_interleave(particles, 0), mask.repeat_interleave(particles, 0))
    with torch.no_grad():
        x, log_weight = _start(process, given, rng)
        twist = torch.zeros_like(log_weight)
        for t in range(process.T, 0, -1):
            steps = same_step(t, x)
            out = denoiser(x, steps)
            psi = given.log(-process.x0_error(out, given.values))
            rows, log_weight = _resampled(log_weight + psi - twist, particles, rng)
            x, out, twist = x[rows], out[rows], psi[rows]
            reverse = process.p_reverse(out, x, steps)
            if t == 1:
                final = log_weight - twist + given.log(reverse.log_prob(given.values))
                x = torch.where(given.mask, given.values, reverse.draw(rng))
                return x[_one_each(final, particles, rng)]
            towards = process.q_posterior(given.values, x, steps)
            x = torch.where(given.mask, towards.draw(rng), reverse.draw(rng))
            log_weight = log_weight + given.log(reverse.log_prob(x) - towards.log_prob(x))
    raise AssertionError("a process has at least one step")


def _start(process: Process, given: _Known, rng: Rng) -> tuple[Tensor, Tensor]:
    """Return x^T, with known entries from q(x^T | y) and the others from the prior, and the importance weights."""
    y = given.values
    prior, towards = process.prior(y.shape, y.dtype, y.device), process.q_marginal(y, process.T)
    x = torch.where(given.mask, towards.draw(rng), prior.draw(rng))
    return x, given.log(prior.log_prob(x) - towards.log_prob(x))


def _resampled(log_weight: Tensor, particles: int, rng: Rng) -> tuple[Tensor, Tensor]:
    """Resample the particles of each example by weight, if few of them have most of it; return rows and weights."""
    weights = torch.softmax(log_weight.reshape(-1, particles).double(), dim=1)  # (examples, particles)
    poor = 1 / weights.square().sum(1) < particles / 2
    # Systematic resampling: one uniform number per example, and evenly spaced marks.
    uniform = torch.rand(len(weights), 1, generator=rng, dtype=weights.dtype, device=weights.device)
    marks = (torch.arange(particles, device=weights.device) + uniform) / particles
    drawn = torch.searchsorted(weights.cumsum(1), marks).clamp(max=particles - 1)
    stay = torch.arange(particles, device=weights.device).expand_as(drawn)
    first = torch.arange(len(weights), device=weights.device)[:, None] * particles
    rows = (first + torch.where(poor[:, None], drawn, stay)).flatten()
    even = torch.full_like(log_weight, -math.log(particles))
    return rows, torch.where(poor.repeat_interleave(particles), even, log_weight)


def _one_each(log_weight: Tensor, particles: int, rng: Rng) -> Tensor:
    """Return the row of one particle per example, drawn by weight."""
    weights = torch.softmax(log_weight.reshape(-1, particles), dim=1)
    drawn = torch.multinomial(weights, 1, generator=rng)[:, 0]
    return torch.arange(len(weights), device=weights.device) * particles + drawn
