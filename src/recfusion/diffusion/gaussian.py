"""The Gaussian process: x^t = sqrt(alpha_bar_t) x^0 + sqrt(1 - alpha_bar_t) noise, with fixed or predicted variance."""
# ruff: noqa: N802  (T is the paper's name for the number of steps)

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from recfusion.core.errors import choices
from recfusion.diffusion.process import Normal, Process, Rng, broadcast
from recfusion.diffusion.schedule import NoiseSchedule, Schedule, Steps, checked_steps

Variance = Literal["posterior", "beta", "predicted"]


@dataclass(frozen=True)
class Gaussian(Process):
    """Gaussian diffusion (Ho et al., 2020) with a denoiser that predicts x^0.

    `variance` of the reverse step: "posterior" and "beta" are the two fixed choices of that paper; "predicted" reads
    it from the second half of the denoiser's last axis, see `p_reverse`.
    """

    schedule: NoiseSchedule
    variance: Variance = "posterior"
    reparametrised = True

    def __post_init__(self) -> None:
        if self.variance not in get_args(Variance):
            raise choices("variance", self.variance, get_args(Variance))

    @property
    def T(self) -> int:
        return self.schedule.T

    def at_steps(self, steps: Sequence[int]) -> "Gaussian":
        """Return the chain at the steps t_1 < ... < t_K = T only: again such a chain, with K steps."""
        kept = torch.tensor([0, *checked_steps(steps, self.T)])
        left = self.schedule.alpha_bar(kept)  # (K + 1,)
        return Gaussian(Schedule(1 - left[1:] / left[:-1]), self.variance)

    def implicit(self, out: Tensor, xt: Tensor, t: Steps, noise: Tensor | None, rng: Rng) -> tuple[Tensor, Tensor]:
        """x^{t-1} = sqrt(abar_{t-1}) xhat^0 + sqrt(1 - abar_{t-1}) noise, and that noise, given x^t and xhat^0.

        The deterministic step of DDIM (Song et al., 2021, eq. 12 without its random part).
        """
        x0_hat = self._split(out)[0]
        now, before = (broadcast(self.schedule.alpha_bar(step), xt) for step in (t, t - 1))
        implied = (xt - now.sqrt() * x0_hat) / (1 - now).sqrt()
        return before.sqrt() * x0_hat + (1 - before).sqrt() * implied, implied

    def q_marginal(self, x0: Tensor, t: Steps) -> Normal:
        """q(x^t | x^0) = N(sqrt(alpha_bar_t) x^0, 1 - alpha_bar_t)."""
        alpha_bar = self.schedule.alpha_bar(t)
        return _normal(broadcast(alpha_bar.sqrt(), x0) * x0, 1 - alpha_bar)

    def q_step(self, x_prev: Tensor, t: Steps) -> Normal:
        """q(x^t | x^{t-1}) = N(sqrt(1 - beta_t) x^{t-1}, beta_t)."""
        beta = self.schedule.beta(t)
        return _normal(broadcast((1 - beta).sqrt(), x_prev) * x_prev, beta)

    def q_posterior(self, x0: Tensor, xt: Tensor, t: Steps) -> Normal:
        """q(x^{t-1} | x^t, x^0), eqs. 6 and 7 of Ho et al.; at t = 1 it is a point mass at x^0."""
        return _normal(self._posterior_mean(x0, xt, t), self._posterior_variance(t))

    def p_reverse(self, out: Tensor, xt: Tensor, t: Steps) -> Normal:
        """p_theta(x^{t-1} | x^t): the posterior's mean at xhat^0 = out, with the chosen variance.

        "predicted": out is (batch, ..., 2 D), xhat^0 and then v, and log variance = f log beta + (1 - f) log posterior
        variance, f = (v + 1)/2 (Nichol and Dhariwal, 2021, eq. 15). It is better than a plain log-variance,
        because good values span orders of magnitude over t, while v near 0 is nearly right at every step.
        """
        x0_hat, v = self._split(out)
        mean = self._posterior_mean(x0_hat, xt, t)
        if self.variance == "beta":
            return _normal(mean, self.schedule.beta(t))
        lower = self._positive_posterior_variance(t)
        if v is None:
            return _normal(mean, lower)
        share = (v + 1) / 2
        log_variance = share * broadcast(self.schedule.beta(t).log(), v) + (1 - share) * broadcast(lower.log(), v)
        return Normal(mean, torch.exp(log_variance / 2))

    def prior(
        self, shape: Sequence[int], dtype: torch.dtype = torch.float32, device: torch.device | None = None
    ) -> Normal:
        """p(x^T) = N(0, 1)."""
        zeros = torch.zeros(tuple(shape), dtype=dtype, device=device)
        return Normal(zeros, torch.ones_like(zeros))

    def x0_error(self, out: Tensor, x0: Tensor) -> Tensor:
        """(xhat^0 - x^0)^2 for each entry."""
        return (self._split(out)[0] - x0) ** 2

    def _split(self, out: Tensor) -> tuple[Tensor, Tensor | None]:
        if self.variance != "predicted":
            return out, None
        x0_hat, v = out.chunk(2, dim=-1)
        return x0_hat, v

    def _posterior_mean(self, x0: Tensor, xt: Tensor, t: Steps) -> Tensor:
        before, now, beta = self.schedule.alpha_bar(t - 1), self.schedule.alpha_bar(t), self.schedule.beta(t)
        of_x0 = before.sqrt() * beta / (1 - now)
        of_xt = (1 - beta).sqrt() * (1 - before) / (1 - now)
        return broadcast(of_x0, x0) * x0 + broadcast(of_xt, xt) * xt

    def _posterior_variance(self, t: Steps) -> Tensor:
        before, now = self.schedule.alpha_bar(t - 1), self.schedule.alpha_bar(t)
        return self.schedule.beta(t) * (1 - before) / (1 - now)

    def _positive_posterior_variance(self, t: Steps) -> Tensor:
        # At t = 1 the posterior variance is 0, which would make L_0 infinite: as in improved-diffusion, step 1 uses the
        # variance of step 2.
        if self.T == 1:
            return self.schedule.beta(t)
        return self._posterior_variance(max(t, 2) if isinstance(t, int) else t.clamp(min=2))


def _normal(mean: Tensor, variance: Tensor) -> Normal:
    return Normal(mean, broadcast(variance.sqrt(), mean).expand_as(mean))
