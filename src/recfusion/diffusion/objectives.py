"""Training objectives other than the bound: x^0-prediction, the paper's BCE-ELBO, and the removed-items likelihood.

Each takes (process, denoiser, x0, rng) and returns one value per example, (batch,). The cost of objectives that draw t
does not depend on T. The `published_` losses are those of the research code, including its errors, to reproduce its
numbers. They are not bounds: (1) the forward chain is simulated step by step, Z_0 = x^0, Z_1, ..., Z_T, and the
denoiser is called on each Z_t; (2) the reconstruction is scored from Z_1 only; (3) the other "ELBO" terms compare
N(sqrt(1 - beta_t) Z_{t-1}, beta_t), a forward step, with N(Zhat_{t-1}, exp(beta_t)), where Zhat_{t-1} is the denoiser
at Z_t and beta_t stands where a log-variance belongs. Terms without parameters are omitted.
"""
# ruff: noqa: N803, N806  (Z is the published name of the chain, D the paper's of a row's length)

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from recfusion.core.errors import InputError
from recfusion.diffusion.bound import Bound, WhichSteps, draw_steps, elbo
from recfusion.diffusion.process import Denoiser, HasSurvival, Normal, Process, Rng, kl, per_example, same_step
from recfusion.diffusion.sampling import forward_steps
from recfusion.diffusion.schedule import NoiseSchedule


def simple(process: Process, denoiser: Denoiser, x0: Tensor, rng: Rng) -> Tensor:
    """The error of the predicted x^0 at one uniform t: squared (Gaussian) or binary cross-entropy (binomial).

    L_simple of Ho et al. (2020, eq. 14) for a denoiser that predicts x^0: the bound's terms with equal weights.
    """
    process.check_data(x0)
    t = draw_steps(len(x0), process.T, rng, x0.device)
    return per_example(process.x0_error(denoiser(process.q_sample(x0, t, rng), t), x0))


def bce_elbo(process: Process, denoiser: Denoiser, x0: Tensor, rng: Rng, t: WhichSteps = "all") -> Bound:
    """The paper's BCE-ELBO (eqs. 4 and 8) in the meaning of its text.

    The denoiser's sigmoid is pi_theta = p(x^{t-1} = 1 | x^t), L_{t-1} is the KL between Bernoullis, and L_0 is the
    binary cross-entropy -[x^0 log pi + (1 - x^0) log(1 - pi)]. This is the exact bound; only the
    parametrisation is checked.
    """
    found = getattr(process, "predicts", None)
    if found != "previous":
        raise InputError(f"Expected a process with predicts='previous' for the BCE-ELBO, got {found!r}: set it.")
    return elbo(process, denoiser, x0, rng, t)


def removed(process: Process, denoiser: Denoiser, x0: Tensor, rng: Rng, weighted: bool = True) -> Tensor:
    """Multinomial cross-entropy of the entries that thinning removed, at one uniform t.

    `weighted` multiplies it by T rho_t, rho_t = (a_{t-1} - a_t)/(1 - a_t), so that its mean over t is the ranking part
    of the thinning bound, sum_t rho_t CE_t. If a_t decreases linearly to 0, T rho_t = 1/(1 - a_t).
    """
    process.check_data(x0)
    t = draw_steps(len(x0), process.T, rng, x0.device)
    xt = process.q_sample(x0, t, rng)
    if bool((xt > x0).any()):
        raise InputError("Expected a process that only removes ones, got new ones in x^t: use thinning, or the bound.")
    return multinomial_removed(denoiser(xt, t), x0, xt, removal_weight(process, t) if weighted else 1.0)


