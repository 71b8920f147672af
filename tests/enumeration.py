"""Brute force that the diffusion tests compare closed forms with: every path of one entry, every x of a few entries."""

import math
from collections.abc import Iterator
from functools import partial
from itertools import pairwise, product

import torch
from torch import Tensor, nn

from recfusion.diffusion.binomial import Binomial
from recfusion.diffusion.bound import bound_term
from recfusion.diffusion.process import Denoiser, kl, per_example, same_step
from recfusion.diffusion.schedule import Schedule, ScheduleName, from_survival, make_schedule

NAMES: tuple[ScheduleName, ...] = ("linear", "quadratic", "constant", "cosine", "harmonic")
SCHEDULES: dict[str, Schedule] = {
    **{name: make_schedule(name, 5, 0.05, 0.6) for name in NAMES},
    **{f"{name} decreasing": make_schedule(name, 5, 0.05, 0.6, decreasing=True) for name in NAMES},
    "survival": from_survival([0.9, 0.75, 0.3, 0.2, 0.05]),
}
linear, quadratic, cosine, harmonic = (
    partial(make_schedule, name) for name in ("linear", "quadratic", "cosine", "harmonic")
)
CHAINS = ("paper_kernel", "bit_flips", "thinning", "thinning_from_survival", "drift")


def constant(T: int, beta: float) -> Schedule:  # noqa: N803
    return make_schedule("constant", T, high=beta)


def rates(chain: str, schedule: Schedule, mean: float = 0.3) -> tuple[list[float], list[float]]:
    """Return u_1..u_T and d_1..d_T as the constructors define them, in plain Python."""
    betas = schedule.betas.tolist()
    if chain == "thinning_from_survival":  # after the curve has reached 0 nothing is left to lose, and all of it goes
        betas = [beta if math.prod(1 - b for b in betas[:i]) > 0 else 1.0 for i, beta in enumerate(betas)]
    u, d = {
        "paper_kernel": (0.5, 0.5),
        "bit_flips": (1.0, 1.0),
        "thinning": (0.0, 0.5),
        "thinning_from_survival": (0.0, 1.0),
        "drift": (mean, 1 - mean),
    }[chain]
    return [u * beta for beta in betas], [d * beta for beta in betas]


def build(chain: str, schedule: Schedule, mean: float = 0.3) -> Binomial:
    """Return the chain by its constructor."""
    if chain == "thinning_from_survival":
        return Binomial.thinning_from_survival(schedule.alpha_bar(torch.arange(1, schedule.T + 1)))
    if chain == "drift":
        return Binomial.drift(schedule, mean)
    constructors = {
        "paper_kernel": Binomial.paper_kernel,
        "bit_flips": Binomial.bit_flips,
        "thinning": Binomial.thinning,
    }
    return constructors[chain](schedule)


def paths(u: list[float], d: list[float], x0: int) -> Iterator[tuple[tuple[int, ...], float]]:
    """Yield all 2^T paths (x^0, ..., x^T) of one entry with their probabilities."""
    for later in product((0, 1), repeat=len(u)):
        path, probability = (x0, *later), 1.0
        for step, (before, now) in enumerate(pairwise(path)):
            one = 1 - d[step] if before else u[step]
            probability *= one if now else 1 - one
        yield path, probability


def all_bits(n: int) -> Tensor:
    """Return every row of n zeros and ones, (2^n, n), float64."""
    return torch.tensor(list(product((0.0, 1.0), repeat=n)), dtype=torch.float64)


class TinyNet(nn.Module):
    """A small random network (x^t, t) -> logits in float64."""

    def __init__(self, n: int, seed: int, scale: float = 1.0) -> None:
        super().__init__()
        rng = torch.Generator().manual_seed(seed)
        self.inner = nn.Parameter(scale * torch.randn(n + 1, 6, generator=rng, dtype=torch.float64))
        self.outer = nn.Parameter(scale * torch.randn(6, n, generator=rng, dtype=torch.float64))

    def forward(self, xt: Tensor, t: Tensor) -> Tensor:
        """(batch, n), (batch,) -> (batch, n)."""
        return torch.tanh(torch.cat([xt, t[:, None].double() / 3], dim=1) @ self.inner) @ self.outer


def exact_log_likelihood(process: Binomial, denoiser: Denoiser, n: int) -> Tensor:
    """Return log p(x^0) of every x^0 by summing over all x^1..x^T, (2^n,)."""
    states = all_bits(n)
    density = process.prior(states.shape, torch.float64).log_prob(states).sum(1).exp()  # p(x^T)
    for t in range(process.T, 0, -1):
        reverse = process.p_reverse(denoiser(states, same_step(t, states)), states, same_step(t, states))
        # transition[i, j] = p(x^{t-1} = state j | x^t = state i)
        one, zero = reverse.probs[:, None], 1 - reverse.probs[:, None]
        transition = torch.where(states[None] > 0.5, one, zero).prod(2)
        density = density @ transition
    return density.log()


def exact_bound(process: Binomial, denoiser: Denoiser, x0: Tensor) -> Tensor:
    """Return the expectation of the bound by summing over every x^t, (batch,)."""
    states = all_bits(x0.shape[1])
    total = per_example(kl(process.q_marginal(x0, process.T), process.prior(x0.shape, torch.float64)))
    for t in range(1, process.T + 1):
        start = x0.repeat_interleave(len(states), 0)
        xt = states.repeat(len(x0), 1)
        steps = same_step(t, xt)
        weight = process.q_marginal(start, steps).log_prob(xt).sum(1).exp()
        term = bound_term(process, denoiser, start, xt, steps)
        total = total + (weight * term).reshape(len(x0), -1).sum(1)
    return total
