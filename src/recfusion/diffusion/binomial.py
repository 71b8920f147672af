"""The binomial process: every entry is a two-state Markov chain, and all its distributions are closed form."""
# ruff: noqa: N802, N803  (T is the paper's name for the number of steps)

import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, Self, get_args

import torch
from torch import Tensor

from recfusion.core.errors import InputError, choices
from recfusion.diffusion.process import Bits, Process, Rng, beside, draw_bits
from recfusion.diffusion.schedule import NoiseSchedule, Steps, at_step, checked_steps, from_survival

Prediction = Literal["x0", "previous"]
Mean = float | Tensor  # the share of ones: one number, or one for each entry, (D,)

_LEAST = sys.float_info.min  # stands for probability 0, so that its logarithm, -708, and all gradients stay finite


class Binomial(Process):
    """Two-state chains with rates u_t = q(x^t = 1 | x^{t-1} = 0) and d_t = q(x^t = 0 | x^{t-1} = 1).

    The paper's kernel and its options (a), (b), (c) are all of this kind (see the constructors). t steps in a row are
    again one such step, with rates U_t and D_t, so q(x^t | x^0) = B(A_t x^0 + B_t), B_t = U_t, A_t = 1 - U_t - D_t.

    u, d: (T,), or (T, D) with rates of its own for each entry. prior_probability: p(x^T = 1), by default what the
    whole chain leaves unchanged, U_T/(U_T + D_T); it may be 0 or 1 only where x^T is so for every x^0, for L_T would
    be infinite otherwise. predicts: what the denoiser's logits mean, see `p_reverse`.
    """

    reparametrised = False  # zeros and ones carry no gradient to the rates

    def __init__(
        self, u: Tensor, d: Tensor, prior_probability: Mean | None = None, *, predicts: Prediction = "x0"
    ) -> None:
        if predicts not in get_args(Prediction):
            raise choices("prediction", predicts, get_args(Prediction))
        self.predicts = predicts
        self._u, self._d = _rates("u", u), _rates("d", d)  # (T + 1, *entry), row 0 is no step
        if self._u.shape != self._d.shape:
            raise InputError(
                f"Expected u and d of one shape, got {tuple(u.shape)} and {tuple(d.shape)}: make them agree."
            )
        self._U, self._D = _compose(self._u, self._d)
        self._log_one, self._log_zero = _posterior_tables(self._u, self._d, self._U, self._D)
        self._logit = self._log_one - self._log_zero  # (x^0, x^t, T + 1, *entry)
        self.prior_probability = self._checked_prior(prior_probability)

    @classmethod
    def paper_kernel(cls, schedule: NoiseSchedule, mean: Mean = 0.5, *, predicts: Prediction = "x0") -> Self:
        """The paper's kernel B(x^t; x^{t-1}(1 - beta_t) + beta_t/2): u = d = beta/2."""
        return cls._from_mean(schedule.betas / 2, schedule.betas / 2, mean, predicts)

    @classmethod
    def bit_flips(cls, schedule: NoiseSchedule, mean: Mean = 0.5, *, predicts: Prediction = "x0") -> Self:
        """Options (a) and (b): flip each entry with probability beta: u = d = beta."""
        return cls._from_mean(schedule.betas, schedule.betas, mean, predicts)

    @classmethod
    def thinning(cls, schedule: NoiseSchedule, mean: Mean = 0.5, *, predicts: Prediction = "x0") -> Self:
        """Option (c): only ones flip, and survive a step with probability 1 - beta/2: u = 0, d = beta/2."""
        return cls._from_mean(torch.zeros_like(schedule.betas), schedule.betas / 2, mean, predicts)

    @classmethod
    def thinning_from_survival(
        cls, a: Sequence[float] | Tensor, mean: Mean = 0.5, *, predicts: Prediction = "x0"
    ) -> Self:
        """Thinning in which a one survives to step t with probability a_t: u = 0, d_t = 1 - a_t/a_{t-1}."""
        d = from_survival(a).betas
        return cls._from_mean(torch.zeros_like(d), d, mean, predicts)

    @classmethod
    def drift(cls, schedule: NoiseSchedule, mean: Mean, *, predicts: Prediction = "x0") -> Self:
        """Each entry is drawn anew from its mean m with probability beta: u = beta m, d = beta (1 - m)."""
        m = torch.as_tensor(mean, dtype=torch.float64)
        beta = schedule.betas.reshape((-1,) + (1,) * m.ndim)  # (T, 1, ...) beside the entries
        return cls._from_mean(beta * m, beta * (1 - m), mean, predicts)

    @classmethod
    def _from_mean(cls, u: Tensor, d: Tensor, mean: Mean, predicts: Prediction) -> Self:
        # The prior of every named chain is where it takes data of this mean, A_T m + B_T. For the symmetric chains the
        # default m = .5 gives their stationary .5, for drift it is m itself, and for thinning it is a_T m: all zeros,
        # its stationary state, would make L_T infinite as long as a_T > 0. Smoothed training means serve best.
        m = torch.as_tensor(mean, dtype=torch.float64)
        if not bool(((m >= 0) & (m <= 1)).all()):
            raise InputError(
                f"Expected means in [0, 1], got {float(m.min()):g}..{float(m.max()):g}: give shares of ones."
            )
        U, D = (table[-1] for table in _compose(_rates("u", u), _rates("d", d)))  # noqa: N806
        return cls(u, d, m * (1 - D) + (1 - m) * U, predicts=predicts)

    @property
    def T(self) -> int:
        return len(self._u) - 1

    def at_steps(self, steps: Sequence[int]) -> Self:
        """The chain seen at some steps only, t_1 < ... < t_K = T: again such a chain, of K steps."""
        if self.predicts != "x0":
            raise InputError(
                "Expected a process whose denoiser predicts x0, got predicts='previous': it knows no jumps."
            )
        jumps = [
            _compose(*(torch.cat([rates[:1], rates[before + 1 : now + 1]]) for rates in (self._u, self._d)))
            for before, now in pairwise([0, *checked_steps(steps, self.T)])
        ]
        u, d = (torch.stack([both[which][-1] for both in jumps]) for which in (0, 1))
        return type(self)(u, d, self.prior_probability)

    def check_data(self, x0: Tensor) -> None:
        """Raise unless x^0 holds zeros and ones, as floats."""
        super().check_data(x0)
        wrong = (x0 != 0) & (x0 != 1)
        if bool(wrong.any()):
            raise InputError(
                f"Expected binary data (0 or 1) for a binomial process, got {x0[wrong][0].item():g} among "
                f"{int(wrong.sum())} other values: binarise it first."
            )

    def survival(self, t: Steps) -> Tensor:
        """a_t = q(x^t = 1 | x^0 = 1), float64."""
        return 1 - _at(self._D, t)

    def q_sample(self, x0: Tensor, t: Steps, rng: Rng) -> Tensor:
        """Sample q(x^t | x^0)."""
        one, zero = self.survival(t).detach(), _at(self._U, t).detach()
        return draw_bits(_choose(x0, zero, one), rng)

    def q_marginal(self, x0: Tensor, t: Steps) -> Bits:
        """q(x^t | x^0) = B(A_t x^0 + B_t); for the paper's kernel B(abar_t x^0 + (1 - abar_t)/2), erratum 1."""
        return _two_state(x0, _at(self._U, t), _at(self._D, t))

    def q_step(self, x_prev: Tensor, t: Steps) -> Bits:
        """q(x^t | x^{t-1}) = B(x^{t-1} (1 - d_t) + (1 - x^{t-1}) u_t)."""
        return _two_state(x_prev, _at(self._u, t), _at(self._d, t))

    def q_posterior(self, x0: Tensor, xt: Tensor, t: Steps) -> Bits:
        """q(x^{t-1} | x^t, x^0) by Bayes' rule; where the pair is impossible, x^{t-1} = x^t.

        Under thinning x^0 = 0, x^t = 1 is such a pair. It never meets a weight in the bound, but a denoiser may put
        some probability on that x^0, and x^{t-1} = 1 is then still right.
        """
        one, zero = (_by_value(xt, self._logit[value], t) for value in (1, 0))
        return Bits(torch.where(x0 > 0.5, one, zero))

    def p_reverse(self, out: Tensor, xt: Tensor, t: Steps) -> Bits:
        """p_theta(x^{t-1} | x^t) from the denoiser's logits.

        "x0": sigmoid(out) = xhat_0 = p_theta(x^0 = 1 | x^t), and p = sum over x^0 of p_theta(x^0 | x^t)
        q(x^{t-1} | x^t, x^0). For thinning that is rho_t xhat_0 where x^t = 0, rho_t = (a_{t-1} - a_t)/(1 - a_t), and
        1 where x^t = 1. "previous": sigmoid(out) = pi_theta is p(x^{t-1} = 1 | x^t) itself, as in the paper's text.
        """
        if self.predicts == "previous":
            return Bits(out)
        # With r_i = q(x^{t-1} = 1 | x^t, x^0 = i), p/(1 - p) = (r_0 + r_1 e^out)/((1 - r_0) + (1 - r_1) e^out).
        one, zero = (
            torch.logaddexp(_by_value(xt, log[0], t), _by_value(xt, log[1], t) + out)
            for log in (self._log_one, self._log_zero)
        )
        return Bits(one - zero)

    def implicit(self, out: Tensor, xt: Tensor, t: Steps, noise: Tensor | None, rng: Rng) -> tuple[Tensor, Tensor]:
        """x^{t-1} = 1 where noise < q(x^{t-1} = 1 | x^0 = xhat_0) = A_{t-1} xhat_0 + B_{t-1}, and that noise.

        It is uniform for each entry, drawn once, at the first step and so that it agrees with x^t, and kept: the way
        back has no other randomness. Where xhat_0 is right, x^{t-1} has the forward chain's law at every step, and
        entries change as seldom as that allows.
        """
        if self.predicts != "x0":
            raise InputError("Expected a process whose denoiser predicts x0, got predicts='previous': draw the steps.")
        x0_hat = torch.sigmoid(out)
        now, before = (
            beside(self.survival(step), xt) * x0_hat + beside(_at(self._U, step), xt) * (1 - x0_hat)
            for step in (t, t - 1)
        )
        if noise is None:
            uniform = torch.rand(xt.shape, generator=rng, dtype=xt.dtype, device=xt.device)
            noise = torch.where(xt > 0.5, uniform * now, now + uniform * (1 - now))
        return (noise < before).to(xt.dtype), noise

    def prior(
        self, shape: Sequence[int], dtype: torch.dtype = torch.float32, device: torch.device | None = None
    ) -> Bits:
        """p(x^T) = B(prior_probability) for each entry."""
        p = self.prior_probability
        logits = _log(p) - _log(1 - p)
        return Bits(logits.to(dtype=dtype, device=device).expand(tuple(shape)))

    def x0_error(self, out: Tensor, x0: Tensor) -> Tensor:
        """Binary cross-entropy -log B(x^0; sigmoid(out)) for each entry."""
        if self.predicts != "x0":
            raise InputError(
                "Expected a process whose denoiser predicts x0, got predicts='previous': use its bound instead."
            )
        return -Bits(out).log_prob(x0)

    def _checked_prior(self, probability: Mean | None) -> Tensor:
        U, D = self._U[-1], self._D[-1]  # noqa: N806
        if probability is None:
            probability = torch.where(U + D > 0, U / torch.where(U + D > 0, U + D, 1), 0.5)
        p = torch.as_tensor(probability, dtype=torch.float64)
        legal = (p >= 0) & (p <= 1) & ((p > 0) | ((U == 0) & (D == 1))) & ((p < 1) | ((D == 0) & (U == 1)))
        if not bool(legal.all()):
            raise InputError(
                f"Expected prior probabilities of x^T = 1 that leave possible what the chain can reach, got "
                f"{float(p.min()):g}..{float(p.max()):g}: give smoothed means strictly between 0 and 1."
            )
        return p


