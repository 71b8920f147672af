"""The categorical process: every entry is a Markov chain over K states with closed-form distributions."""
# ruff: noqa: N802, N803  (T and K are the literature's names)

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor
from torch.distributions import Categorical as TorchCategorical
from torch.distributions.kl import register_kl

from recfusion.core.errors import InputError
from recfusion.diffusion.binomial import Binomial
from recfusion.diffusion.process import Process, Rng, safe_log
from recfusion.diffusion.schedule import NoiseSchedule, Steps, batch_at_step


class States(TorchCategorical):
    """A distribution over the states 0..K-1 for each entry, from logits (..., K); states are floats, like all data."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__(logits=logits, validate_args=False)

    @property
    def mean(self) -> Tensor:
        """The expected state of each entry, (...)."""
        states = torch.arange(self.logits.shape[-1], dtype=self.logits.dtype, device=self.logits.device)
        return self.logits.softmax(-1) @ states

    def log_prob(self, value: Tensor) -> Tensor:
        log_p = self.logits.log_softmax(-1)
        return log_p.gather(-1, value.long()[..., None])[..., 0]

    def draw(self, rng: Rng) -> Tensor:
        """Sample a state for each entry, in the dtype of the logits."""
        p = self.logits.softmax(-1)
        drawn = torch.multinomial(p.flatten(0, -2), 1, generator=rng)[:, 0]
        return drawn.reshape(p.shape[:-1]).to(p.dtype)


class Categorical(Process):
    """Chains over K states with transition matrices Q_t[i, j] = q(x^t = j | x^{t-1} = i) (Austin et al., 2021, D3PM).

    t steps in a row have the matrix Qbar_t = Q_1 ... Q_t, so q(x^t | x^0) is a row of it, and the posterior is
    q(x^{t-1} = j | x^t, x^0) ~ Qbar_{t-1}[x^0, j] Q_t[j, x^t]. Two states are the binomial process (`binomial`).
    The denoiser returns logits (batch, ..., K) of x^0. The prior p(x^T), (K,), is the distribution of x^T for data with
    the shares `shares`.
    """

    reparametrised = False

    def __init__(self, transitions: Tensor, shares: Tensor | None = None) -> None:
        transitions = transitions.double()
        if transitions.ndim != 3 or transitions.shape[1] != transitions.shape[2] or not len(transitions):
            raise InputError(f"Expected transitions (T, K, K) with T >= 1, got shape {tuple(transitions.shape)}.")
        if bool((transitions < 0).any()) or not bool(((transitions.sum(2) - 1).abs() < 1e-6).all()):
            raise InputError("Expected transition rows of probabilities with sum 1, got other numbers: normalise them.")
        eye = torch.eye(transitions.shape[1], dtype=torch.float64)
        self._step = torch.cat([eye[None], transitions])  # (T + 1, K, K), row 0 is the identity
        total = [eye]
        for step in transitions:
            total.append(total[-1] @ step)
        self._total = torch.stack(total)
        self.prior_probability = self._shares(shares) @ self._total[-1]  # (K,)

    @classmethod
    def uniform(cls, schedule: NoiseSchedule, K: int, shares: Tensor | None = None) -> Self:
        """With probability beta_t a state is redrawn uniformly: Q = (1 - beta) I + beta/K."""
        return cls.towards(schedule, torch.full((K,), 1 / K, dtype=torch.float64), shares)

    @classmethod
    def absorbing(cls, schedule: NoiseSchedule, K: int, state: int = 0, shares: Tensor | None = None) -> Self:
        """With probability beta_t a state becomes `state` and stays there: thinning, if that is "unseen"."""
        if not 0 <= state < K:
            raise InputError(f"Expected an absorbing state in 0..{K - 1}, got {state}: choose one of them.")
        return cls.towards(schedule, torch.eye(K, dtype=torch.float64)[state], shares)

    @classmethod
    def towards(cls, schedule: NoiseSchedule, target: Tensor, shares: Tensor | None = None) -> Self:
        """With probability beta_t a state is redrawn from `target`, (K,); with the data's shares this is drift."""
        beta = schedule.betas[:, None, None]
        eye = torch.eye(len(target), dtype=torch.float64)
        return cls((1 - beta) * eye + beta * target.double()[None, None], shares)

    @classmethod
    def ordinal(cls, schedule: NoiseSchedule, K: int, shares: Tensor | None = None) -> Self:
        """With probability beta_t/2 each, a state moves one down or up; at the ends it stays instead."""
        near = torch.zeros(K, K, dtype=torch.float64)
        if K > 1:
            off = torch.arange(K - 1)
            near[off, off + 1] = near[off + 1, off] = 0.5
        near += torch.diag(1 - near.sum(1))
        beta = schedule.betas[:, None, None]
        return cls((1 - beta) * torch.eye(K, dtype=torch.float64) + beta * near, shares)

    @classmethod
    def graded(cls, schedule: NoiseSchedule, K: int, forget: float = 0.5, shares: Tensor | None = None) -> Self:
        """Ratings 1..K-1 move to neighbouring ratings, or to "unseen", state 0, and stay there.

        The share `forget` of beta_t is the probability to become unseen; the rest is that of a move on the scale.
        """
        if not 0 <= forget <= 1 or K < 2:
            raise InputError(f"Expected forget in [0, 1] and K >= 2 states, got {forget:g} and {K}: change them.")
        gone = cls.absorbing(schedule, K)._step[1:]
        moved = torch.eye(K, dtype=torch.float64).repeat(len(gone), 1, 1)
        moved[:, 1:, 1:] = cls.ordinal(schedule, K - 1)._step[1:]
        mixed = forget * gone + (1 - forget) * moved
        return cls(mixed, shares)

    @classmethod
    def binomial(cls, u: Tensor, d: Tensor, mean: float = 0.5) -> Self:
        """The two-state chain with rates u_t (0 to 1) and d_t (1 to 0) for data of this mean."""
        u, d = u.double(), d.double()
        rows = torch.stack([torch.stack([1 - u, u], 1), torch.stack([d, 1 - d], 1)], 1)  # (T, from, to)
        return cls(rows, torch.tensor([1 - mean, mean], dtype=torch.float64))

    @property
    def T(self) -> int:
        return len(self._step) - 1

    @property
    def K(self) -> int:
        return self._step.shape[1]

    def check_data(self, x0: Tensor) -> None:
        """Raise unless x^0 holds states 0..K-1, as floats."""
        super().check_data(x0)
        wrong = (x0 < 0) | (x0 >= self.K) | (x0 != x0.round())
        if bool(wrong.any()):
            got = f"{x0[wrong][0].item():g} among {int(wrong.sum())} other values"
            raise InputError(f"Expected states 0..{self.K - 1}, got {got}: number the states.")

    def q_marginal(self, x0: Tensor, t: Steps) -> States:
        """q(x^t | x^0): row x^0 of Qbar_t."""
        return States(safe_log(_rows(_table(self._total, t, x0), x0)).to(x0.dtype))

    def q_step(self, x_prev: Tensor, t: Steps) -> States:
        """q(x^t | x^{t-1}): row x^{t-1} of Q_t."""
        return States(safe_log(_rows(_table(self._step, t, x_prev), x_prev)).to(x_prev.dtype))

    def q_posterior(self, x0: Tensor, xt: Tensor, t: Steps) -> States:
        """q(x^{t-1} | x^t, x^0) by Bayes' rule; where the pair is impossible, x^{t-1} = x^t."""
        posterior = self._posteriors(xt, t)  # (batch, ..., x^0, x^{t-1})
        place = x0.long()[..., None, None].expand(*x0.shape, 1, self.K)
        return States(safe_log(posterior.gather(-2, place)[..., 0, :]).to(x0.dtype))

    def p_reverse(self, out: Tensor, xt: Tensor, t: Steps) -> States:
        """p_theta(x^{t-1} | x^t) = sum over x^0 of p_theta(x^0 | x^t) q(x^{t-1} | x^t, x^0), softmax(out) the first."""
        predicted = out.double().softmax(-1)  # (batch, ..., x^0)
        mixed = (predicted[..., None, :] @ self._posteriors(xt, t))[..., 0, :]
        return States(safe_log(mixed).to(out.dtype))

    def prior(
        self, shape: Sequence[int], dtype: torch.dtype = torch.float32, device: torch.device | None = None
    ) -> States:
        """p(x^T), the same for each entry."""
        logits = safe_log(self.prior_probability).to(dtype=dtype, device=device)
        return States(logits.expand(*tuple(shape), self.K))

    def x0_error(self, out: Tensor, x0: Tensor) -> Tensor:
        """Cross-entropy -log p_theta(x^0 | x^t) for each entry."""
        return -States(out).log_prob(x0)

    def as_binomial(self) -> Binomial:
        """The same chain as a `Binomial`, where there are two states."""
        if self.K != 2:
            raise InputError(f"Expected two states for a binomial process, got {self.K}: use Categorical.")
        return Binomial(self._step[1:, 0, 1], self._step[1:, 1, 0], self.prior_probability[1])

    def _posteriors(self, xt: Tensor, t: Steps) -> Tensor:
        """Return q(x^{t-1} | x^t, x^0) for every x^0, (batch, ..., x^0, x^{t-1})."""
        before = _table(self._total, t - 1, xt)  # (batch or 1, 1, ..., x^0, x^{t-1})
        step = _table(self._step, t, xt).transpose(-1, -2)  # (..., x^t, x^{t-1})
        joint = before * _rows(step, xt)[..., None, :]
        total = joint.sum(-1, keepdim=True)
        stays = torch.nn.functional.one_hot(xt.long(), self.K).to(joint)[..., None, :]
        return torch.where(total > 0, joint / torch.where(total > 0, total, 1), stays)

    def _shares(self, shares: Tensor | None) -> Tensor:
        given = torch.full((self.K,), 1 / self.K, dtype=torch.float64) if shares is None else shares.double()
        if given.shape != (self.K,) or bool((given <= 0).any()) or abs(float(given.sum()) - 1) > 1e-6:
            got = given.tolist()[:8]
            raise InputError(f"Expected {self.K} shares of the states, positive and of sum 1, got {got}: smooth them.")
        return given


def _table(tables: Tensor, t: Steps, x: Tensor) -> Tensor:
    """Return the matrix of each example, with axes of length 1 for its entries: (batch or 1, 1, ..., K, K)."""
    found = batch_at_step(tables, t)
    return found.reshape(len(found), *[1] * (x.ndim - 1), *found.shape[1:])


def _rows(matrices: Tensor, x: Tensor) -> Tensor:
    """Return row x of the matrices for each entry, (batch, ..., K)."""
    states = matrices.shape[-1]
    wide = matrices.expand(*x.shape, states, states)
    return wide.gather(-2, x.long()[..., None, None].expand(*x.shape, 1, states))[..., 0, :]


def _kl_states(q: States, p: States) -> Tensor:
    log_q, log_p = q.logits.log_softmax(-1), p.logits.log_softmax(-1)
    return (log_q.exp() * (log_q - log_p)).sum(-1)


register_kl(States, States)(_kl_states)  # type: ignore[no-untyped-call]
