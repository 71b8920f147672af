"""Figures as files: the paper's Figure 2, its box plot over the splits with its own values, and learned schedules."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from recfusion.core.errors import choices
from recfusion.core.files import check_writable_file, replacing
from recfusion.evaluation.metrics import is_descriptive
from recfusion.experiments.comparison import Comparison
from recfusion.experiments.diffusion_figure import Chains
from recfusion.experiments.schedule_figure import ScheduleCourse

SUFFIXES = (".png", ".svg")
DPI = 200
INK, QUIET, FAINT = "#1b1f24", "#5b6570", "#d5dbe1"
IMAGE: dict[str, Any] = {"cmap": "viridis", "vmin": 0, "vmax": 1, "aspect": "auto", "interpolation": "none"}
BOX, EDGE, PAPER = "#d6e6f5", "#2f6596", "#c2541b"
BOX_PLOT_FROM = 5  # splits: quartiles of fewer are guesses
LEFT_OUT = "random"  # near 0: with it, the differences between the others could not be seen

# Of Figure 2, in pixels: with 100 items and 30 users, an entry is 3 wide and 6 high, so that none is smeared.
_WIDE, _HIGH, _NEXT, _BELOW = 300, 180, 318, 228
_LEFT, _RIGHT, _HEAD, _TITLE = 350, 190, 190, 84
_BLOCK = _TITLE + 2 * _BELOW + 8


def blank(width: float, height: float) -> tuple[Figure, Axes]:
    """Return a white figure of width x height pixels, and axes measured in them; y runs down."""
    figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0), autoscale_on=False)
    axes.set_axis_off()
    return figure, axes


def check_figure_path(path: Path) -> None:
    """Raise unless a figure can be written to `path`; makes nothing."""
    if path.suffix.lower() not in SUFFIXES:
        raise choices("file type of a figure", path.suffix or path.name, SUFFIXES)
    check_writable_file(path)


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a figure as PNG or SVG, by the suffix of `path`; equal figures make equal files."""
    check_figure_path(path)
    undated = {"Date": None} if path.suffix.lower() == ".svg" else {}
    # Composed into one, the images of an SVG would be resampled and lose their sharp entries.
    with replacing(path) as beside, rc_context({"svg.hashsalt": "recfusion", "image.composite_image": False}):
        figure.savefig(beside, dpi=DPI, metadata=undated)
    return path


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


def draw_boxes(comparison: Comparison) -> Figure:
    """Return a panel for each metric: a box over each model's splits, the best on top; a diamond is the paper's value.

    Boxes are quartiles, whiskers reach the lowest and the highest split, and dots are the splits; where these are too
    few for quartiles, a line marks their median. Random is left out where there are others, as in the paper.
    """
    models, most = comparison.models, len(comparison.seeds)
    metrics = [metric for metric in comparison.metrics if not is_descriptive(metric)] or comparison.metrics
    order = [label for label in comparison.ranked() if models[label].model != LEFT_OUT or len(models) == 1]
    figure = Figure(figsize=(2.2 + 2.6 * len(metrics), 1.1 + 0.27 * len(order)), layout="constrained")
    panels = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
    paper = comparison.paper.models if comparison.paper else {}
    line = {"color": EDGE, "linewidth": 0.8}
    for panel, metric in zip(panels, metrics, strict=True):
        values = [[100 * value for value in models[label].metrics[metric].splits] for label in order]
        boxed = {place: its for place, its in enumerate(values) if len(its) >= BOX_PLOT_FROM}
        if boxed:
            panel.boxplot(
                list(boxed.values()),
                positions=list(boxed),
                orientation="horizontal",
                whis=(0, 100),
                widths=0.6,
                patch_artist=True,
                manage_ticks=False,
                boxprops={"facecolor": BOX, "edgecolor": EDGE, "linewidth": 0.8},
                medianprops={"color": EDGE, "linewidth": 1.4},
                whiskerprops=line,
                capprops=line,
            )
        for place, its in enumerate(values):
            panel.plot(its, [place] * len(its), ".", color=INK, markersize=3, alpha=0.6)
            if place not in boxed:
                median = 100 * models[order[place]].metrics[metric].median
                panel.plot([median], [place], "|", color=EDGE, markersize=9, markeredgewidth=1.4)
        theirs = {place: 100 * paper[name][metric] for place, name in enumerate(order) if metric in paper.get(name, {})}
        if theirs:
            panel.plot(list(theirs.values()), list(theirs), "D", color=PAPER, markersize=4, label="paper", zorder=4)
        panel.set_xlabel(metric, fontsize=9, color=INK)
        panel.grid(axis="x", color="#e4e8ec", linewidth=0.7)
        panel.set_axisbelow(True)
        panel.tick_params(labelsize=8, colors=QUIET, length=0)
        panel.spines[["top", "right", "left"]].set_visible(False)
    n_splits = {label: len(models[label].seeds) for label in order}
    labels = [name if n == most else f"{name} ({n} split{'s' * (n > 1)})" for name, n in n_splits.items()]
    panels[0].set_yticks(range(len(order)), labels, color=INK, parse_math=False)
    panels[0].set_ylim(len(order) - 0.4, -0.6)
    handles, named = panels[-1].get_legend_handles_labels()
    if handles:
        figure.legend(handles, named, loc="outside upper right", fontsize=8, frameon=False)
    return figure
