"""Figures as files: shared drawing code, and the box plot over splits."""

from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from recfusion.core.errors import choices
from recfusion.core.files import check_writable_file, replacing
from recfusion.evaluation.metrics import is_descriptive
from recfusion.experiments.comparison import Comparison
from recfusion.report.charts import BOX_PLOT_FROM

SUFFIXES = (".png", ".svg")

DPI = 200

INK, QUIET, FAINT = "#1b1f24", "#5b6570", "#d5dbe1"

IMAGE: dict[str, Any] = {"cmap": "viridis", "vmin": 0, "vmax": 1, "aspect": "auto", "interpolation": "none"}

BOX, EDGE, PAPER = "#d6e6f5", "#2f6596", "#c2541b"

LEFT_OUT = "random"  # near 0: with it, the differences between the others could not be seen


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
