"""The box plot of a comparison over its splits, as in the paper's figure of ML-1M, with the paper's values as marks."""

from typing import TYPE_CHECKING

from recfusion.evaluation.metrics import is_descriptive
from recfusion.experiments.comparison import Comparison
from recfusion.report.figures import INK, QUIET

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BOX, EDGE, PAPER = "#d6e6f5", "#2f6596", "#c2541b"
BOX_PLOT_FROM = 5  # splits: quartiles of fewer are guesses
LEFT_OUT = "random"  # near 0: with it, the differences between the others could not be seen


def draw_boxes(comparison: Comparison) -> "Figure":
    """Return a panel for each metric: a box over each model's splits, the best on top; a diamond is the paper's value.

    Boxes are quartiles, whiskers reach the lowest and the highest split, and dots are the splits; where these are too
    few for quartiles, a line marks their median. Random is left out where there are others, as in the paper.
    """
    from matplotlib.figure import Figure

    models = comparison.models
    metrics = [metric for metric in comparison.metrics if not is_descriptive(metric)] or comparison.metrics
    order = [label for label in comparison.ranked() if models[label].model != LEFT_OUT or len(models) == 1]
    figure = Figure(figsize=(2.2 + 2.6 * len(metrics), 1.1 + 0.27 * len(order)), layout="constrained")
    panels = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
    paper = comparison.paper.models if comparison.paper else {}
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
                whiskerprops={"color": EDGE, "linewidth": 0.8},
                capprops={"color": EDGE, "linewidth": 0.8},
            )
        for place, its in enumerate(values):
            panel.plot(its, [place] * len(its), ".", color=INK, markersize=3, alpha=0.6)
            if place not in boxed:
                panel.plot(
                    [100 * models[order[place]].metrics[metric].median],
                    [place],
                    "|",
                    color=EDGE,
                    markersize=9,
                    markeredgewidth=1.4,
                )
        theirs = [
            (100 * paper[name][metric], place) for place, name in enumerate(order) if metric in paper.get(name, {})
        ]
        if theirs:
            panel.plot(*zip(*theirs, strict=True), "D", color=PAPER, markersize=4, label="paper", zorder=4)
        panel.set_xlabel(metric, fontsize=9, color=INK)
        panel.grid(axis="x", color="#e4e8ec", linewidth=0.7)
        panel.set_axisbelow(True)
        panel.tick_params(labelsize=8, colors=QUIET, length=0)
        for side in ("top", "right", "left"):
            panel.spines[side].set_visible(False)
    most = len(comparison.seeds)
    n_splits = {label: len(models[label].seeds) for label in order}
    labels = [name if n == most else f"{name} ({n} split{'s' * (n > 1)})" for name, n in n_splits.items()]
    panels[0].set_yticks(range(len(order)), labels, color=INK)
    for label in panels[0].get_yticklabels():
        label.set_parse_math(False)
    panels[0].set_ylim(len(order) - 0.4, -0.6)
    handles, named = panels[-1].get_legend_handles_labels()
    if handles:
        figure.legend(handles, named, loc="outside upper right", fontsize=8, frameon=False)
    return figure
