"""The charts of the page: differences to the reference, means with their splits, costs, and training curves."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from markupsafe import Markup
from matplotlib.axes import Axes

from recfusion.evaluation.significance import Summary
from recfusion.experiments.comparison import Comparison
from recfusion.report import drawing, sections
from recfusion.report.drawing import ACCENT, BELOW, INK, PAPER, RULE, SOFT, write
from recfusion.report.figures import BOX_PLOT_FROM
from recfusion.report.formats import p_text

_WIDE, _NARROW = 400.0, 330.0  # of charts; a phone has about 360
_VALUE, _SCALE = 44.0, 26.0  # room for the numbers on the right and below
_TICK = 46.0  # from mark to mark on a scale of costs, at the least
_CURVE = (170.0, 110.0)


@dataclass(frozen=True)
class Chart:
    """A drawing, and what stands above it."""

    title: str
    svg: Markup


@dataclass(frozen=True)
class Row:
    """A model in a chart, in percent points; `told` is what pointing at it says."""

    label: str
    x: float
    ends: tuple[float, float] | None  # of its interval, where it has one
    text: str
    told: str
    colour: str = INK
    hollow: bool = False
    bold: bool = False
    splits: Summary | None = None

    def reach(self, origin: float) -> float:
        """Return how far from a point the row is drawn."""
        return max(abs(x - origin) for x in self.drawn())

    def drawn(self) -> list[float]:
        """Return every x of the row."""
        return [self.x, *(self.ends or ()), *(100 * value for value in (self.splits.splits if self.splits else ()))]


def difference_chart(comparison: Comparison) -> Chart | None:
    """Return a row per model: its difference to the reference, else to the best, with its 95 % interval."""
    base, tests = sections.base_tests(comparison)
    if not tests:
        return None
    rows = [Row(base, 0.0, (0.0, 0.0), "", f"{base}: what the others are compared with", bold=True)]
    cells = sections.difference_cells(comparison)
    for label, test in tests.items():
        cell, (difference, ends) = cells[label], test.of(label)
        shown = f"{cell.text} ({cell.interval})" if cell.interval else cell.text
        said = f"{label}: {shown}, {p_text(test)}, {sections.splits_text(len(test.seeds))}"
        colour = {"above": ACCENT, "below": BELOW}.get(cell.mark, SOFT)
        rows.append(Row(label, 100 * difference, _percent(ends), cell.text, said, colour, not cell.mark))
    title = f"{comparison.main_metric}: differences to {base}"
    return _row_chart(rows, 0.0, "differences", title, base=base)


def mean_charts(comparison: Comparison) -> list[Chart]:
    """Return a chart for each metric, the main one first: a row per model with its mean, interval and splits."""
    charts: list[Chart] = []
    for metric in sorted(comparison.metrics, key=lambda metric: metric != comparison.main_metric):
        rows = []
        for label, cell in sections.metric_cells(comparison, metric).items():
            found = comparison.models[label].metrics[metric]
            told = f"{label}: {cell.text}" + (f" ({cell.interval})" if cell.interval else "")
            look = (ACCENT if cell.mark else INK, cell.mark == "same", cell.mark == "best")
            rows.append(Row(label, 100 * found.mean, _percent(found.ci95), cell.text, told, *look, found))
        charts.append(_row_chart(rows, max(row.x for row in rows), f"metric{len(charts)}", metric))
    return charts


def _percent(ends: tuple[float, float] | None) -> tuple[float, float] | None:
    return ends and (100 * ends[0], 100 * ends[1])


def _row_chart(rows: Sequence[Row], origin: float, ident: str, title: str, base: str = "") -> Chart:
    """Return the rows from the highest down; far from `origin` they are arrows at the edge, with their interval.

    `base` is what differences are to: they have signs and a line at 0.
    """
    rows = sorted(rows, key=lambda row: -row.x)
    own = max(row.reach(origin) for row in rows if row.x == origin)
    far = near_reach([max(own, row.reach(origin)) for row in rows if row.x != origin] or [own])
    xs = [x for row in rows if row.reach(origin) <= far for x in row.drawn()]
    margin = 0.04 * (max(xs) - min(xs)) or 1.0
    low, high = min(xs) - margin, max(xs) + margin
    names = [row.label for row in rows]
    width, pitch, top = (_WIDE, 21.0, 22.0) if base else (_NARROW, 29.0, 0.0)
    left, height = drawing.room_for(names), pitch * len(rows)
    figure = drawing.sheet(width, top + height + _SCALE)
    axes = drawing.panel(figure, left, top, width - left - _VALUE, height)
    axes.set_xlim(low, high)
    axes.locator_params(axis="x", nbins=7 if base else 5, steps=[1, 2, 5, 10])
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:{'+' if base and abs(x) > 1e-9 else ''}g}".replace("-", "−"))
    axes.grid(axis="x", color=RULE, linewidth=0.8)
    drawing.name_rows(axes, names, bold=[place for place, row in enumerate(rows) if row.bold])
    if base:
        axes.axvline(0, color=SOFT, linewidth=1)
        if -low > high / 3:
            write(axes, 0, -0.6, f"← below {drawing.shorten(base)}", align="right", right=-4, up=9)
        if high > -low / 3:
            write(axes, 0, -0.6, f"above {drawing.shorten(base)} →", align="left", right=4, up=9)
    for place, row in enumerate(rows):
        gid, ends = f"row{place}", row.ends or ()
        told = " to ".join(f"{end:{'+' * bool(base)}.2f}" for end in ends).replace("-", "−")
        write(axes, high, place, row.text, align="right", colour=INK, right=_VALUE)
        if row.reach(origin) > far:
            below = row.x < origin
            edge, arrow = (low, "<") if below else (high, ">")
            axes.plot([edge], [place], arrow, color=row.colour, markersize=7, clip_on=False, gid=gid)
            write(axes, edge, place, told, align="left" if below else "right", right=9 if below else -9)
            continue
        if row.splits is not None:
            _splits(axes, row.splits, place + 0.32, row.colour)
        axes.plot(ends, [place] * len(ends), color=row.colour, linewidth=2, gid=gid)
        _dot(axes, row.x, place, row.colour, gid, hollow=row.hollow)
    return Chart(title, drawing.inline_svg(figure, ident, title, [row.told for row in rows]))


def _splits(axes: Axes, found: Summary, y: float, colour: str) -> None:
    """Draw the means of several splits, from five on with their quartiles and median."""
    splits, (first, third) = [100 * value for value in found.splits], (100 * end for end in found.iqr)
    if len(splits) >= BOX_PLOT_FROM:
        axes.plot([min(splits), max(splits)], [y, y], color=colour, linewidth=1, alpha=0.4)
        axes.barh([y], [third - first], 0.26, [first], facecolor=PAPER, edgecolor=colour, linewidth=0.7)
        axes.plot([100 * found.median] * 2, [y - 0.13, y + 0.13], color=colour, linewidth=1.4)
    if len(splits) > 1:
        axes.plot(splits, [y] * len(splits), "o", color=colour, markersize=3, alpha=0.45, markeredgewidth=0)


def near_reach(reaches: Sequence[float]) -> float:
    """Return how far a scale reaches, given how far each model does.

    To the last gap beyond which models are more than twice as far away; unless that leaves fewer than a third of the
    models, or would stretch the scale less than fourfold.
    """
    found = sorted(reaches)
    for place, (reach, beyond) in reversed(list(enumerate(pairwise(found), 1))):
        if beyond > 2 * reach and found[-1] > 4 * reach and 3 * place >= len(found):
            return reach
    return found[-1]


def cost_chart(comparison: Comparison) -> Chart:
    """Return a row per model, the best first, with its seconds to fit and its parameters on logarithmic scales.

    Those that no better model undercuts are marked and joined.
    """
    metric, order = comparison.main_metric, comparison.ranked()
    models = [comparison.models[label] for label in order]
    means = [sections.points(model.mean(metric), sections.digits_of(comparison, metric)) for model in models]
    told = [
        f"{model.label}: {mean}, {sections.seconds(model.fit_seconds)} s to fit, {model.parameters:,} parameters"
        for model, mean in zip(models, means, strict=True)
    ]
    left, top, height = drawing.room_for(order) + 32, 20.0, 21.0 * len(order)
    figure = drawing.sheet(_WIDE, top + height + _SCALE)
    width = (_WIDE - left - 54) / 2
    costs = {"seconds to fit": [model.fit_seconds for model in models]}
    costs["parameters"] = [float(model.parameters) for model in models]
    for number, (what, values) in enumerate(costs.items()):
        axes = drawing.panel(figure, left + number * (width + 36), top, width, height)
        drawing.name_rows(axes, order if number == 0 else [""] * len(order))
        axes.tick_params(axis="y", pad=35)
        start = _costs(axes, values, width, as_seconds=number == 0)
        write(axes, start, -0.6, what, align="left", right=-5, up=9)
        for place, mean in enumerate(means if number == 0 else ()):
            write(axes, start, place, mean, align="right", right=-9)
    title = f"{metric}, seconds to fit and parameters"
    return Chart(title, drawing.inline_svg(figure, "costs", title, told))


def _costs(axes: Axes, values: Sequence[float], width: float, *, as_seconds: bool) -> float:
    """Draw a dot in each row, and return where the scale begins; 0 has no place on it, and is an open dot there."""
    positive = [value for value in values if value > 0] or [1.0]
    low = math.floor(math.log10(min(positive)))
    high = max(low + 1, math.ceil(math.log10(max(positive))))
    axes.set_xscale("log")
    axes.set_xlim(10.0**low, 10.0**high)
    powers = range(low, high + 1, math.ceil((high - low) * _TICK / width))
    axes.set_xticks([10.0**power for power in powers], [_power(power, as_seconds) for power in powers])
    axes.set_xticks([], minor=True)
    axes.grid(axis="x", color=RULE, linewidth=0.8)
    cheapest = [math.inf, *accumulate(values, min)]
    marked = [place for place, value in enumerate(values) if value < cheapest[place]]
    drawn = [max(value, 10.0**low) for value in values]
    axes.plot([drawn[place] for place in marked], marked, color=ACCENT, linewidth=1, alpha=0.5)
    for place, value in enumerate(values):
        colour = ACCENT if place in marked else SOFT
        _dot(axes, drawn[place], place, colour, f"row{place}", hollow=value <= 0)
    return float(10.0**low)


def curve_charts(comparison: Comparison) -> list[Chart]:
    """Return a panel for each model that trained in epochs and was judged on the way; all share one scale."""
    shown: dict[str, list[tuple[int, list[tuple[int, float]]]]] = {}  # label -> split -> epoch and metric in percent
    for label in (label for label in comparison.ranked() if label in comparison.curves):
        for seed, curve in comparison.curves[label]:
            judged = zip(curve.epoch, curve.metric, strict=True)
            if line := [(epoch, 100 * value) for epoch, value in judged if value is not None]:
                shown.setdefault(label, []).append((seed, line))
    top = max((value for its in shown.values() for _, line in its for _, value in line), default=0.0)
    charts: list[Chart] = []
    for label, lines in shown.items():
        width, height = _CURVE
        figure = drawing.sheet(width, height)
        axes = drawing.panel(figure, 28, 6, width - 40, height - 6 - _SCALE)
        last = max(line[-1][0] for _, line in lines)
        axes.set_xlim(1, max(2, last))
        axes.set_ylim(0, 1.05 * top or 1)
        axes.locator_params(axis="y", nbins=4, steps=[1, 2, 5, 10])
        axes.set_xticks(sorted({1, last}))
        axes.grid(axis="y", color=RULE, linewidth=0.8)
        told = []
        for place, (seed, line) in enumerate(lines):
            best = max(line, key=lambda point: point[1])
            told.append(f"split {seed}: best {best[1]:.2f} in epoch {best[0]} of {line[-1][0]}")
            axes.plot(*zip(*line, strict=True), color=INK, linewidth=1.2, alpha=0.6, gid=f"row{place}")
            axes.plot(*best, "o", color=ACCENT, markersize=5, clip_on=False, gid=f"row{place}")
        svg = drawing.inline_svg(figure, f"curve{len(charts)}", f"{label}, validation", told)
        charts.append(Chart(label, svg))
    return charts


def _dot(axes: Axes, x: float, y: float, colour: str, gid: str, *, hollow: bool) -> None:
    axes.plot([x], [y], "o", color=colour, markersize=7, clip_on=False, gid=gid)
    if hollow:
        axes.plot([x], [y], "o", color=PAPER, markersize=4, clip_on=False, gid=gid)


def _power(power: int, as_seconds: bool) -> str:
    """Return 10^power as an axis says it: 0.1 s; 100, 10k, 1M."""
    if as_seconds:
        return f"{10.0**power:,.10g} s"
    thousands = min(max(power // 3, 0), 4)
    return f"{10.0 ** (power - 3 * thousands):g}{('', 'k', 'M', 'G', 'T')[thousands]}"