def _rates(name: str, rates: Tensor) -> Tensor:
    """Return float64 rates with a row 0 of zeros, (T + 1, *entry)."""
    rates = rates.double()
    if rates.ndim < 1 or len(rates) < 1:
        raise InputError(f"Expected T >= 1 rates {name}, got shape {tuple(rates.shape)}: choose T >= 1.")
    if not bool(((rates >= 0) & (rates <= 1)).all()):
        low, high = float(rates.min()), float(rates.max())
        raise InputError(f"Expected rates {name} in [0, 1], got {low:g}..{high:g}: change the schedule.")
    return torch.cat([torch.zeros_like(rates[:1]), rates])


def _compose(u: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rates U_t, D_t of t steps in a row; only sums of positive terms, so small rates stay exact."""
    up, down = [u[0]], [d[0]]
    for step_up, step_down in zip(u[1:], d[1:], strict=True):
        up.append(up[-1] * (1 - step_down) + (1 - up[-1]) * step_up)
        down.append(down[-1] * (1 - step_up) + (1 - down[-1]) * step_down)
    return torch.stack(up), torch.stack(down)


def _posterior_tables(u: Tensor, d: Tensor, U: Tensor, D: Tensor) -> tuple[Tensor, Tensor]:
    """Return log q(x^{t-1} = 1 | x^t, x^0) and log q(x^{t-1} = 0 | x^t, x^0), (x^0, x^t, T + 1, *entry)."""
    before_up, before_down = U.roll(1, 0), D.roll(1, 0)  # row t holds t - 1; row 0 is never asked for
    one = torch.stack([before_up, 1 - before_down])[:, None] * torch.stack([d, 1 - d])[None]
    zero = torch.stack([1 - before_up, before_down])[:, None] * torch.stack([1 - u, u])[None]
    total = one + zero
    possible = total > 0
    total = torch.where(possible, total, 1)
    is_one = torch.tensor([0.0, 1.0], dtype=u.dtype, device=u.device).reshape((1, 2) + (1,) * u.ndim)  # x^t
    return _log(torch.where(possible, one / total, is_one)), _log(torch.where(possible, zero / total, 1 - is_one))


def _two_state(x: Tensor, up: Tensor, down: Tensor) -> Bits:
    one, zero = _log(1 - down) - _log(down), _log(up) - _log(1 - up)
    return Bits(_choose(x, zero, one))


def _by_value(xt: Tensor, table: Tensor, t: Steps) -> Tensor:
    """Return the row for t of table[0] where x^t = 0 and of table[1] where x^t = 1."""
    return _choose(xt, _at(table[0], t), _at(table[1], t))


def _choose(x: Tensor, if_zero: Tensor, if_one: Tensor) -> Tensor:
    return torch.where(x > 0.5, beside(if_one, x), beside(if_zero, x))


def _at(table: Tensor, t: Steps) -> Tensor:
    return at_step(table, torch.tensor([t]) if isinstance(t, int) else t)  # (batch or 1, *entry)


def _log(probability: Tensor) -> Tensor:
    return probability.clamp(min=_LEAST).log()
