"""Noise schedules beta_1..beta_T: fixed ones by name, one given by its survival curve, and one that is learned."""
# ruff: noqa: N802, N803  (T is the paper's name for the number of steps)

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol, TypeAlias, get_args

import torch
from torch import Tensor, nn

from recfusion.core.errors import InputError, choices

ScheduleName = Literal["linear", "quadratic", "constant", "cosine", "harmonic"]
Steps: TypeAlias = int | Tensor  # t: one step, or one for each example, (batch,)


class NoiseSchedule(Protocol):
    """What a process asks of its schedule; every coefficient is float64 and has the shape of t."""

    @property
    def T(self) -> int: ...
    @property
    def betas(self) -> Tensor: ...  # (T,)
    def beta(self, t: Steps) -> Tensor: ...
    def alpha_bar(self, t: Steps) -> Tensor: ...


def at_step(table: Tensor, t: Steps) -> Tensor:
    """Return the rows of `table` (T + 1, ...) for t in 0..T: the one place where a step becomes an index."""
    t = torch.as_tensor(t, device=table.device if isinstance(t, int) else None)
    last = len(table) - 1
    if bool(((t < 0) | (t > last)).any()):
        raise InputError(f"Expected steps t in 0..{last}, got {int(t.min())}..{int(t.max())}: t runs 1..T.")
    return table.to(t.device)[t]


@dataclass(frozen=True, eq=False)
class Schedule:
    """The noise rates beta_1..beta_T; alpha_t = 1 - beta_t, alpha_bar_t = prod_{s <= t} alpha_s, alpha_bar_0 = 1."""

    betas: Tensor  # (T,), float64

    def __post_init__(self) -> None:
        betas = self.betas.double()
        if betas.ndim != 1 or len(betas) < 1:
            raise InputError(f"Expected T >= 1 noise rates in one row, got shape {tuple(betas.shape)}: choose T >= 1.")
        if not bool(((betas > 0) & (betas <= 1)).all()):  # also true for NaN
            low, high = float(betas.min()), float(betas.max())
            raise InputError(
                f"Expected noise rates beta in (0, 1], got {low:g}..{high:g}: change the schedule's range."
            )
        object.__setattr__(self, "betas", betas)

    @property
    def T(self) -> int:
        return len(self.betas)

    def beta(self, t: Steps) -> Tensor:
        """Return beta_t; step 0 adds no noise, beta_0 = 0."""
        return at_step(self._beta_table, t)

    def alpha_bar(self, t: Steps) -> Tensor:
        """Return alpha_bar_t, the share of the signal that is left after t steps."""
        return at_step(self._alpha_bar_table, t)

    def reversed(self) -> "Schedule":
        """Return the schedule with the same rates in the opposite order.

        Where the last rate is 1 (cosine, harmonic) the reversed chain destroys x^0 in its first step.
        """
        return Schedule(self.betas.flip(0))

    @cached_property
    def _beta_table(self) -> Tensor:
        return torch.cat([self.betas.new_zeros(1), self.betas])  # (T + 1,)

    @cached_property
    def _alpha_bar_table(self) -> Tensor:
        return torch.cumprod(1 - self._beta_table, dim=0)


def linear(T: int, low: float = 1e-4, high: float = 0.1) -> Schedule:
    """Rates evenly spaced from low to high."""
    return Schedule(torch.linspace(low, high, _steps(T), dtype=torch.float64))


def quadratic(T: int, low: float = 1e-4, high: float = 0.1) -> Schedule:
    """Rates whose square roots are evenly spaced from low to high: the published code's schedule."""
    if min(low, high) < 0:
        raise InputError(f"Expected noise rates beta in (0, 1], got {low:g}..{high:g}: change the schedule's range.")
    return Schedule(torch.linspace(math.sqrt(low), math.sqrt(high), _steps(T), dtype=torch.float64) ** 2)


def constant(T: int, beta: float) -> Schedule:
    """The same rate at every step."""
    return Schedule(torch.full((_steps(T),), beta, dtype=torch.float64))


