"""Schedules.

How much of the signal survives to step t under each fixed schedule with 50 steps.
"""

import torch
from drawing import COLOURS, Figure, figure

import recfusion as rf


def draw() -> Figure:
    shown, axes = figure()
    times = torch.arange(1, 51)
    for name, colour in zip(("linear", "quadratic", "constant", "cosine", "harmonic"), COLOURS, strict=False):
        axes.plot(times, rf.diffusion.make_schedule(name, T=50).alpha_bar(times), color=colour, label=name)  # type: ignore[arg-type]
    axes.set(xlabel="t", ylabel="survival", ylim=(0, 1.02))
    axes.legend(frameon=False)
    return shown
