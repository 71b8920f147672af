"""How matplotlib's figures become charts of the page: inline SVG with the page's colours, letters and hover titles."""

import io
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal
from unicodedata import east_asian_width
from xml.etree import ElementTree

from markupsafe import Markup

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Drawn in these colours, which become variables of the page's style sheet: one drawing serves light and dark.
INK, SOFT, RULE, ACCENT, BELOW, PAPER = (f"#00000{number}" for number in range(1, 7))
_VARIABLES = {
    INK: "var(--ink)",
    SOFT: "var(--soft)",
    RULE: "var(--rule)",
    ACCENT: "var(--accent)",
    BELOW: "var(--below)",
    PAPER: "var(--paper)",
}
LETTERS = 11.0  # height of letters; a unit is a CSS pixel where a chart is shown as wide as it was drawn
_CHAR = 6.7  # width of such a letter, on the safe side
_LONGEST = 24


def sheet(width: float, height: float) -> "Figure":
    """Return an empty figure of width x height units."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width / 72, height / 72), dpi=72, facecolor="none")


def panel(figure: "Figure", left: float, top: float, width: float, height: float) -> "Axes":
    """Return axes at that place of a sheet, measured from its upper left corner, with quiet scales and no frame."""
    across, down = (72 * float(size) for size in figure.get_size_inches())
    axes = figure.add_axes((left / across, 1 - (top + height) / down, width / across, height / down), facecolor="none")
    axes.tick_params(length=0, labelsize=LETTERS - 1, labelcolor=SOFT, pad=5)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return axes


def name_rows(axes: "Axes", names: Sequence[str], *, bold: Sequence[bool], gid: str) -> None:
    """Give the axes a row for each name, the first on top; row n has the hover title of f"{gid}{n}"."""
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_yticks(range(len(names)), [shorten(name) for name in names], fontsize=LETTERS, color=INK, parse_math=False)
    axes.tick_params(axis="y", pad=9)
    for place, label in enumerate(axes.get_yticklabels()):
        label.set_gid(f"{gid}{place}")
    for label, is_bold in zip(axes.get_yticklabels(), bold, strict=False):
        label.set_fontweight("bold" if is_bold else "normal")


def write(
    axes: "Axes",
    x: float,
    y: float,
    text: str,
    *,
    align: Literal["left", "center", "right"],
    colour: str = SOFT,
    right: float = 0,
    up: float = 0,
    of_width: bool = False,
) -> None:
    """Write at a point, so many units to the right of it and above it; `of_width`: x is a share of the axes' width."""
    axes.annotate(
        text,
        (x, y),
        (right, up),
        xycoords=axes.get_yaxis_transform() if of_width else "data",
        textcoords="offset points",
        ha=align,
        va="center",
        fontsize=LETTERS if colour == INK else LETTERS - 1,
        color=colour,
        parse_math=False,
    )


def shorten(name: str) -> str:
    """Return a name cut in the middle to the room that charts have for it, and without what cannot be drawn."""
    shown = "".join(char if char.isprintable() else " " for char in name)
    if _units(shown) <= _LONGEST:
        return shown
    head, tail = shown, shown
    while _units(head) >= _LONGEST / 2:
        head = head[:-1]
    while _units(head + tail) >= _LONGEST:
        tail = tail[1:]
    return f"{head}…{tail}"


def room_for(names: Sequence[str]) -> float:
    """Return the width that the longest of some names needs."""
    return 12 + _CHAR * max(_units(shorten(name)) for name in names)


def _units(text: str) -> int:
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in text)


def inline_svg(figure: "Figure", ident: str, title: str, desc: str, hover: Mapping[str, str]) -> Markup:
    """Return a figure as an SVG element for the page; equal figures make equal text.

    `hover` are titles by the gid of what was drawn. All texts are escaped.
    """
    from matplotlib import rc_context

    drawn = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": ident}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the browser has its own fonts
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    root = ElementTree.fromstring(drawn.getvalue())
    used = set(re.findall(r"#(\w+)", " ".join(_references(root))))
    for element in list(root.iter()):
        for child in [child for child in element if child.tag.endswith(("}metadata", "}style"))]:
            element.remove(child)
    for element in list(root.iter()):
        _adapt(element, used, hover)
    for place, (tag, text) in enumerate((("title", title), ("desc", desc))):
        said = ElementTree.Element(tag, id=f"{ident}-{tag}")
        said.text = text
        root.insert(place, said)
    root.attrib = {
        "viewBox": root.attrib["viewBox"],
        "role": "img",
        "aria-labelledby": f"{ident}-title {ident}-desc",
    }
    return Markup(ElementTree.tostring(root, encoding="unicode"))  # it has escaped every text


def _references(root: ElementTree.Element) -> list[str]:
    return [value for element in root.iter() for key, value in element.items() if key.endswith(("href", "clip-path"))]


def _adapt(element: ElementTree.Element, used: set[str], hover: Mapping[str, str]) -> None:
    """Make an element fit for the page: without namespace, with variables for colours, and with its hover title."""
    element.tag = element.tag.rpartition("}")[2]
    found = {key.rpartition("}")[2]: value for key, value in element.items()}
    name = found.get("id", "")
    if name in hover:
        said = ElementTree.Element("title")
        said.text = hover[name]
        element.insert(0, said)
    if name not in used:
        found.pop("id", None)
    for key in ("d", "x", "y", "transform", "width", "height"):
        if key in found:
            found[key] = re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", found[key])
    if "style" in found:
        style = re.sub(r"#00000\d", lambda colour: _VARIABLES[colour[0]], found["style"])
        found["style"] = re.sub(r"font: (?:(\w+) )?([\d.]+)px [^;]*", _font, style)
    element.attrib = found


def _font(found: re.Match[str]) -> str:
    weight = f"font-weight: {found[1]}; " if found[1] else ""
    return f"{weight}font-size: {found[2]}px"
