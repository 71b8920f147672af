"""Draws the paper's Figure 2 and learned noise schedules."""

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from recfusion.paper.diffusion_figure import Chains
from recfusion.paper.schedule_figure import ScheduleCourse
from recfusion.report.figures import EDGE, FAINT, IMAGE, INK, QUIET, blank

# Of Figure 2, in pixels: with 100 items and 30 users, an entry is 3 wide and 6 high, so that none is smeared.
_WIDE, _HIGH, _NEXT, _BELOW = 300, 180, 318, 228

_LEFT, _RIGHT, _HEAD, _TITLE = 350, 190, 190, 84

_BLOCK = _TITLE + 2 * _BELOW + 8


def draw_diffusion(shown: Sequence[Chains], name: str, epochs: int) -> Figure:
    """Return both chains of every option, the noise on top and the learned way back below, at the steps t = 0..T."""
    n_steps, n_users, n_items = shown[0].forward.shape
    right = _LEFT + n_steps * _NEXT - _NEXT + _WIDE
    width, height = right + _RIGHT, _HEAD + len(shown) * _BLOCK + 20
    figure, axes = blank(width, height)
    axes.text(36, 61, f"Binomial diffusion on {name}", fontsize=15, color=INK, weight="bold")
    explained = (
        f"Each picture shows {n_users} test users (rows, the most active on top) and the {n_items} most popular items "
        f"(columns, from the left).  T = {n_steps - 1}.  One network for each option, trained for {epochs} "
        f"epoch{'s' * (epochs != 1)} on the training users."
    )
    axes.text(36, 105, explained, fontsize=9.5, color=QUIET)
    for t in range(n_steps):
        remark = {0: " (data)", n_steps - 1: " (most noise)"}.get(t, "")
        middle = _LEFT + t * _NEXT + _WIDE / 2
        axes.text(middle, _HEAD - 24, f"$t = {t}${remark}", fontsize=10.5, color=INK, ha="center")
    for number, chains in enumerate(shown):
        _draw_chains(axes, chains, _HEAD + number * _BLOCK)
    bottom = height - 76
    scale = figure.add_axes(((right + 40) / width, 1 - bottom / height, 26 / width, (bottom - _HEAD - _TITLE) / height))
    bar = figure.colorbar(axes.images[0], cax=scale, ticks=[0, 0.5, 1], format="%g")
    bar.outline.set_visible(False)
    bar.set_label("forward: $x^t$, 0 or 1;   reverse: probability of a 1", size=10, color=INK)
    scale.tick_params(labelsize=9.5, labelcolor=INK, color=QUIET, length=3)
    return figure


def _draw_chains(axes: Axes, chains: Chains, top: float) -> None:
    axes.axhline(top, 36 / axes.get_xlim()[1], 1 - (_RIGHT / axes.get_xlim()[1]), color=FAINT, linewidth=0.8)
    axes.text(36, top + 58, f"({chains.option.name}) {chains.option.title}", fontsize=12, color=INK, weight="bold")
    axes.text(_LEFT + 90, top + 56, chains.option.remark, fontsize=10, color=QUIET)
    rows = (
        (chains.forward, "forward  →", r"$q(x^t \mid x^{t-1})$"),
        (chains.reverse, "←  learned reverse", r"$p_\theta(x^{t-1} \mid x^t)$"),
    )
    for number, (chain, name, formula) in enumerate(rows):
        y = top + _TITLE + number * _BELOW
        axes.text(_LEFT - 22, y + 81, name, fontsize=11, color=INK, ha="right")
        axes.text(_LEFT - 22, y + 119, formula, fontsize=9.5, color=QUIET, ha="right")
        for t, entries in enumerate(chain):
            x = _LEFT + t * _NEXT
            axes.imshow(entries, extent=(x, x + _WIDE, y + _HIGH, y), **IMAGE)
            mean = f"mean {entries.mean():.3f}"
            axes.text(x + _WIDE / 2, y + _HIGH + 25, mean, fontsize=7.5, color=QUIET, ha="center")


def draw_schedules(courses: Sequence[ScheduleCourse], name: str) -> Figure:
    """Return a row of two panels for each process: its rates over training, and the bound with and without them."""
    figure = Figure(figsize=(9, 0.6 + 2.5 * len(courses)), layout="constrained")
    panels = figure.subplots(len(courses), 2, squeeze=False)
    for (left, right), course in zip(panels, courses, strict=True):
        n_epochs, n_steps = course.betas.shape[0] - 1, course.betas.shape[1]
        colours = colormaps["viridis"](np.linspace(0.05, 0.9, n_steps))
        for t, (rates, colour) in enumerate(zip(course.betas.T, colours, strict=True), start=1):
            left.plot(range(n_epochs + 1), rates, color=colour, label=rf"$\beta_{{{t}}}$")
        left.set_ylabel("noise rate", fontsize=9, color=INK)
        left.set_title(f"{course.process}: learned rates", fontsize=10, color=INK, loc="left")
        left.legend(fontsize=7, ncols=2, frameon=False)
        epochs = range(1, n_epochs + 1)
        right.plot(epochs, course.fixed, color=QUIET, linestyle="--", label="fixed rates")
        right.plot(epochs, course.learned, color=EDGE, label="learned rates")
        right.set_ylabel("nats per test user", fontsize=9, color=INK)
        right.set_title("the bound of -log p", fontsize=10, color=INK, loc="left")
        right.legend(fontsize=8, frameon=False)
        for panel in (left, right):
            panel.grid(color="#e4e8ec", linewidth=0.7)
            panel.tick_params(labelsize=8, colors=QUIET, length=0)
            panel.spines[["top", "right"]].set_visible(False)
            panel.set_xlabel(f"epoch on {name}", fontsize=9, color=INK, parse_math=False)
    return figure
