"""The interface of a diffusion process, and the distributions that its methods return."""
# ruff: noqa: N802  (T is the paper's name for the number of steps)

import sys
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, cast, runtime_checkable

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Distribution
from torch.distributions import Normal as TorchNormal
from torch.distributions.kl import kl_divergence, register_kl
from torch.nn.functional import logsigmoid

from recfusion.core.errors import InputError
from recfusion.diffusion.schedule import Steps

Rng: TypeAlias = torch.Generator | None  # None: torch's global generator
Denoiser: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # (x^t, t as (batch,)) -> input of p_reverse


class Entries(Protocol):
    """A distribution of independent entries, as the bound and the samplers use it.

    A new one is a torch Distribution with `draw`; register its divergence with `torch.distributions.kl.register_kl`.
    """

    @property
    def mean(self) -> Tensor: ...
    def log_prob(self, value: Tensor) -> Tensor: ...
    def draw(self, rng: Rng) -> Tensor: ...


class Bits(Bernoulli):
    """Bernoulli(sigmoid(logits)) for each entry.

    torch's class clips probabilities at the machine epsilon and gives an infinite KL if a probability rounds to 0 or 1.
    This one only uses logits, so tiny rates keep their gradient.
    """

    def __init__(self, logits: Tensor) -> None:
        super().__init__(logits=logits, validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return x log p + (1 - x) log(1 - p) for each entry."""
        return value * logsigmoid(self.logits) + (1 - value) * logsigmoid(-self.logits)

    def draw(self, rng: Rng) -> Tensor:
        """Sample zeros and ones in the dtype of the logits."""
        return draw_bits(self.probs, rng)


class Normal(TorchNormal):
    """N(mean, std^2) for each entry; a std of 0 is a point mass."""

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        super().__init__(mean, std, validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        density: Tensor = super().log_prob(value)  # type: ignore[no-untyped-call]
        return density

    def draw(self, rng: Rng) -> Tensor:
        """Sample mean + std * noise, differentiable in both."""
        noise = torch.randn(self.loc.shape, generator=rng, dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + self.scale * noise


class Process(Protocol):
    """A forward Markov chain q and a reverse chain p_theta, parametrised by a denoiser's output; t runs 1..T.

    x has the shape (batch, ...); t is (batch,), or one number for all. Any class with these methods is a process; a
    subclass inherits `check_data` and `q_sample`.
    """

    @property
    def T(self) -> int: ...
    @property
    def reparametrised(self) -> bool: ...  # whether q_sample is differentiable in the schedule
    def q_marginal(self, x0: Tensor, t: Steps) -> Entries: ...  # q(x^t | x^0)
    def q_step(self, x_prev: Tensor, t: Steps) -> Entries: ...  # q(x^t | x^{t-1})
    def q_posterior(self, x0: Tensor, xt: Tensor, t: Steps) -> Entries: ...  # q(x^{t-1} | x^t, x^0)
    def p_reverse(self, out: Tensor, xt: Tensor, t: Steps) -> Entries: ...  # p_theta(x^{t-1} | x^t)
    def prior(
        self, shape: Sequence[int], dtype: torch.dtype = torch.float32, device: torch.device | None = None
    ) -> Entries: ...  # p(x^T)
    def x0_error(self, out: Tensor, x0: Tensor) -> Tensor: ...  # error of the x^0 that out predicts, per entry

    def check_data(self, x0: Tensor) -> None:
        """Raise unless x^0 holds floating-point numbers, one row per example."""
        if not x0.is_floating_point() or x0.ndim < 2:
            raise InputError(f"Expected floats (batch, ...), got {x0.dtype} {tuple(x0.shape)}: convert with x.float().")

    def q_sample(self, x0: Tensor, t: Steps, rng: Rng) -> Tensor:
        """Sample q(x^t | x^0)."""
        return self.q_marginal(x0, t).draw(rng)


@runtime_checkable
class HasSurvival(Protocol):
    """A process with a survival probability, for the weights of `removed`."""

    def survival(self, t: Steps) -> Tensor: ...  # a_t = q(x^t = 1 | x^0 = 1), t in 0..T


@runtime_checkable
class HasJumps(Protocol):
    """A process with shorter and deterministic reverse chains."""

    def at_steps(self, steps: Sequence[int]) -> Process: ...  # the chain at these steps only
    def implicit(
        self, out: Tensor, xt: Tensor, t: Steps, noise: Tensor | None, rng: Rng
    ) -> tuple[Tensor, Tensor]: ...  # x^{t-1} for the noise that x^t implies (None: unknown yet), and that noise


def broadcast(coefficient: Tensor, x: Tensor) -> Tensor:
    """Return a float64 coefficient in the dtype of x, reshaped to multiply x.

    One number per example, (batch,), becomes (batch, 1, ..., 1); values per entry, (batch, D), stay on the last axes.
    """
    coefficient = coefficient.to(x.dtype)
    if coefficient.ndim == 0:
        return coefficient
    missing = x.ndim - coefficient.ndim
    return coefficient.reshape(coefficient.shape[:1] + (1,) * missing + coefficient.shape[1:])


def same_step(t: int, x: Tensor) -> Tensor:
    """Return the step t once for each example of x, (batch,)."""
    return torch.full((len(x),), t, dtype=torch.int64, device=x.device)


def per_example(entries: Tensor) -> Tensor:
    """Sum the entries of each example: (batch, ...) -> (batch,)."""
    return entries.flatten(1).sum(1)


def draw_bits(probability: Tensor, rng: Rng) -> Tensor:
    """Sample Bernoulli(probability) for each entry."""
    uniform = torch.rand(probability.shape, generator=rng, dtype=probability.dtype, device=probability.device)
    return (1 - uniform <= probability).to(probability.dtype)  # 1 - uniform is never 0, so probability 0 is never drawn


def safe_log(probability: Tensor) -> Tensor:
    """Return the logarithm, with -708 for probability 0, so that it and its gradient are finite."""
    return probability.clamp(min=sys.float_info.min).log()


def guided(conditional: Denoiser, unconditional: Denoiser, strength: float) -> Denoiser:
    """Return out = unconditional + strength (conditional - unconditional) (Ho and Salimans, 2022, w = strength - 1).

    strength 0 is the unconditional denoiser, 1 the conditional one, and more amplifies the condition. Predicted means
    of a Gaussian x^0 combine as scores do: each step follows p(x^t)^(1 - strength) p(x^t | c)^strength. Logits of
    binary entries combine to those of the same product.
    """

    def denoised(xt: Tensor, t: Tensor) -> Tensor:
        if strength == 1:
            return conditional(xt, t)
        without = unconditional(xt, t)
        return without if strength == 0 else without + strength * (conditional(xt, t) - without)

    return denoised


def kl(q: Entries, p: Entries) -> Tensor:
    return kl_divergence(cast(Distribution, q), cast(Distribution, p))


def _kl_bits(q: Bits, p: Bits) -> Tensor:
    one = torch.sigmoid(q.logits) * (logsigmoid(q.logits) - logsigmoid(p.logits))
    zero = torch.sigmoid(-q.logits) * (logsigmoid(-q.logits) - logsigmoid(-p.logits))
    return one + zero


register_kl(Bits, Bits)(_kl_bits)  # type: ignore[no-untyped-call]
