"""The losses of the published research code, quirks included, so that its numbers can be reproduced.

They are no bounds. What they do: (1) the forward chain is simulated step by step, Z_0 = x^0, Z_1, ..., Z_T, and the
denoiser is called on each Z_t; (2) the reconstruction is scored from Z_1 alone; (3) the "ELBO" beside it compares
N(sqrt(1 - beta_t) Z_{t-1}, beta_t), a forward step, with N(Zhat_{t-1}, exp(beta_t)), where Zhat_{t-1} is the denoiser
at Z_t and beta_t stands where a log-variance belongs. Terms without parameters are left out.
"""
# ruff: noqa: N803  (Z is the published name of the chain)

import math

import torch
from torch import Tensor

from recfusion.diffusion.binomial import Binomial
from recfusion.diffusion.distributions import Normal, kl
from recfusion.diffusion.gaussian import Gaussian
from recfusion.diffusion.process import Denoiser, per_example, same_step
from recfusion.diffusion.sampling import forward_steps
from recfusion.diffusion.schedule import NoiseSchedule


def published_gaussian_loss(process: Gaussian, denoiser: Denoiser, x0: Tensor, rng: torch.Generator | None) -> Tensor:
    """-log N(x^0; xhat_0, 1) + sum_{t=2..T} KL(N(sqrt(1 - beta_t) Z_{t-1}, beta_t) || N(Zhat_{t-1}, exp(beta_t))).

    With variance="predicted" the denoiser's second half is the log-variance, in the place of beta_t. (batch,)
    """
    process.check_data(x0)
    Z = list(forward_steps(process, x0, rng))  # noqa: N806
    predictions = []
    for t in range(1, process.T + 1):
        out = denoiser(Z[t], same_step(t, x0))
        mean, log_variance = out.chunk(2, dim=-1) if process.variance == "predicted" else (out, None)
        predictions.append((mean, log_variance))
    x0_hat = predictions[0][0]
    reconstruction = -((x0 - x0_hat) ** 2 + math.log(2 * math.pi)) / 2
    return per_example(_step_terms(process.schedule, Z, predictions) - reconstruction)


def published_binomial_loss(
    process: Binomial,
    denoiser: Denoiser,
    x0: Tensor,
    rng: torch.Generator | None,
    *,
    schedule: NoiseSchedule,
    clamp: float = 1e-6,
) -> Tensor:
    """BCE with its arguments swapped, -[xhat_0 log x^0 + (1 - xhat_0) log(1 - x^0)], plus the Gaussian terms above.

    The logarithms of x^0 = 0 and x^0 = 1 are infinite, so as published (clamp = 0) the gradient is NaN after one step.
    `clamp` keeps x^0 within [clamp, 1 - clamp] inside them: the loss is then linear in xhat_0, and can be run.
    The denoiser returns logits; `schedule` gives the beta_t of the Gaussian terms. (batch,)
    """
    process.check_data(x0)
    Z = list(forward_steps(process, x0, rng))  # noqa: N806
    predictions: list[tuple[Tensor, Tensor | None]] = [
        (torch.sigmoid(denoiser(Z[t], same_step(t, x0))), None) for t in range(1, process.T + 1)
    ]
    x0_hat = predictions[0][0]
    target = x0.clamp(clamp, 1 - clamp)
    swapped = -(x0_hat * target.log() + (1 - x0_hat) * (1 - target).log())
    return per_example(swapped + _step_terms(schedule, Z, predictions))


def _step_terms(schedule: NoiseSchedule, Z: list[Tensor], predictions: list[tuple[Tensor, Tensor | None]]) -> Tensor:
    total = torch.zeros_like(Z[0])
    for t in range(2, schedule.T + 1):
        beta = schedule.beta(t).to(total.dtype)
        mean, log_variance = predictions[t - 1]
        spread = torch.exp((beta if log_variance is None else log_variance) / 2)
        total = total + kl(Normal((1 - beta).sqrt() * Z[t - 1], beta.sqrt()), Normal(mean, spread))
    return total
