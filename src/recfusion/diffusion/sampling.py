"""Samplers: the forward chain, the paper's single reverse step, ancestral sampling, and inpainting.

The `_steps` forms are generators, for pictures of the way; the plain forms return the end of it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from recfusion.core.errors import InputError, choices
from recfusion.diffusion.distributions import Entries
from recfusion.diffusion.process import Denoiser, Process, same_step

KnownAs = Literal["noised", "clean"]


@dataclass(frozen=True)
class Step:
    """x^t on the way from x^T to x^0, and the mean of the distribution that it was drawn from."""

    t: int
    x: Tensor
    mean: Tensor


def forward_steps(process: Process, x0: Tensor, rng: torch.Generator | None) -> Iterator[Tensor]:
    """Yield x^0, x^1, ..., x^T, each drawn from q(x^t | x^{t-1})."""
    x = x0
    yield x
    for t in range(1, process.T + 1):
        x = process.q_step(x, t).draw(rng)
        yield x


def one_step(process: Process, denoiser: Denoiser, x1: Tensor) -> Entries:
    """p_theta(x^0 | x^1 = x1): the paper's way to recommend, the known history taken for x^1.

    Its mean ranks the entries. With a binomial process that predicts x^0, it is xhat_0 where x^1 = 0.
    """
    return _reverse(process, denoiser, x1, 1)


def ancestral(process: Process, denoiser: Denoiser, shape: Sequence[int], rng: torch.Generator | None) -> Tensor:
    """Sample p_theta(x^0): x^T from the prior, then every reverse step."""
    return _last(ancestral_steps(process, denoiser, shape, rng))


def ancestral_steps(
    process: Process, denoiser: Denoiser, shape: Sequence[int], rng: torch.Generator | None
) -> Iterator[Step]:
    """Yield x^T, ..., x^0 of an ancestral sample."""
    prior = process.prior(shape, device=None if rng is None else rng.device)
    step = Step(process.T, prior.draw(rng), prior.mean)
    yield step
    for t in range(process.T, 0, -1):
        reverse = _reverse(process, denoiser, step.x, t)
        step = Step(t - 1, reverse.draw(rng), reverse.mean)
        yield step


def inpaint(
    process: Process,
    denoiser: Denoiser,
    known: Tensor,
    mask: Tensor,
    rng: torch.Generator | None,
    repeats: int = 1,
    known_as: KnownAs = "noised",
) -> Tensor:
    """Sample the entries of x^0 where mask is false, given those where it is true; see `inpaint_steps`."""
    return _last(inpaint_steps(process, denoiser, known, mask, rng, repeats, known_as))


def inpaint_steps(
    process: Process,
    denoiser: Denoiser,
    known: Tensor,
    mask: Tensor,
    rng: torch.Generator | None,
    repeats: int = 1,
    known_as: KnownAs = "noised",
) -> Iterator[Step]:
    """Yield x^T, ..., x^0 of an ancestral sample whose known entries (mask true) are set at every step.

    known_as = "noised": they follow the forward chain's own law, x^T ~ q(x^T | x^0) and then q(x^{t-1} | x^t, x^0), so
    that the denoiser sees what it was trained on at every t; under thinning a known one appears once and stays.
    "clean": they hold their values of x^0 at every step; under thinning a known one is 1 throughout.
    repeats > 1 takes each step so many times, going forward by q(x^t | x^{t-1}) in between (RePaint, Lugmayr et al.,
    2022): unknown entries that disagreed with the known ones get a chance to settle.
    """
    if known_as not in get_args(KnownAs):
        raise choices("known_as", known_as, get_args(KnownAs))
    if known.shape != mask.shape or mask.dtype != torch.bool or repeats < 1:
        raise InputError(
            f"Expected a boolean mask of shape {tuple(known.shape)} and repeats >= 1, got {mask.dtype} "
            f"{tuple(mask.shape)} and {repeats}: make them agree."
        )
    prior = process.prior(known.shape, known.dtype, known.device)
    noised = process.q_sample(known, process.T, rng) if known_as == "noised" else known
    step = Step(process.T, torch.where(mask, noised, prior.draw(rng)), torch.where(mask, known, prior.mean))
    yield step
    for t in range(process.T, 0, -1):
        xt = step.x
        for visit in range(repeats):
            if visit > 0:
                again = process.q_step(step.x, t).draw(rng)
                xt = again if known_as == "noised" else torch.where(mask, known, again)
            reverse = _reverse(process, denoiser, xt, t)
            keep_noised = known_as == "noised" and t > 1
            held = process.q_posterior(known, xt, t).draw(rng) if keep_noised else known
            step = Step(t - 1, torch.where(mask, held, reverse.draw(rng)), torch.where(mask, known, reverse.mean))
        yield step


def _reverse(process: Process, denoiser: Denoiser, xt: Tensor, t: int) -> Entries:
    with torch.no_grad():
        steps = same_step(t, xt)
        return process.p_reverse(denoiser(xt, steps), xt, steps)


def _last(steps: Iterator[Step]) -> Tensor:
    *_, last = steps
    return last.x
