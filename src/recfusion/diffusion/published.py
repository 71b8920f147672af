"""The losses of the paper's research code, term by term, to reproduce its numbers. They are not bounds.

The forward chain is simulated: Z_t has been noised t times, and o_t is the denoiser at Z_t. R = log N(x^0; o_1, 1) is
the reconstruction, and S(o, beta) = log N(o; sqrt(1 - beta) o, beta) - log N(o; 0, 1) only shrinks o. Logarithms are
summed over items. The research code counts steps from 0; here t runs 1..T.
"""
# ruff: noqa: N806  (Z is the published name of the chain, K that of its penalty)

import math

import torch
from torch import Tensor

from recfusion.diffusion.process import Denoiser, Normal, Process, Rng, kl, same_step
from recfusion.diffusion.sampling import forward_steps
from recfusion.diffusion.schedule import NoiseSchedule

_LOG_ZERO = -100.0  # log 0 in torch's binary cross-entropy


def published_loss(
    process: Process,
    denoiser: Denoiser,
    x0: Tensor,
    rng: Rng,
    *,
    schedule: NoiseSchedule,
    shrinks: bool,
    binary: bool = False,
) -> Tensor:
    """K - R for each example, (batch,); a picture of users has the mean over its rows.

    RecFusion: K = S(o_T, beta_1) + sum over all t of [log N(Z_t; sqrt(1 - beta_t) Z_t, beta_t) - log N(Z_t; o_t,
    exp(beta_t))], so each output is pulled to its own input, with beta_t in place of a log-variance. If the output is
    twice as wide (Var), its second half is that log-variance, and S is taken of Z_T.
    `shrinks` (T and the U-Nets): K = S(o_T, beta_1) + sum over t = 2..T-1 of S(o_t, beta_t).
    `binary` (Bin): the denoiser returns logits, o is their sigmoid, and -R is the binary cross-entropy with its
    arguments swapped, -[o log x^0 + (1 - o) log(1 - x^0)], a *mean* over items. With log 0 = -100, as in torch's
    forward pass, its gradient is finite; torch's own gradient is infinite on zeros and ones.
    """
    Z, outputs = _chain(process, denoiser, x0, rng)
    means, log_variances = zip(*(_heads(torch.sigmoid(out) if binary else out, x0) for out in outputs), strict=True)
    beta = [schedule.beta(t).to(x0.dtype) for t in range(1, schedule.T + 1)]
    K = _shrinking(Z[-1] if log_variances[-1] is not None else means[-1], beta[0])
    if shrinks:
        for mean, rate in list(zip(means, beta, strict=True))[1:-1]:
            K = K + _shrinking(mean, rate)
    else:
        for z, mean, log_variance, rate in zip(Z, means, log_variances, beta, strict=True):
            constant = _log_normal(z, (1 - rate).sqrt() * z, rate.log())
            K = K + constant - _log_normal(z, mean, rate if log_variance is None else log_variance)
    if binary:
        return _by_row(K) - _by_row(_swapped_log_likelihood(x0, means[0])) / x0.shape[-1]
    return _by_row(K - _log_normal(x0, means[0], torch.zeros_like(x0)))


def previous_step_loss(
    process: Process, denoiser: Denoiser, x0: Tensor, rng: Rng, *, schedule: NoiseSchedule
) -> Tensor:
    """-R + sum_{t=2..T} KL(N(sqrt(1 - beta_t) Z_{t-1}, beta_t) || N(o_t, exp(beta_t))), another reading of the text.

    Each output is pulled to the state before its input. A second half of the output is the log-variance. (batch,)
    """
    Z, outputs = _chain(process, denoiser, x0, rng)
    loss = -_log_normal(x0, _heads(outputs[0], x0)[0], torch.zeros_like(x0))
    for t in range(2, schedule.T + 1):
        beta = schedule.beta(t).to(x0.dtype)
        mean, log_variance = _heads(outputs[t - 1], x0)
        spread = torch.exp((beta if log_variance is None else log_variance) / 2)
        loss = loss + kl(Normal((1 - beta).sqrt() * Z[t - 2], beta.sqrt()), Normal(mean, spread))
    return _by_row(loss)


def _chain(process: Process, denoiser: Denoiser, x0: Tensor, rng: Rng) -> tuple[list[Tensor], list[Tensor]]:
    """Return Z_1, ..., Z_T and the denoiser's outputs for them."""
    process.check_data(x0)
    Z = list(forward_steps(process, x0, rng))[1:]
    return Z, [denoiser(z, same_step(t, x0)) for t, z in enumerate(Z, start=1)]


def _heads(out: Tensor, x0: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the predicted mean and, if the output is twice as wide, the log-variance."""
    width = x0.shape[-1]
    return out[..., :width], out[..., width:] if out.shape[-1] > width else None


def _log_normal(x: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    return -(math.log(2 * math.pi) + log_variance + (x - mean) ** 2 * torch.exp(-log_variance)) / 2


def _shrinking(out: Tensor, beta: Tensor) -> Tensor:
    return _log_normal(out, (1 - beta).sqrt() * out, beta.log()) - _log_normal(out, out * 0, out * 0)


def _swapped_log_likelihood(x0: Tensor, out: Tensor) -> Tensor:
    return out * x0.log().clamp(min=_LOG_ZERO) + (1 - out) * (1 - x0).log().clamp(min=_LOG_ZERO)


def _by_row(entries: Tensor) -> Tensor:
    """Sum over the items and average over the users of a picture: (batch, ..., D) -> (batch,)."""
    return entries.sum(-1).reshape(len(entries), -1).mean(1)
