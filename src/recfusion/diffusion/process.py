"""What a diffusion process is to the bound, the objectives and the samplers, and the helpers that processes share."""
# ruff: noqa: N802  (T is the paper's name for the number of steps)

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor

from recfusion.core.errors import InputError
from recfusion.diffusion.distributions import Entries, Rng
from recfusion.diffusion.schedule import Steps

Denoiser: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # (x^t, t as (batch,)) -> what p_reverse reads


class Process(Protocol):
    """A forward Markov chain q and the reverse p_theta that a denoiser's output parametrises; t runs 1..T.

    x has the shape (batch, ...); t is (batch,), or one number for all. Any class with these methods is a process; one
    that subclasses this has `check_data` and `q_sample` already.
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
    def x0_error(self, out: Tensor, x0: Tensor) -> Tensor: ...  # of the x^0 that out predicts, by entry; for `simple`

    def check_data(self, x0: Tensor) -> None:
        """Raise unless x^0 can be diffused: floating-point numbers, one row for each example."""
        if not x0.is_floating_point() or x0.ndim < 2:
            raise InputError(f"Expected floats (batch, ...), got {x0.dtype} {tuple(x0.shape)}: convert with x.float().")

    def q_sample(self, x0: Tensor, t: Steps, rng: Rng) -> Tensor:
        """Sample q(x^t | x^0)."""
        return self.q_marginal(x0, t).draw(rng)


@runtime_checkable
class HasSurvival(Protocol):
    """What the weight of `removed` asks of a process besides."""

    def survival(self, t: Steps) -> Tensor: ...  # a_t = q(x^t = 1 | x^0 = 1), t in 0..T


def beside(coefficient: Tensor, x: Tensor) -> Tensor:
    """Cast a float64 coefficient to x's type and give it the axes to multiply x.

    A coefficient of one number per example, (batch,), becomes (batch, 1, ..., 1); one with values of its own for each
    entry, (batch, D), keeps them on the last axes. A single number stays one.
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
