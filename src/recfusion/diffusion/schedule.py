"""Noise schedules beta_1..beta_T: fixed ones by name, from a survival curve, or learned."""
# ruff: noqa: N802, N803  (T is the paper's name for the number of steps)

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol, TypeAlias, get_args

import torch
from torch import Tensor, nn

from recfusion.core.errors import InputError, choices

ScheduleName = Literal["linear", "quadratic", "constant", "cosine", "harmonic"]
Steps: TypeAlias = int | Tensor  # t: one step, or one per example, (batch,)
_OUTSIDE = "Expected noise rates beta in (0, 1], got {:g}..{:g}: change the schedule's range."


class NoiseSchedule(Protocol):
    """The interface of a schedule; every coefficient is float64 and has the shape of t."""

    @property
    def T(self) -> int: ...
    @property
    def betas(self) -> Tensor: ...  # (T,)
    def beta(self, t: Steps) -> Tensor: ...
    def alpha_bar(self, t: Steps) -> Tensor: ...


def at_step(table: Tensor, t: Steps) -> Tensor:
    """Return the rows of `table` (T + 1, ...) for t in 0..T; only here a step becomes an index."""
    t = torch.as_tensor(t, device=table.device if isinstance(t, int) else None)
    last = len(table) - 1
    if bool(((t < 0) | (t > last)).any()):
        raise InputError(f"Expected steps t in 0..{last}, got {int(t.min())}..{int(t.max())}: t runs 1..T.")
    return table.to(t.device)[t]


def batch_at_step(table: Tensor, t: Steps) -> Tensor:
    """Return `at_step` with a batch axis of length 1 for a single step: (batch or 1, ...)."""
    return at_step(table, torch.tensor([t]) if isinstance(t, int) else t)


def checked_steps(steps: Sequence[int], T: int) -> list[int]:
    """Return the steps of a shorter chain as integers; raise unless they increase from at least 1 to T."""
    try:
        found = [operator.index(step) for step in steps]
    except TypeError:  # 2.5, or a number instead of a list
        got = str(steps)[:60]
        raise InputError(f"Expected whole numbers as increasing steps in 1..{T}, got {got}: round them.") from None
    if not found or found != sorted(set(found)) or found[0] < 1 or found[-1] != T:
        raise InputError(f"Expected increasing steps in 1..{T} that end at {T}, got {found[:8]}: sort them.")
    return found


@dataclass(frozen=True, eq=False)
class Schedule:
    """The noise rates beta_1..beta_T; alpha_t = 1 - beta_t, alpha_bar_t = prod_{s <= t} alpha_s, alpha_bar_0 = 1."""

    betas: Tensor  # (T,), float64

    def __post_init__(self) -> None:
        betas = self.betas.double()
        if betas.ndim != 1 or len(betas) < 1:
            raise InputError(f"Expected T >= 1 noise rates in one row, got shape {tuple(betas.shape)}: choose T >= 1.")
        if not bool(((betas > 0) & (betas <= 1)).all()):  # also true for NaN
            raise InputError(_OUTSIDE.format(float(betas.min()), float(betas.max())))
        object.__setattr__(self, "betas", betas)

    @property
    def T(self) -> int:
        return len(self.betas)

    def beta(self, t: Steps) -> Tensor:
        """Return beta_t; step 0 adds no noise, beta_0 = 0."""
        return at_step(self._beta_table, t)

    def alpha_bar(self, t: Steps) -> Tensor:
        """Return alpha_bar_t, the share of the signal left after t steps."""
        return at_step(self._alpha_bar_table, t)

    @cached_property
    def _beta_table(self) -> Tensor:
        return torch.cat([self.betas.new_zeros(1), self.betas])  # (T + 1,)

    @cached_property
    def _alpha_bar_table(self) -> Tensor:
        return torch.cumprod(1 - self._beta_table, dim=0)


