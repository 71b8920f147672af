"""Figures as PNG and SVG files: shared colours and functions, and the box plot over splits."""

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
from recfusion.report.formats import counted

SUFFIXES = (".png", ".svg")
DPI = 200
INK, QUIET, FAINT = "#1b1f24", "#5b6570", "#d5dbe1"
BOX, EDGE, PAPER = "#d6e6f5", "#2f6596", "#c2541b"
GRID: dict[str, Any] = {"color": "#e4e8ec", "linewidth": 0.7}
IMAGE: dict[str, Any] = {"cmap": "viridis", "vmin": 0, "vmax": 1, "aspect": "auto", "interpolation": "none"}
LEFT_OUT = "random"  # near 0: its scale would hide the differences between the others


def blank(width: float, height: float) -> tuple[Figure, Axes]:
    """Return a white figure of width x height pixels, and axes in pixels; y runs down."""
    figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0), autoscale_on=False)
    axes.set_axis_off()
    return figure, axes


def check_figure_path(path: Path) -> None:
    """Raise if a figure cannot be written to `path`."""
    if path.suffix.lower() not in SUFFIXES:
        raise choices("file type of a figure", path.suffix or path.name, SUFFIXES, "out")
    check_writable_file(path)


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a figure as PNG or SVG, as the suffix of `path` says; equal figures give equal files."""
    check_figure_path(path)
    undated = {"Date": None} if path.suffix.lower() == ".svg" else {}
    # With composite_image, SVG images would be resampled and lose their sharp entries.
    with replacing(path) as beside, rc_context({"svg.hashsalt": "recfusion", "image.composite_image": False}):
        figure.savefig(beside, dpi=DPI, metadata=undated)
    return path


def draw_boxes(comparison: Comparison) -> Figure:
    """Draw a panel for each metric with a box over the splits of each model, the best model on top.

    Boxes are quartiles, whiskers reach the lowest and the highest split, dots are the splits, and diamonds are the
    paper's values. With too few splits for quartiles only the median is marked. Random is left out, as in the paper,
    unless it is the only model.
    """
    models, most = comparison.models, len(comparison.seeds)
    metrics = [metric for metric in comparison.metrics if not is_descriptive(metric)] or comparison.metrics
    order = [label for label in comparison.ranked() if models[label].model != LEFT_OUT or len(models) == 1]
    figure = Figure(figsize=(2.2 + 2.6 * len(metrics), 1.1 + 0.27 * len(order)), layout="constrained")
    panels = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
    paper = comparison.paper.models if comparison.paper else {}
    for panel, metric in zip(panels, metrics, strict=True):
        for place, found in enumerate(models[label].metrics[metric] for label in order):
            splits, (first, third) = [100 * value for value in found.splits], (100 * end for end in found.iqr)
            boxed = len(splits) >= BOX_PLOT_FROM
            if boxed:
                panel.plot([min(splits), max(splits)], [place, place], color=EDGE, linewidth=0.8, zorder=1)
                panel.barh(place, third - first, 0.6, first, facecolor=BOX, edgecolor=EDGE, linewidth=0.8, zorder=1.5)
            half = 0.3 if boxed else 0.2
            panel.plot([100 * found.median] * 2, [place - half, place + half], color=EDGE, linewidth=1.4)
            panel.plot(splits, [place] * len(splits), ".", color=INK, markersize=3, alpha=0.6)
        theirs = {place: 100 * paper[name][metric] for place, name in enumerate(order) if metric in paper.get(name, {})}
        if theirs:
            panel.plot(list(theirs.values()), list(theirs), "D", color=PAPER, markersize=4, label="paper", zorder=4)
        panel.set_xlabel(metric, fontsize=9, color=INK)
        panel.grid(axis="x", **GRID)
        panel.set_axisbelow(True)
        panel.tick_params(labelsize=8, colors=QUIET, length=0)
        panel.spines[["top", "right", "left"]].set_visible(False)
    n_splits = {label: len(models[label].seeds) for label in order}
    labels = [name if n == most else f"{name} ({counted(n, 'split')})" for name, n in n_splits.items()]
    panels[0].set_yticks(range(len(order)), labels, color=INK, parse_math=False)
    panels[0].set_ylim(len(order) - 0.4, -0.6)
    handles, named = panels[-1].get_legend_handles_labels()
    if handles:
        figure.legend(handles, named, loc="outside upper right", fontsize=8, frameon=False)
    return figure
