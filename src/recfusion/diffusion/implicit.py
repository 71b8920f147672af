"""Faster sampling: a chain with fewer steps, and deterministic reverse steps (DDIM)."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from recfusion.core.errors import InputError
from recfusion.diffusion.process import Denoiser, HasJumps, Process, Rng, same_step
from recfusion.diffusion.sampling import ReverseState, last_state
from recfusion.diffusion.schedule import checked_steps


def strided(process: Process, denoiser: Denoiser, steps: int | Sequence[int]) -> tuple[Process, Denoiser]:
    """Return the process at some of its steps only, and the denoiser for it.

    steps: the steps, increasing to T; or their number, spread evenly. The posterior over several steps is closed form,
    so the shorter chain is exact and works with the bound and every sampler.
    """
    jumping = _jumping(process)
    if isinstance(steps, int):
        if not 1 <= steps <= process.T:
            raise InputError(f"Expected 1 to {process.T} steps, got {steps}: choose a number in this range.")
        steps = [-(-process.T * k // steps) for k in range(1, steps + 1)]
    steps = checked_steps(steps, process.T)
    original = torch.tensor([0, *steps])

    def asked(xt: Tensor, t: Tensor) -> Tensor:
        return denoiser(xt, original.to(t.device)[t])

    return jumping.at_steps(steps), asked


def implicit_steps(
    process: Process, denoiser: Denoiser, start: Tensor | Sequence[int], rng: Rng
) -> Iterator[ReverseState]:
    """Yield x^T, ..., x^0 by deterministic steps; nothing is drawn after the first one.

    start: x^T, or the shape of an x^T drawn from the prior. `mean` of a state is its x.
    """
    jumping = _jumping(process)
    x = start if isinstance(start, Tensor) else process.prior(start, device=rng.device if rng else None).draw(rng)
    noise = None
    yield ReverseState(process.T, x, x)
    for t in range(process.T, 0, -1):
        steps = same_step(t, x)
        with torch.no_grad():
            x, noise = jumping.implicit(denoiser(x, steps), x, steps, noise, rng)
        yield ReverseState(t - 1, x, x)


def implicit(process: Process, denoiser: Denoiser, start: Tensor | Sequence[int], rng: Rng) -> Tensor:
    """Sample x^0 by deterministic reverse steps: the last state of `implicit_steps`."""
    return last_state(implicit_steps(process, denoiser, start, rng))


def _jumping(process: Process) -> HasJumps:
    if not isinstance(process, HasJumps):
        got = type(process).__name__
        raise InputError(f"Expected a process with at_steps and implicit, got {got} without them: add them.")
    return process
