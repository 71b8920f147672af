"""SVG elements for the page's charts: scales, grids, texts and marks. Their colours and fonts are in style.css."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias
from unicodedata import east_asian_width
from xml.etree.ElementTree import Element, SubElement, tostring

from markupsafe import Markup

Anchor: TypeAlias = Literal["start", "middle", "end"]
LETTER = 6.7  # upper limit of the width of a letter, in pixels of a chart that is shown as wide as it is drawn
LONGEST_NAME = 24  # letters
DOT = 3.5  # radius


@dataclass(frozen=True)
class Scale:
    """A linear map from the values `low` to `high` to the pixels `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the pixel of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, spacing: float) -> list[float]:
        """Return multiples of 1, 2 or 5 times a power of ten, at least `spacing` pixels apart."""
        least = spacing * (self.high - self.low) / abs(self.end - self.start)
        power = 10.0 ** math.floor(math.log10(least))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least)
        return [n * step for n in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]


def chart(width: float, height: float, ident: str, title: str, hints: Sequence[str]) -> Element:
    """Return an empty chart; screen readers read its title and the hints of its rows."""
    labels = f"{ident}-title {ident}-desc"
    root = Element("svg", {"viewBox": f"0 0 {width:g} {height:g}", "role": "img", "aria-labelledby": labels})
    for tag, content in (("title", title), ("desc", f"{'; '.join(hints)}.")):
        SubElement(root, tag, id=f"{ident}-{tag}").text = printable(content)
    return root


def markup(root: Element) -> Markup:
    """Return a chart as HTML; ElementTree escapes every text."""
    return Markup(tostring(root, encoding="unicode"))


def group(parent: Element, css: str, hint: str) -> Element:
    """Add a group of elements that shows `hint` on hover."""
    added = SubElement(parent, "g", {"class": css})
    SubElement(added, "title").text = printable(hint)
    return added


def text(parent: Element, css: str, x: float, y: float, content: str, anchor: Anchor) -> None:
    """Add a text; `anchor` says which end of it is at x."""
    place = {"class": css, "x": _number(x), "y": _number(y), "text-anchor": anchor}
    SubElement(parent, "text", place).text = printable(content)


def line(parent: Element, css: str, points: Iterable[tuple[float, float]]) -> None:
    path = " ".join(f"{_number(x)},{_number(y)}" for x, y in points)
    SubElement(parent, "polyline", {"class": css, "points": path})


def dot(parent: Element, css: str, x: float, y: float, radius: float = DOT) -> None:
    SubElement(parent, "circle", {"class": css, "cx": _number(x), "cy": _number(y), "r": _number(radius)})


def box(parent: Element, css: str, x: float, y: float, width: float, height: float) -> None:
    """Add a rectangle with its upper left corner at (x, y)."""
    place = {"x": x, "y": y, "width": width, "height": height}
    SubElement(parent, "rect", {"class": css, **{key: _number(value) for key, value in place.items()}})


def grid(parent: Element, scale: Scale, labels: Mapping[float, str], top: float, bottom: float) -> None:
    """Add a vertical line with a label below it for each tick."""
    for value, label in labels.items():
        line(parent, "grid", [(scale(value), top), (scale(value), bottom)])
        text(parent, "tick", scale(value), bottom + 12, label, "middle")


def shorten(name: str) -> str:
    """Return a name, with its middle cut out if it is longer than charts have room for."""
    shown = printable(name)
    if _letters(shown) <= LONGEST_NAME:
        return shown
    head, tail = shown, shown
    while _letters(head) >= LONGEST_NAME / 2:
        head = head[:-1]
    while _letters(head + tail) >= LONGEST_NAME:
        tail = tail[1:]
    return f"{head}…{tail}"


def name_width(names: Iterable[str]) -> float:
    """Return the width of the longest of some names with its margins, in pixels."""
    return 12 + LETTER * max(_letters(shorten(name)) for name in names)


def printable(content: str) -> str:
    """Return a text with control characters, which XML forbids, as spaces."""
    return "".join(char if char.isprintable() else " " for char in content)


def _letters(content: str) -> int:
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in content)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
