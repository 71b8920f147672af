"""Elements of inline SVG; their colours come from the page's style sheet, by class."""

from collections.abc import Sequence
from typing import Literal

from markupsafe import Markup


def line(x1: float, y1: float, x2: float, y2: float, css: str) -> Markup:
    """Return a straight line."""
    element = '<line class="{}" x1="{:.2f}" y1="{:.2f}" x2="{:.2f}" y2="{:.2f}"/>'
    return Markup(element).format(css, x1, y1, x2, y2)


def circle(x: float, y: float, radius: float, css: str) -> Markup:
    """Return a circle."""
    return Markup('<circle class="{}" cx="{:.2f}" cy="{:.2f}" r="{}"/>').format(css, x, y, radius)


def text(x: float, y: float, words: str, css: str, anchor: Literal["start", "middle", "end"]) -> Markup:
    """Return a line of text."""
    element = '<text class="{}" x="{:.2f}" y="{:.2f}" text-anchor="{}">{}</text>'
    return Markup(element).format(css, x, y, anchor, words)


def group(css: str, title: str, parts: Sequence[Markup]) -> Markup:
    """Return some elements that belong together, with the title that a browser shows for them."""
    return Markup('<g class="{}"><title>{}</title>{}</g>').format(css, title, Markup("").join(parts))


def svg(ident: str, title: str, desc: str, width: float, height: float, parts: Sequence[Markup]) -> Markup:
    """Return a whole drawing, which says what it shows to those who do not see it."""
    return Markup(
        '<svg viewBox="0 0 {w:g} {h:g}" role="img" aria-labelledby="{id}-title {id}-desc">'
        '<title id="{id}-title">{title}</title><desc id="{id}-desc">{desc}</desc>{parts}</svg>'
    ).format(w=width, h=height, id=ident, title=title, desc=desc, parts=Markup("\n").join(parts))


def path(points: Sequence[tuple[float, float]], css: str) -> Markup:
    """Return a line through some points."""
    joined = " ".join(f"{x:.2f},{y:.2f}" for x, y in points)
    return Markup('<polyline class="{}" points="{}"/>').format(css, joined)