def multinomial_removed(logits: Tensor, x0: Tensor, xt: Tensor, weight: Tensor | float = 1.0) -> Tensor:
    """-sum over removed entries (x^0 = 1, x^t = 0) of log softmax(logits over entries with x^t = 0), times weight.

    The ranking part of thinning's continuous-time bound: with xhat_0 = s softmax(logits) over the entries with
    x^t = 0, the step's KL tends to rho [x^0 log(x^0/xhat_0) - x^0 + xhat_0]. This is the part with the softmax;
    `weight` is then 1/(1 - a), (batch,) or a number. It is MultVAE's likelihood, restricted to the removed entries.
    logits, x0, xt: (batch, D) -> (batch,). An example without removed entries has the loss 0.
    """
    gone = x0 * (1 - xt)
    open_logits = logits.masked_fill(xt > 0.5, torch.finfo(logits.dtype).min)  # finite: 0 * -inf would be NaN
    return weight * (gone.sum(1) * open_logits.logsumexp(1) - (gone * logits).sum(1))


def removal_weight(process: Process, t: Tensor) -> Tensor:
    """T rho_t, rho_t = (a_{t-1} - a_t)/(1 - a_t): T times the share of removed ones that step t removed; (batch,)."""
    if not isinstance(process, HasSurvival):
        got = f"{type(process).__name__} without it"
        raise InputError(f"Expected a process with survival(t) = q(x^t = 1 | x^0 = 1), got {got}: use weighted=False.")
    before, now = process.survival(t - 1), process.survival(t)
    return (process.T * (before - now) / (1 - now)).float()


def published_gaussian_loss(
    process: Process, denoiser: Denoiser, x0: Tensor, rng: Rng, *, schedule: NoiseSchedule
) -> Tensor:
    """-log N(x^0; xhat_0, 1) + sum_{t=2..T} KL(N(sqrt(1 - beta_t) Z_{t-1}, beta_t) || N(Zhat_{t-1}, exp(beta_t))).

    If the denoiser's output is twice as wide, its second half is the log-variance instead of beta_t. (batch,)
    """
    Z, outputs = _simulated(process, denoiser, x0, rng)
    D = x0.shape[-1]
    predictions = [(out[..., :D], out[..., D:] if out.shape[-1] > D else None) for out in outputs]
    reconstruction = -((x0 - predictions[0][0]) ** 2 + math.log(2 * math.pi)) / 2
    return per_example(_step_terms(schedule, Z, predictions) - reconstruction)


def published_binomial_loss(
    process: Process, denoiser: Denoiser, x0: Tensor, rng: Rng, *, schedule: NoiseSchedule, clamp: float = 1e-6
) -> Tensor:
    """BCE with its arguments swapped, -[xhat_0 log x^0 + (1 - xhat_0) log(1 - x^0)], plus the Gaussian terms above.

    The logarithms of x^0 = 0 and x^0 = 1 are infinite, so as published (clamp = 0) the gradient is NaN after one step.
    `clamp` keeps x^0 within [clamp, 1 - clamp] inside them: the loss is then linear in xhat_0 and finite.
    The denoiser returns logits; `schedule` gives the beta_t of the Gaussian terms. (batch,)
    """
    Z, outputs = _simulated(process, denoiser, x0, rng)
    means = [torch.sigmoid(out) for out in outputs]
    target = x0.clamp(clamp, 1 - clamp)
    swapped = -(means[0] * target.log() + (1 - means[0]) * (1 - target).log())
    return per_example(swapped + _step_terms(schedule, Z, [(mean, None) for mean in means]))


def _simulated(process: Process, denoiser: Denoiser, x0: Tensor, rng: Rng) -> tuple[list[Tensor], list[Tensor]]:
    """Return Z_0, ..., Z_T and the denoiser's outputs at Z_1, ..., Z_T."""
    process.check_data(x0)
    Z = list(forward_steps(process, x0, rng))
    return Z, [denoiser(z, same_step(t, x0)) for t, z in enumerate(Z[1:], start=1)]


def _step_terms(
    schedule: NoiseSchedule, Z: list[Tensor], predictions: Sequence[tuple[Tensor, Tensor | None]]
) -> Tensor:
    total = torch.zeros_like(Z[0])
    for t in range(2, schedule.T + 1):
        beta = schedule.beta(t).to(total.dtype)
        mean, log_variance = predictions[t - 1]
        spread = torch.exp((beta if log_variance is None else log_variance) / 2)
        total = total + kl(Normal((1 - beta).sqrt() * Z[t - 1], beta.sqrt()), Normal(mean, spread))
    return total
