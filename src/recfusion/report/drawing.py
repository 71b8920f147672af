"""How matplotlib's figures become charts of the page: inline SVG with the page's colours, letters and hover titles."""

import io
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias
from unicodedata import east_asian_width
from xml.etree import ElementTree

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Drawn in these colours, which become variables of the page's style sheet: one drawing serves light and dark.
_NAMES = ("ink", "soft", "rule", "accent", "below", "paper")
_VARIABLES = {f"#00000{number}": f"var(--{name})" for number, name in enumerate(_NAMES, 1)}
INK, SOFT, RULE, ACCENT, BELOW, PAPER = _VARIABLES
Align: TypeAlias = Literal["left", "right"]
_REFERENCE = re.compile(r"#(\w+)")
LETTERS = 11.0  # height of letters; a unit is a CSS pixel where a chart is shown as wide as it was drawn
_CHAR = 6.7  # width of such a letter, on the safe side
_LONGEST = 24


def sheet(width: float, height: float) -> Figure:
    """Return an empty figure of width x height units."""
    return Figure(figsize=(width / 72, height / 72), dpi=72, facecolor="none")


def panel(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Return axes at that place of a sheet, measured from its upper left corner, with quiet scales and no frame."""
    across, down = (72 * float(size) for size in figure.get_size_inches())
    axes = figure.add_axes((left / across, 1 - (top + height) / down, width / across, height / down), facecolor="none")
    axes.tick_params(length=0, labelsize=LETTERS - 1, labelcolor=SOFT, pad=5)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    return axes


def name_rows(axes: Axes, names: Sequence[str], *, bold: Sequence[int] = ()) -> None:
    """Give the axes a row for each name, the first on top; `bold` are the places of those in bold."""
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_yticks(range(len(names)), [shorten(name) for name in names], fontsize=LETTERS, color=INK, parse_math=False)
    axes.tick_params(axis="y", pad=9)
    for place, label in enumerate(axes.get_yticklabels()):
        label.set_gid(f"row{place}")
        label.set_fontweight("bold" if place in bold else "normal")


def write(
    axes: Axes, x: float, y: float, text: str, align: Align, *, colour: str = SOFT, right: float = 0, up: float = 0
) -> None:
    """Write at a point, so many units to the right of it and above it."""
    place: dict[str, Any] = {"xytext": (right, up), "textcoords": "offset points", "ha": align, "va": "center_baseline"}
    size = LETTERS if colour == INK else LETTERS - 1
    axes.annotate(text, (x, y), **place, fontsize=size, color=colour, parse_math=False)


def shorten(name: str) -> str:
    """Return a name cut in the middle to the room that charts have for it, and without what cannot be drawn."""
    shown = _printable(name)
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


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def _units(text: str) -> int:
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in text)


def inline_svg(figure: Figure, ident: str, title: str, told: Sequence[str]) -> Markup:
    """Return a figure as an SVG element for the page; equal figures make equal text.

    `told` is what its rows say: to those who point at what has the gid row0, row1 and so on, and to those who listen.
    """
    drawn = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": ident}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the browser has its own fonts
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    hover = {f"row{place}": text for place, text in enumerate(told)}
    root = ElementTree.fromstring(drawn.getvalue())
    used = {word for element in root.iter() for value in element.attrib.values() for word in _REFERENCE.findall(value)}
    for element in list(root.iter()):
        for child in [child for child in element if child.tag.endswith(("}metadata", "}style"))]:
            element.remove(child)
        _adapt(element, used, hover)
    for place, (tag, text) in enumerate((("title", title), ("desc", "; ".join(told) + "."))):
        said = ElementTree.Element(tag, id=f"{ident}-{tag}")
        said.text = _printable(text)
        root.insert(place, said)
    named = f"{ident}-title {ident}-desc"
    root.attrib = {"viewBox": root.attrib["viewBox"], "role": "img", "aria-labelledby": named}
    return Markup(ElementTree.tostring(root, encoding="unicode").replace("<g />", ""))  # it has escaped every text


def _adapt(element: ElementTree.Element, used: set[str], hover: Mapping[str, str]) -> None:
    """Make an element fit for the page: without namespace, with variables for colours, and with its hover title."""
    element.tag = element.tag.rpartition("}")[2]
    element.tail = None
    element.text = element.text if element.tag == "text" else None
    found = {key.rpartition("}")[2]: value for key, value in element.items()}
    if found.get("id") in hover:
        said = ElementTree.Element("title")
        said.text = _printable(hover[found["id"]])
        element.insert(0, said)
    if found.get("id") not in used:
        found.pop("id", None)
    if found.get("transform", "").startswith("rotate(-0 "):
        del found["transform"]
    for key in found.keys() & {"d", "x", "y"}:
        found[key] = re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", found[key])
    if "style" in found:
        style = re.sub(r" font-family: [^;]*;", "", found["style"])
        found["style"] = re.sub(r"#00000\d", lambda colour: _VARIABLES[colour[0]], style)
    element.attrib = found
