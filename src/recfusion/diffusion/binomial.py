"""The binomial process: every entry is a two-state Markov chain with closed-form distributions."""
# ruff: noqa: N802, N803  (T is the paper's name for the number of steps)

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, Self, get_args

import torch
from torch import Tensor

from recfusion.core.errors import InputError, choices
from recfusion.diffusion.process import Bits, Process, Rng, broadcast, draw_bits, safe_log
from recfusion.diffusion.schedule import NoiseSchedule, Steps, batch_at_step, checked_steps, from_survival

Prediction = Literal["x0", "previous"]
Mean = float | Tensor  # the share of ones: one number, or one per entry, (D,)


class Binomial(Process):
    """Two-state chains with rates u_t = q(x^t = 1 | x^{t-1} = 0) and d_t = q(x^t = 0 | x^{t-1} = 1).

    The paper's kernel and its options (a), (b), (c) are such chains (see the constructors). t steps in a row are again
    one such step, with rates U_t and D_t, so q(x^t | x^0) = B(A_t x^0 + B_t), B_t = U_t, A_t = 1 - U_t - D_t.

    u, d: (T,), or (T, D) with separate rates per entry. prior_probability: p(x^T = 1), by default the stationary value
    of the whole chain, U_T/(U_T + D_T); it may be 0 or 1 only if x^T has that value for every x^0, because L_T would be
    infinite otherwise. predicts: the meaning of the denoiser's logits, see `p_reverse`.
    """

    reparametrised = False  # zeros and ones have no gradient with respect to the rates

    def __init__(
        self, u: Tensor, d: Tensor, prior_probability: Mean | None = None, *, predicts: Prediction = "x0"
    ) -> None:
        if predicts not in get_args(Prediction):
            raise choices("prediction", predicts, get_args(Prediction))
        self.predicts = predicts
        self._u, self._d = _rates("u", u), _rates("d", d)  # (T + 1, *entry), row 0 is unused
        if self._u.shape != self._d.shape:
            raise InputError(f"Expected u and d of one shape, got {tuple(u.shape)} and {tuple(d.shape)}: reshape one.")
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
        """Each entry is redrawn from its mean m with probability beta: u = beta m, d = beta (1 - m)."""
        m = torch.as_tensor(mean, dtype=torch.float64)
        beta = schedule.betas.reshape((-1,) + (1,) * m.ndim)  # (T, 1, ...), to broadcast over the entries
        return cls._from_mean(beta * m, beta * (1 - m), mean, predicts)

    @classmethod
    def _from_mean(cls, u: Tensor, d: Tensor, mean: Mean, predicts: Prediction) -> Self:
        # The prior is the mean of x^T for data of mean m, A_T m + B_T: .5 for the symmetric chains with the default
        # m = .5, m for drift, and a_T m for thinning. The stationary state of thinning, all zeros, would make L_T
        # infinite while a_T > 0. Smoothed training means work best.
        m = torch.as_tensor(mean, dtype=torch.float64)
        if not bool(((m >= 0) & (m <= 1)).all()):
            raise InputError(
                f"Expected means in [0, 1], got {m.min().item():g}..{m.max().item():g}: give shares of ones."
            )
        U, D = (table[-1] for table in _compose(_rates("u", u), _rates("d", d)))  # noqa: N806
        return cls(u, d, m * (1 - D) + (1 - m) * U, predicts=predicts)

    @property
    def T(self) -> int:
        return len(self._u) - 1

    def at_steps(self, steps: Sequence[int]) -> Self:
        """Return the chain at the steps t_1 < ... < t_K = T only: again such a chain, with K steps."""
        self._require_x0("take every step")
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
            got = f"{x0[wrong][0].item():g} among {int(wrong.sum())} other values"
            raise InputError(f"Expected binary data (0 or 1) for a binomial process, got {got}: binarise it first.")

    def survival(self, t: Steps) -> Tensor:
        """a_t = q(x^t = 1 | x^0 = 1), float64."""
        return 1 - batch_at_step(self._D, t)

    def q_sample(self, x0: Tensor, t: Steps, rng: Rng) -> Tensor:
        """Sample q(x^t | x^0)."""
        one, zero = self.survival(t).detach(), batch_at_step(self._U, t).detach()
        return draw_bits(_choose(x0, zero, one), rng)

    def q_marginal(self, x0: Tensor, t: Steps) -> Bits:
        """q(x^t | x^0) = B(A_t x^0 + B_t); for the paper's kernel B(abar_t x^0 + (1 - abar_t)/2), erratum 1."""
        return _two_state(x0, batch_at_step(self._U, t), batch_at_step(self._D, t))

    def q_step(self, x_prev: Tensor, t: Steps) -> Bits:
        """q(x^t | x^{t-1}) = B(x^{t-1} (1 - d_t) + (1 - x^{t-1}) u_t)."""
        return _two_state(x_prev, batch_at_step(self._u, t), batch_at_step(self._d, t))

    def q_posterior(self, x0: Tensor, xt: Tensor, t: Steps) -> Bits:
        """q(x^{t-1} | x^t, x^0) by Bayes' rule; where the pair is impossible, x^{t-1} = x^t.

        Under thinning x^0 = 0, x^t = 1 is such a pair. It has no weight in the bound, but a denoiser may give that x^0
        some probability, and x^{t-1} = 1 is then correct.
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

        The noise is uniform per entry, drawn once at the first step, consistently with x^t, and reused: the reverse
        chain has no other randomness. If xhat_0 is correct, x^{t-1} has the forward chain's distribution at every step,
        with as few changes of entries as possible.
        """
        self._require_x0("sample the steps")
        x0_hat = torch.sigmoid(out)
        now, before = (
            broadcast(self.survival(step), xt) * x0_hat + broadcast(batch_at_step(self._U, step), xt) * (1 - x0_hat)
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
        logits = safe_log(p) - safe_log(1 - p)
        return Bits(logits.to(dtype=dtype, device=device).expand(tuple(shape)))

    def x0_error(self, out: Tensor, x0: Tensor) -> Tensor:
        """Binary cross-entropy -log B(x^0; sigmoid(out)) for each entry."""
        self._require_x0("use its bound instead")
        return -Bits(out).log_prob(x0)

    def _require_x0(self, remedy: str) -> None:
        if self.predicts != "x0":
            raise InputError(f"Expected a process with predicts='x0', got predicts='previous': {remedy}.", "predicts")

    def _checked_prior(self, probability: Mean | None) -> Tensor:
        U, D = self._U[-1], self._D[-1]  # noqa: N806
        if probability is None:
            probability = torch.where(U + D > 0, U / torch.where(U + D > 0, U + D, 1), 0.5)
        p = torch.as_tensor(probability, dtype=torch.float64)
        legal = (p >= 0) & (p <= 1) & ((p > 0) | ((U == 0) & (D == 1))) & ((p < 1) | ((D == 0) & (U == 1)))
        if not bool(legal.all()):
            got = f"{float(p.min()):g}..{float(p.max()):g}"
            raise InputError(f"Expected prior probabilities strictly between 0 and 1, got {got}: give smoothed means.")
        return p


def _rates(name: str, rates: Tensor) -> Tensor:
    """Return float64 rates with a row 0 of zeros, (T + 1, *entry)."""
    rates = rates.double()
    if rates.ndim < 1 or len(rates) < 1:
        raise InputError(f"Expected T >= 1 rates {name}, got shape {tuple(rates.shape)}: choose T >= 1.")
    if not bool(((rates >= 0) & (rates <= 1)).all()):
        got = f"{float(rates.min()):g}..{float(rates.max()):g}"
        raise InputError(f"Expected rates {name} in [0, 1], got {got}: change the schedule.")
    return torch.cat([torch.zeros_like(rates[:1]), rates])


def _compose(u: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rates U_t, D_t of t steps in a row, as sums of positive terms, so small rates stay exact."""
    up, down = [u[0]], [d[0]]
    for step_up, step_down in zip(u[1:], d[1:], strict=True):
        up.append(up[-1] * (1 - step_down) + (1 - up[-1]) * step_up)
        down.append(down[-1] * (1 - step_up) + (1 - down[-1]) * step_down)
    return torch.stack(up), torch.stack(down)


def _posterior_tables(u: Tensor, d: Tensor, U: Tensor, D: Tensor) -> tuple[Tensor, Tensor]:
    """Return log q(x^{t-1} = 1 | x^t, x^0) and log q(x^{t-1} = 0 | x^t, x^0), (x^0, x^t, T + 1, *entry)."""
    before_up, before_down = U.roll(1, 0), D.roll(1, 0)  # row t holds t - 1; row 0 is unused
    one = torch.stack([before_up, 1 - before_down])[:, None] * torch.stack([d, 1 - d])[None]
    zero = torch.stack([1 - before_up, before_down])[:, None] * torch.stack([1 - u, u])[None]
    total = one + zero
    possible = total > 0
    total = torch.where(possible, total, 1)
    is_one = torch.tensor([0.0, 1.0], dtype=u.dtype, device=u.device).reshape((1, 2) + (1,) * u.ndim)  # x^t
    return safe_log(torch.where(possible, one / total, is_one)), safe_log(
        torch.where(possible, zero / total, 1 - is_one)
    )


def _two_state(x: Tensor, up: Tensor, down: Tensor) -> Bits:
    one, zero = safe_log(1 - down) - safe_log(down), safe_log(up) - safe_log(1 - up)
    return Bits(_choose(x, zero, one))


def _by_value(xt: Tensor, table: Tensor, t: Steps) -> Tensor:
    """Return the row for t of table[0] where x^t = 0 and of table[1] where x^t = 1."""
    return _choose(xt, batch_at_step(table[0], t), batch_at_step(table[1], t))


def _choose(x: Tensor, if_zero: Tensor, if_one: Tensor) -> Tensor:
    return torch.where(x > 0.5, broadcast(if_one, x), broadcast(if_zero, x))
