"""Inpainting as the recommender: the history is clamped, and reverse steps from the prior fill in the other items.

`condition` samples with some entries known by sequential Monte Carlo, exact in the limit of many particles.

recfusion run studies/results/inpainting-ml100k.toml --out studies/results/inpainting-ml100k.jsonl --workers 0
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from recfusion.core.arrays import Csr, FloatArray
from recfusion.core.errors import InputError
from recfusion.diffusion import Denoiser, Process, ProcessName, Rng, ScheduleName, inpaint_steps
from recfusion.diffusion.process import Entries, per_example, same_step
from recfusion.diffusion.sampling import check_mask
from recfusion.models.neural import training_settings as training
from recfusion.models.recfusion.recfusion import Objective, RecFusion
from recfusion.models.settings import learned, setting
from recfusion.nets.mlp import TimeWay
from recfusion.training.batches import dense

_TIE = 1e-4  # weight of the single step, which orders items of equal probability


@dataclass
class Inpainting(RecFusion):
    """RecFusion trained on its bound; an item's score is its probability in x^0, given that the history is in x^0.

    `fill`: "replace" puts the history into every state of an ancestral sample (an approximation), "condition" uses
    particles, which are exact in the limit. Both average the probabilities of the last step. "one-step" is the paper's
    ranking, with the history as x^1. A user's samples depend on the history alone.
    """

    process: ProcessName = setting("thinning", "forward process")
    objective: Objective = setting("elbo", "training loss")
    time: TimeWay = setting("input", "time embedding of the mlp")
    T: int = setting(6, "diffusion steps", at_least=1, at_most=10_000)
    schedule: ScheduleName = setting("linear", "schedule of the noise rates")
    beta_low: float = setting(0.1, "smallest noise rate", at_least=0)
    beta_high: float = setting(0.5, "largest noise rate", at_least=0)
    lr: float = training.lr(3e-3)
    weight_decay: float = training.weight_decay(0.5)
    batch_size: int = training.batch_size(25)
    max_epochs: int = training.max_epochs(40)
    fill: Literal["one-step", "replace", "condition"] = setting("condition", "how the other items are filled in")
    samples: int = setting(32, "samples of each user", at_least=1)
    particles: int = setting(16, "particles of each sample", at_least=1)
    means_: FloatArray = learned()  # (items,): smoothed shares of users, for the prior

    def prepare(self, train: Csr) -> None:
        super().prepare(train)
        self.means_ = self.means.numpy().astype(np.float32)

    def _validation_ndcg(self, train: Csr, valid: object) -> float:
        """Judge epochs by the single step: samples for every epoch would take longer than the training."""
        fill, self.fill = self.fill, "one-step"
        try:
            return super()._validation_ndcg(train, valid)  # type: ignore[arg-type]
        finally:
            self.fill = fill

    def scores(self, history: Csr) -> Tensor:
        single = super().scores(history)
        if self.fill == "one-step" or not history.shape[0]:
            return single
        rows = dense(history, self.device)
        return torch.stack([self.filled(row) for row in rows]) + _TIE * torch.sigmoid(single)

    def filled(self, row: Tensor) -> Tensor:
        """Return the estimated probability of each item, given the ones of `row`, (items,)."""
        process = self.make_process(torch.from_numpy(self.means_).double())
        rng = torch.Generator().manual_seed(int(row.nonzero().sum()) + 1_000_003 * int(row.sum()))
        known = row.expand(self.samples, -1)
        if self.fill == "condition":
            return conditional_mean(process, self.net_, known, known > 0, rng, self.particles).mean(0)
        *_, last = inpaint_steps(process, self.net_, known, known > 0, rng)
        return last.mean.mean(0)


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
    given, reverse, log_weight = _last_step(process, denoiser, known, mask, rng, particles)
    x = torch.where(given.mask, given.values, reverse.draw(rng))
    return x[_one_each(log_weight, particles, rng)]


def conditional_mean(
    process: Process, denoiser: Denoiser, known: Tensor, mask: Tensor, rng: Rng, particles: int = 64
) -> Tensor:
    """Estimate E[x^0 | its entries where mask is true], (examples, ...), from the particles of `condition`.

    The last step is not drawn: its means are averaged by weight, which has the same limit and less noise.
    """
    given, reverse, log_weight = _last_step(process, denoiser, known, mask, rng, particles)
    weights = torch.softmax(log_weight.reshape(-1, particles), dim=1)  # (examples, particles)
    means = torch.where(given.mask, given.values, reverse.mean).reshape(*weights.shape, *known.shape[1:])
    return torch.einsum("ep,ep...->e...", weights, means)


def _last_step(
    process: Process, denoiser: Denoiser, known: Tensor, mask: Tensor, rng: Rng, particles: int
) -> tuple["_Known", Entries, Tensor]:
    """Return the known entries, p_theta(x^0 | x^1) of every particle, and the particles' log weights."""
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
                return given, reverse, log_weight - twist + given.log(reverse.log_prob(given.values))
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
