"""The variational bound -log p(x^0) <= L_T + sum_t L_{t-1} + L_0 (eq. 4), for every process and schedule."""
# ruff: noqa: N803, N806  (L_T and T are the paper's names)

from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from recfusion.core.errors import InputError
from recfusion.diffusion.process import Denoiser, Process, Rng, kl, per_example, same_step

WhichSteps: TypeAlias = Literal["all"] | int


@dataclass(frozen=True)
class Bound:
    """An upper bound of -log p(x^0) in nats, in three parts with one value per example, (batch,)."""

    L_T: Tensor
    """KL(q(x^T | x^0) || p(x^T)): the cost of the prior."""
    L_steps: Tensor
    """sum over t = 2..T of L_{t-1} = KL(q(x^{t-1} | x^t, x^0) || p_theta(x^{t-1} | x^t))."""
    L_0: Tensor
    """-log p_theta(x^0 | x^1). (The paper swaps x^0 and x^1 here and drops the sign: erratum 2.)"""

    @property
    def total(self) -> Tensor:
        return self.L_T + self.L_steps + self.L_0


def elbo(
    process: Process, denoiser: Denoiser, x0: Tensor, rng: Rng, t: WhichSteps = "all", weights: Tensor | None = None
) -> Bound:
    """Return an unbiased estimate of the bound of -log p(x^0).

    t = "all": every step with one draw of x^t each, T calls of the denoiser. t = n: n steps drawn per example with
    probabilities proportional to `weights` (T,) (default: uniform), each term divided by its probability, n calls. For
    a reparametrised process a learned schedule gets a gradient too; for others see `learned_elbo`.
    """
    return _estimate(process, denoiser, x0, rng, t, weights, draws=1)


def learned_elbo(
    process: Process,
    denoiser: Denoiser,
    x0: Tensor,
    rng: Rng,
    t: WhichSteps = "all",
    weights: Tensor | None = None,
    draws: int = 2,
) -> Bound:
    """Return an estimate of the bound with an unbiased gradient for both the denoiser and a learned schedule.

    For a reparametrised (Gaussian) process this is `elbo`. The binomial process draws zeros and ones, through which no
    gradient flows, so the missing part is estimated by the score function (REINFORCE) with the mean of the other draws
    as baseline: for each x^0 and t, `draws` >= 2 independent x^t_k give

        mean_k [ f_k + (f_k - mean_{j != k} f_j) grad log q(x^t_k | x^0) ],   f_k the bound's term at x^t_k.

    A baseline that does not depend on x^t_k has expectation zero against the score, so the mean is the true gradient of
    the bound. A straight-through or relaxed (Gumbel) gradient would have less variance but the wrong mean. The returned
    value is the bound; the score term changes only the gradient.
    """
    if process.reparametrised:
        return elbo(process, denoiser, x0, rng, t, weights)
    if draws < 2:
        raise InputError(f"Expected at least 2 draws for a leave-one-out baseline, got {draws}: choose draws >= 2.")
    return _estimate(process, denoiser, x0, rng, t, weights, draws)


def bound_term(process: Process, denoiser: Denoiser, x0: Tensor, xt: Tensor, t: Tensor) -> Tensor:
    """L_{t-1} at a given x^t where t > 1, L_0 where t = 1; (batch,)."""
    return _term(process, denoiser(xt, t), x0, xt, t)


def _drawn_term(process: Process, denoiser: Denoiser, x0: Tensor, t: Tensor, rng: Rng, draws: int) -> Tensor:
    """The bound's term at x^t ~ q(x^t | x^0), (batch,): for one draw, or a mean with the score function."""
    if draws == 1:
        return bound_term(process, denoiser, x0, process.q_sample(x0, t, rng), t)
    x0 = x0.repeat_interleave(draws, dim=0)  # (batch * draws, ...)
    t = t.repeat_interleave(draws)
    xt = process.q_sample(x0, t, rng)
    term = bound_term(process, denoiser, x0, xt, t).reshape(-1, draws)
    log_q = per_example(process.q_marginal(x0, t).log_prob(xt)).reshape(-1, draws)
    others = (term.sum(1, keepdim=True) - term) / (draws - 1)
    gradient_only = (term - others).detach() * (log_q - log_q.detach())
    return (term + gradient_only).mean(1)


def draw_steps(n: int, T: int, rng: Rng, device: torch.device) -> Tensor:
    """Draw n steps t uniformly from 1..T."""
    return torch.randint(1, T + 1, (n,), generator=rng, device=device)


def _estimate(
    process: Process, denoiser: Denoiser, x0: Tensor, rng: Rng, t: WhichSteps, weights: Tensor | None, draws: int
) -> Bound:
    process.check_data(x0)
    prior = process.prior(x0.shape, x0.dtype, x0.device)
    L_T = per_example(kl(process.q_marginal(x0, process.T), prior))
    if t == "all":
        every = (same_step(step, x0) for step in range(1, process.T + 1))
        L_0, *later = (_drawn_term(process, denoiser, x0, steps, rng, draws) for steps in every)
        return Bound(L_T, sum(later, torch.zeros_like(L_0)), L_0)
    if t < 1:
        raise InputError(f"Expected t = 'all' or at least 1 step for each example, got {t}: choose t >= 1.")
    L_steps, L_0 = torch.zeros_like(L_T), torch.zeros_like(L_T)
    for _ in range(t):
        steps, probability = _choose_steps(len(x0), process.T, weights, rng, x0.device)
        value = _drawn_term(process, denoiser, x0, steps, rng, draws) / (probability.to(x0.dtype) * t)
        L_0 = L_0 + torch.where(steps == 1, value, 0)
        L_steps = L_steps + torch.where(steps == 1, 0, value)
    return Bound(L_T, L_steps, L_0)


def _term(process: Process, out: Tensor, x0: Tensor, xt: Tensor, t: Tensor) -> Tensor:
    first = t == 1
    if bool(first.all()):
        return -per_example(process.p_reverse(out, xt, t).log_prob(x0))
    if not bool(first.any()):
        return per_example(kl(process.q_posterior(x0, xt, t), process.p_reverse(out, xt, t)))
    groups = [first.nonzero()[:, 0], (~first).nonzero()[:, 0]]
    terms = [_term(process, out[rows], x0[rows], xt[rows], t[rows]) for rows in groups]
    return torch.cat(terms)[torch.argsort(torch.cat(groups))]


def _choose_steps(n: int, T: int, weights: Tensor | None, rng: Rng, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return steps (n,) and their probabilities (n,)."""
    if weights is None:
        return draw_steps(n, T, rng, device), torch.full((n,), 1 / T, device=device)
    if weights.shape != (T,) or not bool((weights > 0).all()):
        raise InputError(f"Expected T = {T} positive weights, got shape {tuple(weights.shape)}: give one per step.")
    probability = (weights / weights.sum()).to(device)
    index = torch.multinomial(probability, n, replacement=True, generator=rng)
    return index + 1, probability[index]
