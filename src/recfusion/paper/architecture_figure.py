"""The paper's Figure 1: the pipeline that all variants share."""

from collections.abc import Iterable
from textwrap import wrap
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path

from recfusion.models import registry
from recfusion.models.recfusion.recfusion import RecFusion
from recfusion.report.figures import FAINT, IMAGE, INK, QUIET, blank

_FORWARD_EDGE, _TRAINING_EDGE = "#4f86b8", "#8a68b5"
_SHOWN = ("process", "net", "variance", "objective")  # settings whose values are in the figure


def recfusion_variants() -> dict[str, RecFusion]:
    """Return the RecFusion models of the registry with their default settings, by name."""
    made = {name: registry.make_model(name) for name in registry.MODELS}
    return {name: model for name, model in made.items() if isinstance(model, RecFusion)}


def choices(variants: Iterable[RecFusion], setting: str) -> list[str]:
    """Return the distinct values of a setting among the variants; only Gaussian noise has a variance."""
    used = (model for model in variants if setting != "variance" or model.process == "gaussian")
    return list(dict.fromkeys(str(getattr(model, setting)) for model in used))


_MARGIN = 40  # pixels
_MIDDLE: dict[str, Any] = {"ha": "center", "va": "center"}


def architecture_figure() -> Figure:
    """Draw the pipeline of the variants in the registry; docs/how-to/diffusion.md has their settings."""
    variants = recfusion_variants()
    figure, axes = blank(2640, 540)
    axes.text(_MARGIN, 66, "The RecFusion family", fontsize=15, color=INK, weight="bold")
    axes.text(_MARGIN, 110, ", ".join(variants), fontsize=10, color=QUIET)
    _draw_pipeline(axes, {setting: choices(variants.values(), setting) for setting in _SHOWN})
    return figure


def _draw_pipeline(axes: Axes, shown: dict[str, list[str]]) -> None:
    """Draw x^0 -> q -> x^t -> network -> p -> ranking, with the settings of the variants in the boxes."""
    wide, narrow, tall, y = 400.0, 250.0, 170.0, 310.0
    widths = [narrow, wide, narrow, wide, wide, narrow]
    gap = (axes.get_xlim()[1] - 2 * _MARGIN - sum(widths)) / 5
    lefts = [_MARGIN + sum(widths[:place]) + place * gap for place in range(6)]
    history, _, noise, _, step, ranking = (left + width / 2 for left, width in zip(lefts, widths, strict=True))
    clean, noised = [0, 1, 0, 0, 1, 1, 0, 0, 1, 0], [0.2, 0.7, 0.1, 0.5, 0.8, 0.4, 0.3, 0.1, 0.9, 0.4]
    for values, x, name in ((clean, history, "a user's row  $x^0$"), (noised, noise, "with noise  $x^t$")):
        axes.imshow([values], extent=(x - narrow / 2, x + narrow / 2, y + 25, y - 25), **IMAGE)
        axes.text(x, y + 66, name, fontsize=10.5, color=INK, ha="center")
    boxes = (
        ("forward process", "#d6e6f5", _FORWARD_EDGE, lefts[1], r"$q(x^t \mid x^0)$", shown["process"]),
        ("network", "#dcefd3", "#5f9e4a", lefts[3], r"$f_\theta(x^t, t)$", shown["net"]),
        ("reverse step", "#fbe3cc", "#d08a45", lefts[4], r"$p_\theta(x^{t-1} \mid x^t)$", shown["variance"]),
    )
    for name, fill, edge, left, formula, found in boxes:
        _box(axes, left, y - tall / 2, wide, tall, fill, edge=edge, rounded=14)
        used, x = "\n".join(wrap(" | ".join(found), 26)), left + wide / 2
        axes.text(x, y - 43, name, fontsize=11.5, color=INK, weight="bold", ha="center")
        axes.text(x, y + 3, formula, fontsize=11, color=INK, ha="center")
        axes.text(x, y + 46, used, fontsize=9.5, color=QUIET, linespacing=1.35, **_MIDDLE)
    for place, share in enumerate((1, 0.75, 0.55, 0.4, 0.25)):
        _box(axes, lefts[5], y - 60 + 24 * place, share * narrow, 16, _FORWARD_EDGE if place < 3 else FAINT)
    axes.text(ranking, y + 96, "ranked items", fontsize=10.5, color=INK, ha="center")
    for place in range(5):
        _arrow(axes, QUIET, (lefts[place] + widths[place] + 8, y), (lefts[place + 1] - 8, y))
    above, below = y - tall / 2 - 50, y + tall / 2 + 50
    _arrow(axes, QUIET, (history, y - 34), (history, above), (noise, above), (noise, y - 34))
    told = "to recommend: the history is taken for $x^1$"
    axes.text((history + noise) / 2, above - 14, told, fontsize=10, color=INK, ha="center")
    _arrow(axes, _TRAINING_EDGE, (step, y + tall / 2 + 6), (step, below), (history, below), (history, y + 78))
    told = f"training compares with $x^0$:  {'  |  '.join(shown['objective'])}"
    axes.text((history + step) / 2, below + 36, told, fontsize=10, color=INK, ha="center")


def _arrow(axes: Axes, colour: str, *points: tuple[float, float]) -> None:
    axes.add_patch(FancyArrowPatch(path=Path(points), arrowstyle="-|>", mutation_scale=11, color=colour, linewidth=1.3))


def _box(
    axes: Axes, x: float, y: float, width: float, height: float, fill: str, *, edge: str = "none", rounded: float = 0
) -> None:
    """Draw a filled rectangle with its upper left corner at (x, y)."""
    shape = f"round,pad=0,rounding_size={rounded}" if rounded else "square,pad=0"
    axes.add_patch(FancyBboxPatch((x, y), width, height, shape, facecolor=fill, edgecolor=edge, linewidth=1.2))
