"""The losses of the published research code, quirks included, so that its numbers can be reproduced.

They are no bounds. What they do: (1) the forward chain is simulated step by step, Z_0 = x^0, Z_1, ..., Z_T, and the
denoiser is called on each Z_t; (2) the reconstruction is scored from Z_1 alone; (3) the "ELBO" beside it compares
N(sqrt(1 - beta_t) Z_{t-1}, beta_t), a forward step, with N(Zhat_{t-1}, exp(beta_t)), where Zhat_{t-1} is the denoiser
at Z_t and beta_t stands where a log-variance belongs. Terms without parameters are left out.
"""
# ruff: noqa: N803  (Z is the published name of the chain)

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from recfusion.diffusion.distributions import Normal, Rng, kl
from recfusion.diffusion.process import Denoiser, Process, per_example, same_step
from recfusion.diffusion.sampling import forward_steps
from recfusion.diffusion.schedule import NoiseSchedule


def published_gaussian_loss(
    process: Process, denoiser: Denoiser, x0: Tensor, rng: Rng, *, schedule: NoiseSchedule
) -> Tensor:
    """-log N(x^0; xhat_0, 1) + sum_{t=2..T} KL(N(sqrt(1 - beta_t) Z_{t-1}, beta_t) || N(Zhat_{t-1}, exp(beta_t))).

    Where the denoiser's output is twice as wide, its second half is the log-variance, in the place of beta_t. (batch,)
    """
    Z, outputs = _simulated(process, denoiser, x0, rng)  # noqa: N806
    D = x0.shape[-1]  # noqa: N806
    predictions = [(out[..., :D], out[..., D:] if out.shape[-1] > D else None) for out in outputs]
    reconstruction = -((x0 - predictions[0][0]) ** 2 + math.log(2 * math.pi)) / 2
    return per_example(_step_terms(schedule, Z, predictions) - reconstruction)


def published_binomial_loss(
    process: Process,
    denoiser: Denoiser,
    x0: Tensor,
    rng: Rng,
    *,
    schedule: NoiseSchedule,
    clamp: float = 1e-6,
) -> Tensor:
    """BCE with its arguments swapped, -[xhat_0 log x^0 + (1 - xhat_0) log(1 - x^0)], plus the Gaussian terms above.

    The logarithms of x^0 = 0 and x^0 = 1 are infinite, so as published (clamp = 0) the gradient is NaN after one step.
    `clamp` keeps x^0 within [clamp, 1 - clamp] inside them: the loss is then linear in xhat_0, and can be run.
    The denoiser returns logits; `schedule` gives the beta_t of the Gaussian terms. (batch,)
    """
    Z, outputs = _simulated(process, denoiser, x0, rng)  # noqa: N806
    means = [torch.sigmoid(out) for out in outputs]
    target = x0.clamp(clamp, 1 - clamp)
    swapped = -(means[0] * target.log() + (1 - means[0]) * (1 - target).log())
    return per_example(swapped + _step_terms(schedule, Z, [(mean, None) for mean in means]))


def _simulated(process: Process, denoiser: Denoiser, x0: Tensor, rng: Rng) -> tuple[list[Tensor], list[Tensor]]:
    """Return Z_0, ..., Z_T and the denoiser's outputs at Z_1, ..., Z_T."""
    process.check_data(x0)
    Z = list(forward_steps(process, x0, rng))  # noqa: N806
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
