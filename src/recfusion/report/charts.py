"""The page's charts: differences to the reference, means by metric, costs and training curves.

The charts have no colours or fonts of their own: their elements have classes, which templates/style.css styles.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from xml.etree.ElementTree import Element

from markupsafe import Markup

from recfusion.evaluation.significance import Summary
from recfusion.experiments.comparison import Comparison
from recfusion.report import sections, svg
from recfusion.report.formats import counted, p_text, percent, points
from recfusion.report.svg import Scale

BOX_PLOT_FROM = 5  # splits: quartiles of fewer are guesses
_WIDE, _NARROW = 400.0, 330.0  # widths of charts; a phone has about 360 pixels
_PITCH = 21.0  # from row to row
_VALUES, _TICKS = 44.0, 22.0  # space for the numbers on the right, and for those below
_CURVE = (160.0, 106.0)  # width and height


@dataclass(frozen=True)
class Row:
    """A model in a chart, in percent points; `css` are classes of style.css, `hint` is shown on hover."""

    label: str
    x: float
    interval: tuple[float, float] | None
    text: str
    hint: str
    css: str
    splits: Summary | None = None

    def values(self) -> list[float]:
        """Return every x that is drawn."""
        return [self.x, *(self.interval or ()), *(100 * value for value in (self.splits.splits if self.splits else ()))]

    def reach(self, origin: float) -> float:
        """Return the largest distance of what is drawn from `origin`."""
        return max(abs(x - origin) for x in self.values())


def difference_chart(comparison: Comparison) -> Markup | None:
    """Return a row per model: its difference to the reference, else to the best model, with its 95 % interval."""
    base, tests = sections.base_tests(comparison)
    if not tests:
        return None
    rows = [Row(base, 0.0, None, "", f"{base}: the model that the others are compared with", "base")]
    cells = sections.difference_cells(comparison)
    for label, test in tests.items():
        cell, (difference, interval) = cells[label], test.of(label)
        shown = f"{cell.text} ({cell.interval})" if cell.interval else cell.text
        hint = f"{label}: {shown}, {p_text(test)}, {counted(len(test.seeds), 'split')}"
        rows.append(Row(label, 100 * difference, percent(interval), cell.text, hint, cell.mark or "open"))
    return _row_chart(rows, 0.0, "differences", f"{comparison.main_metric}: differences to {base}", base)


def mean_charts(comparison: Comparison) -> dict[str, Markup]:
    """Return a chart for each metric, the main one first: a row per model with its mean, interval and splits."""
    charts: dict[str, Markup] = {}
    for metric in sorted(comparison.metrics, key=lambda metric: metric != comparison.main_metric):
        rows = []
        for label, cell in sections.metric_cells(comparison, metric).items():
            found = comparison.models[label].metrics[metric]
            hint = f"{label}: {cell.text}" + (f" ({cell.interval})" if cell.interval else "")
            css = {"best": "best", "same": "tied open"}.get(cell.mark, "")
            rows.append(Row(label, 100 * found.mean, percent(found.ci95), cell.text, hint, css, found))
        charts[metric] = _row_chart(rows, max(row.x for row in rows), f"metric{len(charts)}", metric)
    return charts


def _row_chart(rows: Sequence[Row], origin: float, ident: str, title: str, base: str = "") -> Markup:
    """Return the rows, the highest first; those far from `origin` are arrows at the edge with their interval.

    `base` is the model that differences are to: then numbers have signs, and there is a line at 0.
    """
    rows = sorted(rows, key=lambda row: -row.x)
    own = max(row.reach(origin) for row in rows if row.x == origin)
    far = near_reach([max(own, row.reach(origin)) for row in rows if row.x != origin] or [own])
    xs = [x for row in rows if row.reach(origin) <= far for x in row.values()]
    margin = 0.04 * (max(xs) - min(xs)) or 1.0
    width, pitch, top = (_WIDE, _PITCH, 20.0) if base else (_NARROW, 30.0, 0.0)
    left, bottom = svg.name_width(row.label for row in rows), top + pitch * len(rows)
    x = Scale(min(xs) - margin, max(xs) + margin, left, width - _VALUES)
    root = svg.chart(width, bottom + _TICKS, ident, title, [row.hint for row in rows])
    svg.grid(root, x, {tick: _signed(tick, "g", base) for tick in x.ticks(40)}, top, bottom)
    if base:
        svg.line(root, "zero", [(x(0), top), (x(0), bottom)])
        if -x.low > x.high / 3:
            svg.text(root, "head", x(0) - 4, top - 8, f"← below {svg.shorten(base)}", "end")
        if x.high > -x.low / 3:
            svg.text(root, "head", x(0) + 4, top - 8, f"above {svg.shorten(base)} →", "start")
    for number, row in enumerate(rows):
        middle = top + pitch * (number + (0.5 if base else 0.36))
        added = _row(root, row.css, row.hint, row.label, left - 9, middle, box=(width, top + pitch * number, pitch))
        svg.text(added, "value", width, middle, row.text, "end")
        if row.reach(origin) > far:
            inwards, edge = (1, x.start) if row.x < origin else (-1, x.end)
            tip = [(edge - 4 * inwards, middle), (edge + 4 * inwards, middle - 4), (edge + 4 * inwards, middle + 4)]
            svg.line(added, "arrow", tip)
            ends = " to ".join(_signed(end, ".2f", base) for end in row.interval or ())
            svg.text(added, "limits", edge + 9 * inwards, middle, ends, "start" if inwards > 0 else "end")
            continue
        if row.splits is not None:
            _splits(added, row.splits, x, middle + 0.34 * pitch)
        if row.interval:
            svg.line(added, "interval", [(x(end), middle) for end in row.interval])
        svg.dot(added, "dot", x(row.x), middle)
    return svg.markup(root)


def _signed(value: float, form: str, base: str) -> str:
    plus = "+" if base and abs(value) > 1e-9 else ""
    return f"{value:{plus}{form}}".replace("-", "−")


def _row(
    root: Element, css: str, hint: str, label: str, x: float, y: float, *, box: tuple[float, float, float]
) -> Element:
    """Add a row with its name, which ends at x; `box` is the width, top and height of the area that shows the hint."""
    added, (width, top, height) = svg.group(root, f"row {css}".strip(), hint), box
    svg.box(added, "area", 0, top, width, height)
    svg.text(added, "name", x, y, svg.shorten(label), "end")
    return added


def _splits(row: Element, found: Summary, x: Scale, y: float) -> None:
    """Draw the means of several splits; if there are at least five, also their quartiles and median."""
    splits = [x(100 * value) for value in found.splits]
    if len(splits) >= BOX_PLOT_FROM:
        first, third, median = (x(100 * value) for value in (*found.iqr, found.median))
        svg.line(row, "whisker", [(min(splits), y), (max(splits), y)])
        svg.box(row, "quartiles", first, y - 4, third - first, 8)
        svg.line(row, "median", [(median, y - 4), (median, y + 4)])
    for split in splits if len(splits) > 1 else ():
        svg.dot(row, "split", split, y, 1.5)


def near_reach(reaches: Sequence[float]) -> float:
    """Return how far a scale reaches from its origin, given the reach of each model.

    The scale ends before the last gap beyond which models are more than twice as far away. It covers all models if
    fewer than a third of them would be left, or if leaving models out would enlarge the scale less than fourfold.
    """
    ordered = sorted(reaches)
    for n_near, (reach, beyond) in reversed(list(enumerate(pairwise(ordered), 1))):
        if beyond > 2 * reach and ordered[-1] > 4 * reach and 3 * n_near >= len(ordered):
            return reach
    return ordered[-1]


def cost_chart(comparison: Comparison) -> Markup:
    """Return a row per model, the best first, with its seconds to fit and its parameters on logarithmic scales.

    Models that are cheaper than every better model are marked and joined by a line.
    """
    metric, order = comparison.main_metric, comparison.ranked()
    models = [comparison.models[label] for label in order]
    means = [points(model.mean(metric), sections.digits_of(comparison, metric)) for model in models]
    hints = [
        f"{model.label}: {mean}, {sections.seconds(model.fit_seconds)} s to fit, {model.parameters:,} parameters"
        for model, mean in zip(models, means, strict=True)
    ]
    left, top, bottom = svg.name_width(order) + 32, 20.0, 20.0 + _PITCH * len(order)
    width = (_WIDE - left - 54) / 2
    title = f"{metric}, seconds to fit and parameters"
    root = svg.chart(_WIDE, bottom + _TICKS, "costs", title, hints)
    middles = [top + _PITCH * (number + 0.5) for number in range(len(order))]
    costs = {"seconds to fit": [model.fit_seconds for model in models]}
    costs["parameters"] = [float(model.parameters) for model in models]
    dots: list[list[tuple[str, float]]] = []  # panel -> model -> classes and x
    for number, (head, values) in enumerate(costs.items()):
        logs, start = [math.log10(value) for value in values if value > 0] or [0.0], left + number * (width + 36)
        low = math.floor(min(logs))
        high = max(low + 1, math.ceil(max(logs)))
        x = Scale(low, high, start, start + width)
        powers = range(low, high + 1, math.ceil((high - low) * 46 / width))
        svg.grid(root, x, {power: _power(power, as_seconds=number == 0) for power in powers}, top, bottom)
        svg.text(root, "head", x.start - 5, top - 8, head, "start")
        cheapest = [math.inf, *accumulate(values, min)]
        marked = [value < cheaper for value, cheaper in zip(values, cheapest, strict=False)]
        xs = [x(math.log10(value)) if value > 0 else x.start for value in values]
        svg.line(root, "frontier", [at for at, mark in zip(zip(xs, middles, strict=True), marked, strict=True) if mark])
        css = [f"dot{' cheapest' * mark}{' open' * (value <= 0)}" for value, mark in zip(values, marked, strict=True)]
        dots.append(list(zip(css, xs, strict=True)))
    for number, (label, hint, middle) in enumerate(zip(order, hints, middles, strict=True)):
        row = _row(root, "cost", hint, label, left - 35, middle, box=(_WIDE, middle - _PITCH / 2, _PITCH))
        svg.text(row, "mean", left - 9, middle, means[number], "end")
        for panel in dots:
            svg.dot(row, *panel[number], middle)
    return svg.markup(root)


def _power(power: int, *, as_seconds: bool) -> str:
    """Return 10^power as a label: 0.1 s; 100, 10k, 1M."""
    if as_seconds:
        return f"{10.0**power:,.10g} s"
    thousands = min(max(power // 3, 0), 4)
    return f"{10.0 ** (power - 3 * thousands):g}{('', 'k', 'M', 'G', 'T')[thousands]}"


def curve_charts(comparison: Comparison) -> dict[str, Markup]:
    """Return a chart for each model with validation results by epoch; all charts share one scale."""
    curves: dict[str, list[tuple[int, list[tuple[int, float]]]]] = {}  # label -> split -> epoch and metric in percent
    for label in (label for label in comparison.ranked() if label in comparison.curves):
        for seed, curve in comparison.curves[label]:
            judged = zip(curve.epoch, curve.metric, strict=True)
            if course := [(epoch, 100 * value) for epoch, value in judged if value is not None]:
                curves.setdefault(label, []).append((seed, course))
    highest = max((value for lines in curves.values() for _, course in lines for _, value in course), default=0.0)
    width, height = _CURVE
    y = Scale(0, 1.05 * highest or 1, height - _TICKS, 6)
    charts: dict[str, Markup] = {}
    for label, lines in curves.items():
        last = max(course[-1][0] for _, course in lines)
        x = Scale(1, max(2, last), 26, width - 8)
        bests = [max(course, key=lambda point: point[1]) for _, course in lines]
        hints = [
            f"split {seed}: best {best[1]:.2f} in epoch {best[0]} of {course[-1][0]}"
            for (seed, course), best in zip(lines, bests, strict=True)
        ]
        root = svg.chart(width, height, f"curve{len(charts)}", f"{label}, validation", hints)
        for tick in y.ticks(16):
            svg.line(root, "grid", [(x.start, y(tick)), (x.end, y(tick))])
            svg.text(root, "tick", x.start - 5, y(tick), f"{tick:g}", "end")
        for epoch in sorted({1, last}):
            svg.text(root, "tick", x(epoch), y.start + 12, f"{epoch}", "middle")
        for (_, course), best, hint in zip(lines, bests, hints, strict=True):
            row = svg.group(root, "row", hint)
            svg.line(row, "curve", [(x(epoch), y(value)) for epoch, value in course])
            svg.dot(row, "dot best", x(best[0]), y(best[1]), 2)
        charts[label] = svg.markup(root)
    return charts