def cosine(T: int, offset: float = 0.008) -> Schedule:
    """Survival alpha_bar_t = f(t)/f(0), f(t) = cos^2((t/T + s)/(1 + s) pi/2) (Nichol and Dhariwal, 2021, eq. 17).

    beta_T = 1 is a legal rate here, so it is not clipped at .999 as in their code.
    """
    t = torch.arange(_steps(T) + 1, dtype=torch.float64)
    f = torch.cos((t / T + offset) / (1 + offset) * math.pi / 2) ** 2
    return from_survival(f[1:] / f[0])


def harmonic(T: int) -> Schedule:
    """Rates beta_t = 1/(T - t + 1), so that alpha_bar_t = 1 - t/T falls in a straight line to 0."""
    return Schedule(1 / torch.arange(_steps(T), 0, -1, dtype=torch.float64))


def from_survival(a: Sequence[float] | Tensor) -> Schedule:
    """The schedule with alpha_bar_t = a_t: beta_t = 1 - a_t/a_{t-1}, a_0 = 1.

    The curve a_1..a_T falls strictly until it ends or reaches 0; after 0 nothing is left to lose, and beta = 1.
    """
    a = torch.as_tensor(a, dtype=torch.float64)
    if a.ndim != 1 or len(a) < 1:
        raise InputError(
            f"Expected a survival curve a_1..a_T with T >= 1, got shape {tuple(a.shape)}: give T >= 1 values."
        )
    before = torch.cat([a.new_ones(1), a[:-1]])
    inside = bool(((a >= 0) & (a <= 1)).all())
    if not inside or not bool(((a < before) | ((a == 0) & (before == 0))).all()):
        shown = ", ".join(f"{value:g}" for value in a[:8].tolist()) + (", ..." if len(a) > 8 else "")
        raise InputError(
            f"Expected a survival curve that falls from below 1 and stays in [0, 1], got {shown}: sort it."
        )
    return Schedule(torch.where(before > 0, 1 - a / torch.where(before > 0, before, 1), 1.0))


SCHEDULES: Mapping[ScheduleName, Callable[[int, float, float], Schedule]] = {
    "linear": linear,
    "quadratic": quadratic,
    "constant": lambda T, _low, high: constant(T, high),
    "cosine": lambda T, _low, _high: cosine(T),
    "harmonic": lambda T, _low, _high: harmonic(T),
}


def make_schedule(
    name: ScheduleName, T: int, low: float = 1e-4, high: float = 0.1, decreasing: bool = False
) -> Schedule:
    """Return a fixed schedule by name.

    linear and quadratic rise from `low` to `high`; constant stays at `high`; cosine and harmonic have no range to
    choose and read neither. `decreasing` reverses the order of the rates.
    """
    if name not in SCHEDULES:
        raise choices("schedule", name, get_args(ScheduleName))
    schedule = SCHEDULES[name](T, low, high)
    return schedule.reversed() if decreasing else schedule


class LearnedSchedule(nn.Module):
    """A schedule whose survival curve is trained: log alpha_bar_t = -sum_{s <= t} softplus(w_s), w unconstrained.

    Every strictly falling curve is reached and none else, because softplus is positive; the rates are simply
    beta_t = sigmoid(w_t). It starts at a fixed schedule; a rate of 1, whose w is infinite, starts at 1 - 1e-6.
    `Gaussian` reads it anew at every call. `Binomial` keeps tables of its rates: build one per training step.
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

    def current(self) -> Schedule:
        """Return the present rates as a schedule that carries their gradient."""
        return Schedule(self.betas)

    def beta(self, t: Steps) -> Tensor:
        """Return beta_t."""
        return self.current().beta(t)

    def alpha_bar(self, t: Steps) -> Tensor:
        """Return alpha_bar_t."""
        return self.current().alpha_bar(t)


def _steps(T: int) -> int:
    if T < 1:
        raise InputError(f"Expected T >= 1 diffusion steps, got {T}: choose T >= 1.")
    return T