def from_survival(a: Sequence[float] | Tensor) -> Schedule:
    """The schedule with alpha_bar_t = a_t: beta_t = 1 - a_t/a_{t-1}, a_0 = 1.

    The curve a_1..a_T must decrease strictly until it ends or reaches 0; after 0, beta = 1.
    """
    a = torch.as_tensor(a, dtype=torch.float64)
    if a.ndim != 1 or len(a) < 1:
        raise InputError(f"Expected a survival curve a_1..a_T, got shape {tuple(a.shape)}: give T >= 1 values.")
    before = torch.cat([a.new_ones(1), a[:-1]])
    inside = bool(((a >= 0) & (a <= 1)).all())
    if not inside or not bool(((a < before) | ((a == 0) & (before == 0))).all()):
        shown = ", ".join(f"{value:g}" for value in a[:8].tolist()) + (", ..." if len(a) > 8 else "")
        raise InputError(f"Expected a decreasing survival curve in [0, 1), got {shown}: sort it.")
    return Schedule(torch.where(before > 0, 1 - a / torch.where(before > 0, before, 1), 1.0))


def make_schedule(
    name: ScheduleName, T: int, low: float = 1e-4, high: float = 0.1, decreasing: bool = False
) -> Schedule:
    """Return a fixed schedule by name.

    linear: rates evenly spaced from `low` to `high`. quadratic: evenly spaced square roots, as in the published code.
    constant: `high` at every step. harmonic: beta_t = 1/(T - t + 1), so that alpha_bar_t = 1 - t/T is
    linear. cosine: alpha_bar_t = f(t)/f(0), f(t) = cos^2((t/T + s)/(1 + s) pi/2), s = .008 (Nichol and Dhariwal,
    2021, eq. 17); beta_T = 1 is allowed here, so it is not clipped at .999 as in their code.

    `decreasing` reverses the order of the rates. If the last rate is 1 (cosine, harmonic), the reversed chain destroys
    x^0 in its first step.
    """
    if name not in get_args(ScheduleName):
        raise choices("schedule", name, get_args(ScheduleName))
    if T < 1:
        raise InputError(f"Expected T >= 1 diffusion steps, got {T}: choose T >= 1.")
    t = torch.arange(T + 1, dtype=torch.float64)
    if name == "linear":
        betas = torch.linspace(low, high, T, dtype=torch.float64)
    elif name == "quadratic":
        if min(low, high) < 0:
            raise InputError(_OUTSIDE.format(low, high))
        betas = torch.linspace(math.sqrt(low), math.sqrt(high), T, dtype=torch.float64) ** 2
    elif name == "constant":
        betas = torch.full((T,), high, dtype=torch.float64)
    elif name == "harmonic":
        betas = 1 / t[1:].flip(0)
    else:
        f = torch.cos((t / T + 0.008) / 1.008 * math.pi / 2) ** 2
        betas = from_survival(f[1:] / f[0]).betas
    return Schedule(betas.flip(0) if decreasing else betas)


class LearnedSchedule(nn.Module):
    """A schedule whose survival curve is trained: log alpha_bar_t = -sum_{s <= t} softplus(w_s), w unconstrained.

    These are exactly the strictly decreasing curves, because softplus is positive; the rates are beta_t = sigmoid(w_t).
    It starts at a fixed schedule; a rate of 1, with infinite w, starts at 1 - 1e-6. `Gaussian` reads the current rates
    in every call. `Binomial` stores tables of its rates: make a new one for each training step.
    """

    def __init__(self, start: Schedule) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.logit(start.betas.clamp(max=1 - 1e-6)))  # (T,), float64

    @property
    def T(self) -> int:
        return len(self.w)

    @property
    def betas(self) -> Tensor:
        return torch.sigmoid(self.w.double())

    def beta(self, t: Steps) -> Tensor:
        return Schedule(self.betas).beta(t)

    def alpha_bar(self, t: Steps) -> Tensor:
        return Schedule(self.betas).alpha_bar(t)
