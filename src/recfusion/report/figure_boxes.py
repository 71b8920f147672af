"""The box plot of a comparison over its splits, as in the paper's figure of ML-1M, with the paper's values as marks."""

from statistics import median
from typing import TYPE_CHECKING, Any

from recfusion.report.charts import BOX_PLOT_FROM
from recfusion.report.document import Document, is_descriptive, mean_of, metric_names, ranked
from recfusion.report.figures import INK, QUIET

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BOX, EDGE, PAPER = "#d6e6f5", "#2f6596", "#c2541b"
LEFT_OUT = "random"  # near 0: with it, the differences between the others could not be seen


def draw_boxes(document: Document) -> "Figure":
    """Return a panel for each metric: a box over each model's splits, the best on top; a diamond is the paper's value.

    Boxes are quartiles, whiskers reach the lowest and the highest split, and dots are the splits; where these are too
    few for quartiles, a line marks their median. Random is left out where there are others, as in the paper.
    """
    from matplotlib.figure import Figure

    models = document["models"]
    metrics = [metric for metric in metric_names(models) if not is_descriptive(metric)] or metric_names(models)
    order = [name for name in ranked(models) if models[name].get("model", name) != LEFT_OUT or len(models) == 1]
    figure = Figure(figsize=(2.2 + 2.6 * len(metrics), 1.1 + 0.27 * len(order)), layout="constrained")
    panels = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
    paper = (document.get("paper") or {}).get("models", {})
    for panel, metric in zip(panels, metrics, strict=True):
        known = [(place, name) for place, name in enumerate(order) if mean_of(models[name].get(metric)) is not None]
        values = {place: _splits(models[name][metric]) for place, name in known}
        boxed = {place: its for place, its in values.items() if len(its) >= BOX_PLOT_FROM}
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
        for place, its in values.items():
            panel.plot(its, [place] * len(its), ".", color=INK, markersize=3, alpha=0.6)
            if place not in boxed:
                panel.plot([median(its)], [place], "|", color=EDGE, markersize=9, markeredgewidth=1.4)
        theirs = [(100 * paper[name][metric], place) for place, name in known if metric in paper.get(name, {})]
        if theirs:
            panel.plot(*zip(*theirs, strict=True), "D", color=PAPER, markersize=4, label="paper", zorder=4)
        panel.set_xlabel(metric, fontsize=9, color=INK)
        panel.grid(axis="x", color="#e4e8ec", linewidth=0.7)
        panel.set_axisbelow(True)
        panel.tick_params(labelsize=8, colors=QUIET, length=0)
        for side in ("top", "right", "left"):
            panel.spines[side].set_visible(False)
    panels[0].set_yticks(range(len(order)), [_label(models[name], name, document) for name in order], color=INK)
    panels[0].set_ylim(len(order) - 0.4, -0.6)
    if paper:
        handles, labels = panels[-1].get_legend_handles_labels()
        if handles:
            figure.legend(handles, labels, loc="outside upper right", fontsize=8, frameon=False)
    return figure


def _splits(summary: dict[str, Any]) -> list[float]:
    return [100 * value for value in summary.get("splits") or (summary["mean"],)]


def _label(entry: dict[str, Any], name: str, document: Document) -> str:
    """Return a model's name, with its number of splits where it has fewer than others."""
    most = max(model.get("n_splits") or 1 for model in document["models"].values())
    own = entry.get("n_splits") or 1
    return name if own == most else f"{name} ({own} split{'s' * (own > 1)})"
