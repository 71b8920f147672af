"""Samplers: the forward chain, the reverse chain, and inpainting by replacement.

Faster and deterministic samplers are in `implicit`. The `_steps` functions
yield every state; the plain functions return the last one.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from recfusion.core.errors import InputError, choices
from recfusion.diffusion.process import Denoiser, Entries, Process, Rng, same_step

KnownAs = Literal["noised", "clean"]


@dataclass(frozen=True)
class ReverseState:
    """x^t in a reverse chain, and the mean of the distribution it was drawn from (a given x^t is its own mean)."""

    t: int
    x: Tensor
    mean: Tensor


def forward_steps(process: Process, x0: Tensor, rng: Rng) -> Iterator[Tensor]:
    """Yield x^0, x^1, ..., x^T, each drawn from q(x^t | x^{t-1})."""
    x = x0
    yield x
    for t in range(1, process.T + 1):
        x = process.q_step(x, t).draw(rng)
        yield x


def reverse_steps(
    process: Process,
    denoiser: Denoiser,
    start: Tensor | Sequence[int],
    rng: Rng,
    *,
    t: int | None = None,
    draw: bool = True,
) -> Iterator[ReverseState]:
    """Yield x^t, x^{t-1}, ..., x^0, each drawn from p_theta(x^{t-1} | x^t), or its mean if `draw` is false.

    start: a given x^t, with its step t (default: T), or the shape of an x^T drawn from the prior.
    """
    first = process.T if t is None else t
    if not 1 <= first <= process.T or not (first == process.T or isinstance(start, Tensor)):
        raise InputError(
            f"Expected a step t in 1..{process.T}, with a tensor x^t if t < {process.T}, got {first}: omit t."
        )
    if isinstance(start, Tensor):
        state = ReverseState(first, start, start)
    else:
        prior = process.prior(start, device=None if rng is None else rng.device)
        state = ReverseState(first, prior.draw(rng) if draw else prior.mean, prior.mean)
    yield state
    for step in range(first, 0, -1):
        reverse = _reverse(process, denoiser, state.x, step)
        state = ReverseState(step - 1, reverse.draw(rng) if draw else reverse.mean, reverse.mean)
        yield state


def denoise(
    process: Process, denoiser: Denoiser, xt: Tensor, rng: Rng, *, t: int | None = None, draw: bool = True
) -> Tensor:
    """Sample p_theta(x^0 | x^t), or follow the means: the last state of `reverse_steps` from a given x^t."""
    return last_state(reverse_steps(process, denoiser, xt, rng, t=t, draw=draw))


def ancestral(process: Process, denoiser: Denoiser, shape: Sequence[int], rng: Rng) -> Tensor:
    """Sample p_theta(x^0): x^T from the prior, then every reverse step."""
    return last_state(reverse_steps(process, denoiser, shape, rng))


def one_step(process: Process, denoiser: Denoiser, x1: Tensor) -> Tensor:
    """Return the mean of p_theta(x^0 | x^1 = x1): the paper's ranking, with the known history as x^1.

    For a binomial process that predicts x^0, it is xhat_0 where x^1 = 0.
    """
    return denoise(process, denoiser, x1, None, t=1, draw=False)


def inpaint(
    process: Process,
    denoiser: Denoiser,
    known: Tensor,
    mask: Tensor,
    rng: Rng,
    repeats: int = 1,
    known_as: KnownAs = "noised",
) -> Tensor:
    """Sample approximately the entries of x^0 where mask is false, given the others; see `inpaint_steps`."""
    return last_state(inpaint_steps(process, denoiser, known, mask, rng, repeats, known_as))


def inpaint_steps(
    process: Process,
    denoiser: Denoiser,
    known: Tensor,
    mask: Tensor,
    rng: Rng,
    repeats: int = 1,
    known_as: KnownAs = "noised",
) -> Iterator[ReverseState]:
    """Yield x^T, ..., x^0 of an ancestral sample in which the known entries (mask true) are replaced at every step.

    This is the *replacement* approximation: the unknown entries follow p_theta(x^{t-1} | x^t), which ignores the final
    values of the known ones, so they depend on them too little.

    known_as = "noised": known entries follow the forward chain, x^T ~ q(x^T | x^0) and then q(x^{t-1} | x^t, x^0), as
    in the denoiser's training. "clean": known entries have their values of x^0 at every step.
    repeats > 1 repeats each step, with a forward step q(x^t | x^{t-1}) in between (RePaint, Lugmayr et al., 2022), so
    that unknown entries can adapt to the known ones.
    """
    if known_as not in get_args(KnownAs):
        raise choices("known_as", known_as, get_args(KnownAs))
    check_mask(known, mask)
    if repeats < 1:
        raise InputError(f"Expected repeats >= 1, got {repeats}: 1 takes each step once.")
    prior = process.prior(known.shape, known.dtype, known.device)
    noised = process.q_sample(known, process.T, rng) if known_as == "noised" else known
    state = ReverseState(process.T, torch.where(mask, noised, prior.draw(rng)), torch.where(mask, known, prior.mean))
    yield state
    for t in range(process.T, 0, -1):
        xt = state.x
        for visit in range(repeats):
            if visit > 0:
                again = process.q_step(state.x, t).draw(rng)
                xt = again if known_as == "noised" else torch.where(mask, known, again)
            reverse = _reverse(process, denoiser, xt, t)
            keep_noised = known_as == "noised" and t > 1
            held = process.q_posterior(known, xt, t).draw(rng) if keep_noised else known
            state = ReverseState(
                t - 1, torch.where(mask, held, reverse.draw(rng)), torch.where(mask, known, reverse.mean)
            )
        yield state


def check_mask(known: Tensor, mask: Tensor) -> None:
    """Raise unless the mask is boolean and has the shape of the known entries."""
    if known.shape != mask.shape or mask.dtype != torch.bool:
        got = f"{mask.dtype} {tuple(mask.shape)}"
        raise InputError(f"Expected a boolean mask of shape {tuple(known.shape)}, got {got}: convert it.")


def _reverse(process: Process, denoiser: Denoiser, xt: Tensor, t: int) -> Entries:
    with torch.no_grad():
        steps = same_step(t, xt)
        return process.p_reverse(denoiser(xt, steps), xt, steps)


def last_state(steps: Iterator[ReverseState]) -> Tensor:
    """Return the x of the last state, without storing the others."""
    return deque(steps, maxlen=1)[0].x
