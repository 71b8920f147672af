"""What all figures share: a canvas measured in pixels, the file types, and saving. matplotlib waits until one draws."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from recfusion.core.arrays import FloatArray
from recfusion.core.errors import choices
from recfusion.core.files import check_writable_file, replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg")
DPI = 200
COLOURS = "viridis"  # blue near 0, yellow near 1, as in the paper
LINE = 1.3
INK, QUIET, FAINT = "#1b1f24", "#5b6570", "#d5dbe1"


class Canvas:
    """A white sheet of width x height pixels; x runs to the right and y down from the upper left corner."""

    def __init__(self, width: float, height: float) -> None:
        from matplotlib.figure import Figure

        self.width, self.height = width, height
        self.figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor="white")
        self._axes = self.figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0), autoscale_on=False)
        self._axes.set_axis_off()

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 10,
        colour: str = INK,
        bold: bool = False,
        align: Literal["left", "center", "right"] = "left",
        turned: bool = False,
    ) -> None:
        """Write `text` centred on the height y; a single line stands on one base line whatever its letters."""
        single = "\n" not in text and not turned
        self._axes.text(
            x,
            y + 0.36 * size * DPI / 72 if single else y,  # half the height of a capital below the middle
            text,
            fontsize=size,
            color=colour,
            weight="bold" if bold else "normal",
            ha=align,
            va="baseline" if single else "center",
            rotation=90 if turned else 0,
            linespacing=1.35,
        )

    def line(self, x0: float, y0: float, x1: float, y1: float, *, colour: str = FAINT, width: float = 0.8) -> None:
        """Draw a straight line."""
        self._axes.plot([x0, x1], [y0, y1], color=colour, linewidth=width, solid_capstyle="butt")

    def arrow(self, x0: float, y0: float, x1: float, y1: float, *, colour: str = QUIET) -> None:
        """Draw a straight arrow from the first point to the second."""
        from matplotlib.patches import FancyArrowPatch

        ends = ((x0, y0), (x1, y1))
        self._axes.add_patch(
            FancyArrowPatch(
                *ends, arrowstyle="-|>", mutation_scale=11, color=colour, linewidth=LINE, shrinkA=0, shrinkB=0
            )
        )

    def box(
        self, x: float, y: float, width: float, height: float, *, fill: str, edge: str = "none", rounded: float = 0
    ) -> None:
        """Draw a filled rectangle whose upper left corner is (x, y)."""
        from matplotlib.patches import FancyBboxPatch

        shape = f"round,pad=0,rounding_size={rounded}" if rounded else "square,pad=0"
        self._axes.add_patch(
            FancyBboxPatch((x, y), width, height, boxstyle=shape, facecolor=fill, edgecolor=edge, linewidth=1.2)
        )

    def image(self, x: float, y: float, width: float, height: float, entries: FloatArray) -> None:
        """Show a matrix of values in [0, 1]."""
        place = (x, x + width, y + height, y)
        self._axes.imshow(
            entries, cmap=COLOURS, vmin=0, vmax=1, extent=place, aspect="auto", interpolation="none", origin="upper"
        )


def check_figure_path(path: Path) -> None:
    """Raise unless a figure can be written to `path`; makes nothing."""
    if path.suffix.lower() not in SUFFIXES:
        raise choices("file type of a figure", path.suffix or path.name, SUFFIXES)
    check_writable_file(path)


def save_figure(figure: "Figure", path: Path) -> Path:
    """Write a figure as PNG or SVG, by the suffix of `path`; equal figures make equal files."""
    from matplotlib import rc_context

    check_figure_path(path)
    undated = {"Date": None} if path.suffix.lower() == ".svg" else {}
    # Composed into one, the images of an SVG would be resampled and lose their sharp entries.
    with replacing(path) as beside, rc_context({"svg.hashsalt": "recfusion", "image.composite_image": False}):
        figure.savefig(beside, dpi=DPI, metadata=undated)
    return path
