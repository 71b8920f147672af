"""Training curves as small panels, one for each model: the validation metric after each epoch, a line per split."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from recfusion.report.charts import ticks
from recfusion.report.svg import circle, group, line, path, svg, text

WIDTH, HEIGHT = 240.0, 150.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 28.0, 8.0, 10.0, 34.0


def known_epochs(curve: Mapping[str, Any]) -> list[tuple[int, float]]:
    """Return the epochs of a curve that were judged, with the metric in percent."""
    both = zip(curve["epoch"], curve["metric"], strict=True)
    return [(int(epoch), 100 * float(value)) for epoch, value in both if value is not None]


def curve_panel(curves: Sequence[Mapping[str, Any]], *, ident: str, title: str, top: float) -> Markup:
    """Return the panel of one model; its best epoch on each split has a dot, and the scale runs from 0 past `top`."""
    lines = [(curve["seed"], points) for curve in curves if (points := known_epochs(curve))]
    marks = ticks(top)
    last = max((epoch for _, points in lines for epoch, _ in points), default=1)

    def across(epoch: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * (epoch - 1) / max(1, last - 1)

    def up(value: float) -> float:
        return HEIGHT - _BOTTOM - (HEIGHT - _BOTTOM - _TOP) * value / marks[-1]

    parts = [line(_LEFT, up(mark), WIDTH - _RIGHT, up(mark), "grid" if mark else "axis") for mark in marks]
    parts += [text(_LEFT - 6, up(mark) + 4, f"{mark:g}", "tick", "end") for mark in marks]
    parts.append(text(across(1), HEIGHT - _BOTTOM + 15, "1", "tick", "middle"))
    if last > 1:
        parts.append(text(across(last), HEIGHT - _BOTTOM + 15, str(last), "tick", "end"))
    parts.append(text((_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 4, "epoch", "label", "middle"))
    said = []
    for seed, points in lines:
        best_epoch, best = max(points, key=lambda point: point[1])
        told = f"split {seed}: best {best:.2f} in epoch {best_epoch} of {points[-1][0]}"
        said.append(told)
        drawn = [(across(epoch), up(value)) for epoch, value in points]
        parts.append(group("row", told, [path(drawn, "curve"), circle(across(best_epoch), up(best), 2.6, "mean")]))
    return svg(ident, title, "; ".join(said) + ".", WIDTH, HEIGHT, parts)
