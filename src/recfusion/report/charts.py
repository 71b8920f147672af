"""Charts as inline SVG strings: they take their colours from the page's style sheet and stay inside their view box."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal
from unicodedata import east_asian_width

from markupsafe import Markup

from recfusion.report.svg import circle, group, line, svg, text

Mark = Literal["best", "same", ""]  # the best, not told apart from it, neither
Box = tuple[float, float, float, float]  # left, top, right, bottom
Segment = tuple[float, float, float, float]  # from x, y to x, y

DOT_WIDTH = 320.0
SCATTER_WIDTH = 400.0
ROW = 32
BOX_PLOT_FROM = 5  # splits: quartiles of fewer are guesses
_CHAR = 7.2  # width of a character at the charts' 12 px, on the safe side
_BOLD = 1.1
_LABEL_HEIGHT = 13.0
_LONGEST_NAME = 18
_REACHES = (
    9.0,
    15.0,
    24.0,
    36.0,
    50.0,
    66.0,
)  # how far from its point a label may stand; past the first, with a leader
_UNCLEAR = 12.0  # how much further a label goes to be clear of another point
_CROSSING = 30.0  # and how much further to keep leaders and labels from crossing
_DIRECTIONS = ((1, 0), (-1, 0), (0, -1), (0, 1), (1, -1), (1, 1), (-1, -1), (-1, 1))


@dataclass(frozen=True)
class Row:
    """One model in a dot plot; `text` is the mean as the page shows it."""

    name: str
    mean: float
    text: str
    interval: tuple[float, float] | None = None
    median: float | None = None
    iqr: tuple[float, float] | None = None
    splits: tuple[float, ...] = ()
    mark: Mark = ""


@dataclass(frozen=True)
class Point:
    """One model in a scatter plot: `x` is not negative, `text` is what a reader who points at it is told."""

    name: str
    x: float
    y: float
    text: str
    interval: tuple[float, float] | None = None
    mark: Mark = ""


def ticks(top: float) -> list[float]:
    """Return two to six round numbers from 0 to the first one that is not below `top` (to 1 where `top` is 0)."""
    top = top if top > 0 else 1.0
    unit = 10.0 ** math.floor(math.log10(top))
    # Below the unit for tops such as 1.2, which would otherwise get two ticks; the tolerance is for 0.3 / 0.1.
    steps = [scale * factor for scale in (unit / 10, unit) for factor in (1, 2, 5)]
    step = next(step for step in steps if math.ceil(top / step - 1e-9) <= 5)
    return [float(f"{i * step:.12g}") for i in range(math.ceil(top / step - 1e-9) + 1)]


def reach(rows: Sequence[Row]) -> float:
    """Return the largest number that a dot plot of `rows` has to show."""
    return max((max(row.mean, *(row.interval or ()), *row.splits, 0.0) for row in rows), default=0.0)


def decades(values: Sequence[float]) -> tuple[int, int]:
    """Return the powers of ten that enclose the positive `values`, at least one decade apart."""
    positive = [value for value in values if value > 0] or [1.0]
    low = math.floor(math.log10(min(positive)))
    return low, max(low + 1, math.ceil(math.log10(max(positive)) - 1e-9))


def shorten(name: str) -> str:
    """Return `name` cut to the room that charts have for it."""
    if _units(name) <= _LONGEST_NAME:
        return name
    fits = [end for end in range(len(name)) if _units(name[:end]) < _LONGEST_NAME]
    return name[: fits[-1]] + "…"


def dot_plot(rows: Sequence[Row], *, ident: str, title: str, top: float) -> Markup:
    """Return a row per model, best first: its mean with the interval and, beneath, the means of the splits.

    The scale runs from 0 to a round number not below `top`. Where there is one split only, it is the mean itself and
    is not drawn again; from five splits on, their quartiles and median are drawn too.
    """
    rows = sorted(rows, key=lambda row: -row.mean)
    marks = ticks(top)
    left = 10 + max((_label_width(row) for row in rows), default=0.0)
    right = DOT_WIDTH - 44
    bottom = ROW * len(rows) + 4.0

    def at(value: float) -> float:
        return left + (right - left) * value / marks[-1]

    parts = [line(at(mark), 0, at(mark), bottom, "grid" if mark else "axis") for mark in marks]
    parts += [text(at(mark), bottom + 15, f"{mark:g}", "tick", "middle") for mark in marks]
    for place, row in enumerate(rows):
        y = ROW * place + 13.0
        inside = [text(left - 8, y + 4, shorten(row.name), "name", "end"), _splits(row, y + 11, at)]
        if row.interval:
            inside.append(line(at(row.interval[0]), y, at(row.interval[1]), y, "interval"))
        inside.append(circle(at(row.mean), y, 4.5, "mean"))
        inside.append(text(DOT_WIDTH - 4, y + 4, row.text, "value", "end"))
        parts.append(group(f"row {row.mark}".strip(), f"{row.name}: {row.text}", inside))
    said = ", ".join(f"{row.name} {row.text}" for row in rows)
    return svg(ident, title, f"Mean of each model, best first: {said}.", DOT_WIDTH, bottom + 22, parts)


def scatter(points: Sequence[Point], *, ident: str, title: str, y_name: str, x_name: str, seconds: bool) -> Markup:
    """Return the points over a logarithmic x axis, each with its name where there is room for it.

    A logarithm has no place for 0: such points are drawn at the left edge. Names without room are counted below.
    """
    points = sorted(points, key=lambda point: -point.y)
    width, height = SCATTER_WIDTH, 262.0 + 14 * max(0, len(points) - 8)
    x0, x1, y0, y1 = 34.0, width - 12, height - 42, 28.0
    low, high = decades([point.x for point in points])
    marks = ticks(max([point.interval[1] if point.interval else point.y for point in points], default=0.0))

    def across(value: float) -> float:
        return x0 + 8 + (x1 - x0 - 16) * (math.log10(max(value, 10.0**low)) - low) / (high - low)

    def up(value: float) -> float:
        return y0 - (y0 - y1) * value / marks[-1]

    parts = [line(x0, up(mark), x1, up(mark), "grid" if mark else "axis") for mark in marks]
    parts += [text(x0 - 7, up(mark) + 4, f"{mark:g}", "tick", "end") for mark in marks]
    for power in range(low, high + 1, math.ceil((high - low) / 5)):
        x = across(10.0**power)
        parts += [line(x, y0, x, y0 + 4, "axis"), text(x, y0 + 17, _power(power, seconds), "tick", "middle")]
    parts += [text(0, 12, y_name, "label", "start"), text(x1, y0 + 35, x_name, "label", "end")]

    places = [(across(point.x), up(point.y)) for point in points]
    labels = place_labels(places, [_label_width(point) for point in points], (x0 + 2, y1 - 10, width - 2, y0 - 2))
    for point, (x, y), box in zip(points, places, labels, strict=True):
        inside = [line(x, up(point.interval[0]), x, up(point.interval[1]), "faint")] if point.interval else []
        if box:
            inside += [_leader(x, y, box), _label(x, box, shorten(point.name))]
        parts.append(group(f"row {point.mark}".strip(), point.text, [*inside, circle(x, y, 4.5, "mean")]))
    missing = sum(box is None for box in labels)
    if missing:
        parts.append(text(0, y0 + 35, f"{missing} more, no room for names", "tick", "start"))
    return svg(ident, title, "; ".join(point.text for point in points) + ".", width, height, parts)


def place_labels(points: Sequence[tuple[float, float]], widths: Sequence[float], bounds: Box) -> list[Box | None]:
    """Return a box for each point's label, inside `bounds` and clear of all points and other labels, or None.

    Greedy: the first point takes the best free place around it, then the next. Near is better than far, beside better
    than above, and a place that is not nearer to somebody else's point is worth going further for.
    """
    taken: list[Box] = [(x - 5, y - 5, x + 5, y + 5) for x, y in points]
    found: list[Box | None] = []
    leaders: list[Segment] = []
    for number, ((x, y), width) in enumerate(zip(points, widths, strict=True)):
        others = [other for place, other in enumerate(points) if place != number]
        best: tuple[float, Box] | None = None
        for far in _REACHES:
            for order, (dx, dy) in enumerate(_DIRECTIONS):
                box = _beside(x, y, width, far, dx, dy)
                if not _inside(box, bounds) or any(_meet(box, other) for other in taken):
                    continue
                own = _distance(x, y, box)
                cost = far + order / 2 + sum(_UNCLEAR for other in others if _distance(*other, box) < own + 4)
                if best is None or cost < best[0]:
                    leader = (x, y, *_nearest(x, y, box))
                    crossed = sum(not _holds(other, x, y) and _crosses(leader, other) for other in taken)
                    cost += _CROSSING * (crossed + sum(_crosses(drawn, box) for drawn in leaders))
                if best is None or cost < best[0]:
                    best = cost, box
        found.append(best[1] if best else None)
        if best:
            left, top, right, bottom = best[1]
            taken.append((left - 4, top, right + 4, bottom))
            if _distance(x, y, best[1]) > _REACHES[0]:
                leaders.append((x, y, *_nearest(x, y, best[1])))
    return found


def _beside(x: float, y: float, width: float, far: float, dx: int, dy: int) -> Box:
    """Return the box of a label that stands `far` from (x, y) in the direction (dx, dy)."""
    left = x + dx * far - width * (1 - dx) / 2
    top = y + dy * far - _LABEL_HEIGHT * (1 - dy) / 2
    return left, top, left + width, top + _LABEL_HEIGHT


def _inside(box: Box, bounds: Box) -> bool:
    return box[0] >= bounds[0] and box[1] >= bounds[1] and box[2] <= bounds[2] and box[3] <= bounds[3]


def _meet(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _holds(box: Box, x: float, y: float) -> bool:
    return box[0] <= x <= box[2] and box[1] <= y <= box[3]


def _crosses(segment: Segment, box: Box) -> bool:
    """Return whether a line passes through a box, judged at points that are closer than any box is wide."""
    x1, y1, x2, y2 = segment
    around = (min(x1, x2) - 1, min(y1, y2) - 1, max(x1, x2) + 1, max(y1, y2) + 1)
    if not _meet(around, box):
        return False
    steps = 1 + int(math.dist((x1, y1), (x2, y2)) // 3)
    return any(_holds(box, x1 + (x2 - x1) * i / steps, y1 + (y2 - y1) * i / steps) for i in range(steps))


def _nearest(x: float, y: float, box: Box) -> tuple[float, float]:
    return min(max(x, box[0]), box[2]), min(max(y, box[1]), box[3])


def _distance(x: float, y: float, box: Box) -> float:
    return math.dist((x, y), _nearest(x, y, box))


def _leader(x: float, y: float, box: Box) -> Markup:
    """Return the line from a point to its label where the two stand apart."""
    return line(x, y, *_nearest(x, y, box), "leader") if _distance(x, y, box) > _REACHES[0] else Markup("")


def _label(x: float, box: Box, name: str) -> Markup:
    """Return the text of a label, aligned to the side that faces its point, so that a narrower font leaves no gap."""
    if box[0] >= x:
        return text(box[0], box[3] - 3, name, "name halo", "start")
    if box[2] <= x:
        return text(box[2], box[3] - 3, name, "name halo", "end")
    return text((box[0] + box[2]) / 2, box[3] - 3, name, "name halo", "middle")


def _splits(row: Row, y: float, at: Callable[[float], float]) -> Markup:
    if len(row.splits) < 2:
        return Markup("")
    parts = []
    if len(row.splits) >= BOX_PLOT_FROM and row.iqr and row.median is not None:
        first, third = at(row.iqr[0]), at(row.iqr[1])
        box = '<rect class="box" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="9"/>'
        parts += [
            line(at(min(row.splits)), y, at(max(row.splits)), y, "faint"),
            Markup(box).format(first, y - 4.5, third - first),
            line(at(row.median), y - 4.5, at(row.median), y + 4.5, "median"),
        ]
    return Markup("").join([*parts, *(circle(at(value), y, 1.8, "split") for value in row.splits)])


def _power(power: int, seconds: bool) -> str:
    """Return 10^power as an axis says it: 10 ms, 1 s; 100, 10k, 1M."""
    if seconds:
        below = next(((unit, less) for unit, less in (("s", 0), ("ms", 3), ("µs", 6)) if power + less >= 0), ("ns", 9))
        return f"{10.0 ** (power + below[1]):,.10g} {below[0]}"
    thousands = min(max(power // 3, 0), 4)
    return f"{10.0 ** (power - 3 * thousands):g}{('', 'k', 'M', 'G', 'T')[thousands]}"


def _units(text: str) -> int:
    """Return the width of `text` in characters; East Asian ones count twice."""
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in text)


def _label_width(of: Row | Point) -> float:
    return _CHAR * _units(shorten(of.name)) * (_BOLD if of.mark == "best" else 1)
