"""The paper's Figure 1: the way that all variants share, drawn once, and below it where each of them differs."""

from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from recfusion.models import registry
from recfusion.models.settings import setting_values, settings_of
from recfusion.report.figures import FAINT, INK, LINE, QUIET, Canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOT_USED = "–"


@dataclass(frozen=True)
class Stage:
    """A part of the common way, the settings that belong to it, and its colour in the figure."""

    name: str
    settings: tuple[str, ...]
    fill: str
    edge: str


_PROCESS = ("process", "T", "schedule", "decreasing", "beta_low", "beta_high")
_NET = ("net", "time", "width", "depth", "shared", "channels", "levels", "picture_users")
FORWARD = Stage("forward process", _PROCESS, "#d6e6f5", "#4f86b8")
NETWORK = Stage("network", _NET, "#dcefd3", "#5f9e4a")
REVERSE = Stage("reverse step", ("variance",), "#fbe3cc", "#d08a45")
TRAINING = Stage("training", ("objective",), "#e6dcf2", "#8a68b5")  # and every setting that is in no other stage
STAGES = (FORWARD, NETWORK, REVERSE, TRAINING)

# The rows that say what a variant is: shown even where all variants agree.
_ALWAYS = ("process", "T", "net", "time", "variance", "objective")
# Settings that have a meaning for some values of another one alone, and what is shown elsewhere.
_USED_WITH: dict[str, tuple[str, tuple[str, ...], str]] = {
    "beta_low": ("schedule", ("linear", "quadratic"), NOT_USED),
    "beta_high": ("schedule", ("linear", "quadratic", "constant"), NOT_USED),
    "time": ("net", ("mlp",), "built in"),
    **dict.fromkeys(("width", "depth", "shared"), ("net", ("mlp",), NOT_USED)),
    **dict.fromkeys(("channels", "levels"), ("net", ("unet1d", "unet2d"), NOT_USED)),
    "picture_users": ("net", ("unet2d",), NOT_USED),
    "variance": ("process", ("gaussian",), NOT_USED),
}


@dataclass(frozen=True)
class Row:
    """One setting: its value in each variant as text, and in which variants it differs from the first one's."""

    stage: Stage
    setting: str
    meaning: str
    values: tuple[str, ...]

    @property
    def differs(self) -> tuple[bool, ...]:
        return tuple(value not in (NOT_USED, self.values[0]) for value in self.values)


@dataclass(frozen=True)
class Family:
    """The variants of one class in the registry, and their settings."""

    names: tuple[str, ...]
    titles: tuple[str, ...]
    rows: tuple[Row, ...]  # what differs, and what says most about a variant
    common: tuple[Row, ...]  # what is the same for all that use it

    def choices(self, setting: str) -> list[str]:
        """Return the values of a setting that occur among the variants, each once."""
        found = next((row.values for row in self.rows if row.setting == setting), ())
        return [value for value in dict.fromkeys(found) if value != NOT_USED]


def recfusion_family() -> Family:
    """Read the RecFusion family from the registry's rows, with the settings that a user gets by default."""
    from recfusion.models.recfusion import RecFusion

    names = [name for name, entry in registry.MODELS.items() if entry.load() is RecFusion]
    variants = [setting_values(registry.make_model(name)) for name in names]
    declared = settings_of(RecFusion)
    placed = {name for stage in STAGES for name in stage.settings}
    order = [(stage, name) for stage in STAGES for name in stage.settings if name in declared]
    order += [(TRAINING, name) for name in declared if name not in placed]
    rows = [Row(stage, name, declared[name].doc, tuple(_cell(name, of) for of in variants)) for stage, name in order]
    shown = [row for row in rows if any(row.differs) or row.setting in _ALWAYS]
    return Family(
        names=tuple(names),
        titles=tuple(registry.MODELS[name].title for name in names),
        rows=tuple(shown),
        common=tuple(row for row in rows if row not in shown),
    )


def _cell(name: str, values: dict[str, Any]) -> str:
    if name in _USED_WITH:
        other, wanted, instead = _USED_WITH[name]
        if values.get(other, wanted[0]) not in wanted:
            return instead
    value = values[name]
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


# Sizes in pixels.
_MARGIN, _HEAD, _PIPELINE = 40, 130, 420
_STAGE, _SETTING, _COLUMN = 170, 570, 310
_NAMES, _LINE, _ROW = 190, 26, 62


def draw_architecture(family: Family) -> "Figure":
    """Return the figure of the common way and of the table of differences."""
    heights = [_ROW + _LINE * (len(_meaning(row)) - 1) for row in family.rows]
    common = _common_lines(family)
    top = _HEAD + _PIPELINE
    canvas = Canvas(
        width=2 * _MARGIN + _STAGE + _SETTING + max(6, len(family.names)) * _COLUMN,
        height=top + _NAMES + sum(heights) + 60 + 34 * len(common) + 30,
    )
    canvas.text(_MARGIN, 52, "The RecFusion family", size=15, bold=True)
    explained = "One implementation: above, what all variants share; below, the settings that make each of them."
    canvas.text(_MARGIN, 100, explained, size=10, colour=QUIET)
    _draw_pipeline(canvas, family, _HEAD, _PIPELINE)
    _draw_names(canvas, family, top)
    y = float(top + _NAMES)
    for row, height in zip(family.rows, heights, strict=True):
        _draw_row(canvas, row, y, height)
        y += height
    _draw_stages(canvas, family, top + _NAMES, heights)
    for number, line in enumerate(common):
        canvas.text(_MARGIN, y + 50 + 34 * number, line, size=9, colour=QUIET)
    return canvas.figure


def _draw_pipeline(canvas: Canvas, family: Family, top: float, height: float) -> None:
    """Draw x^0 -> q -> x^t -> network -> p -> ranking, with the values that occur among the variants in the boxes."""
    wide, narrow, tall = 400.0, 250.0, 170.0
    gap = (canvas.width - 2 * _MARGIN - 3 * wide - 3 * narrow) / 5
    middle = top + height / 2 - 10
    widths = [narrow, wide, narrow, wide, wide, narrow]
    lefts = [_MARGIN + sum(widths[:place]) + place * gap for place in range(6)]
    clean = np.array([0, 1, 0, 0, 1, 1, 0, 0, 1, 0], np.float32)
    noised = np.array([0.2, 0.7, 0.1, 0.5, 0.8, 0.4, 0.3, 0.1, 0.9, 0.4], np.float32)
    for values, left, name in ((clean, lefts[0], "a user's row  $x^0$"), (noised, lefts[2], "with noise  $x^t$")):
        canvas.image(left, middle - 25, narrow, 50, values[None])
        canvas.text(left + narrow / 2, middle + 56, name, size=10.5, align="center")
    boxes = (
        (FORWARD, lefts[1], r"$q(x^t \mid x^0)$", family.choices("process")),
        (NETWORK, lefts[3], r"$f_\theta(x^t, t)$", family.choices("net")),
        (REVERSE, lefts[4], r"$p_\theta(x^{t-1} \mid x^t)$", family.choices("variance")),
    )
    for stage, left, formula, found in boxes:
        canvas.box(left, middle - tall / 2, wide, tall, fill=stage.fill, edge=stage.edge, rounded=14)
        used = "\n".join(wrap(" | ".join(found), 26))
        canvas.text(left + wide / 2, middle - 54, stage.name, size=11.5, bold=True, align="center")
        canvas.text(left + wide / 2, middle - 8, formula, size=11, align="center")
        canvas.text(left + wide / 2, middle + 46, used, size=9.5, colour=QUIET, align="center")
    for place, share in enumerate((1, 0.75, 0.55, 0.4, 0.25)):
        y = middle - 60 + 24 * place
        canvas.box(lefts[5], y, share * narrow, 16, fill="#fde725" if place < 3 else FAINT)
    canvas.text(lefts[5] + narrow / 2, middle + 86, "ranked items", size=10.5, align="center")
    for place in range(5):
        canvas.arrow(lefts[place] + widths[place] + 8, middle, lefts[place + 1] - 8, middle)
    start, end = lefts[0] + narrow / 2, lefts[2] + narrow / 2
    above, below = middle - tall / 2 - 50, middle + tall / 2 + 50
    _draw_detour(canvas, start, end, middle - 34, above, middle - 34, QUIET)
    canvas.text((start + end) / 2, above - 24, "to recommend: the history is taken for $x^1$", size=10, align="center")
    start, end = lefts[0] + narrow / 2, lefts[4] + wide / 2
    _draw_detour(canvas, end, start, middle + tall / 2 + 6, below, middle + 78, TRAINING.edge)
    objectives = "  |  ".join(family.choices("objective"))
    canvas.text((start + end) / 2, below + 26, f"training compares with $x^0$:  {objectives}", size=10, align="center")


def _draw_detour(canvas: Canvas, start: float, end: float, y: float, past: float, to: float, colour: str) -> None:
    """Draw an arrow that leaves at (start, y), runs along the height `past` and arrives at (end, to)."""
    canvas.line(start, y, start, past, colour=colour, width=LINE)
    canvas.line(start, past, end, past, colour=colour, width=LINE)
    canvas.arrow(end, past, end, to, colour=colour)


def _draw_names(canvas: Canvas, family: Family, top: float) -> None:
    legend = f"coloured: differs from {family.names[0]}\n{NOT_USED}  : has no meaning for this variant"
    canvas.text(_MARGIN, top + 66, legend, size=9.5, colour=QUIET)
    for place, (name, title) in enumerate(zip(family.names, family.titles, strict=True)):
        x = _left(place) + _COLUMN / 2
        canvas.text(x, top + 34, name, size=11, bold=True, align="center")
        lines = wrap(title, 23)
        canvas.text(x, top + 66 + 15 * len(lines), "\n".join(lines), size=9, colour=QUIET, align="center")


def _draw_row(canvas: Canvas, row: Row, y: float, height: float) -> None:
    canvas.line(_MARGIN + _STAGE, y, canvas.width - _MARGIN, y)
    meaning = _meaning(row)
    canvas.text(_MARGIN + _STAGE + 8, y + height / 2, row.setting, size=10.5)
    canvas.text(_MARGIN + _STAGE + 226, y + height / 2, "\n".join(meaning), size=8.5, colour=QUIET)
    for place, (value, differs) in enumerate(zip(row.values, row.differs, strict=True)):
        if differs:
            canvas.box(_left(place) + 8, y + 7, _COLUMN - 16, height - 14, fill=row.stage.fill, rounded=8)
        colour = INK if differs or place == 0 else QUIET
        canvas.text(
            _left(place) + _COLUMN / 2, y + height / 2, value, size=10.5, bold=differs, colour=colour, align="center"
        )


def _draw_stages(canvas: Canvas, family: Family, top: float, heights: list[int]) -> None:
    """Draw the coloured bars on the left that say to which part of the way the rows belong."""
    for stage in STAGES:
        inside = [place for place, row in enumerate(family.rows) if row.stage is stage]
        if not inside:
            continue
        start, height = top + sum(heights[: inside[0]]), sum(heights[place] for place in inside)
        canvas.box(_MARGIN, start + 2, _STAGE - 16, height - 4, fill=stage.fill)
        name = stage.name.replace(" ", "\n")
        canvas.text(_MARGIN + (_STAGE - 16) / 2, start + height / 2, name, size=10, align="center")


def _common_lines(family: Family) -> list[str]:
    if not family.common:
        return []
    cells = [(row.setting, next((v for v in row.values if v != NOT_USED), "")) for row in family.common]
    return wrap("The same for all that use it: " + ", ".join(f"{name} {value}" for name, value in cells if value), 150)


def _meaning(row: Row) -> list[str]:
    return wrap(row.meaning, 29)


def _left(place: int) -> float:
    return _MARGIN + _STAGE + _SETTING + place * _COLUMN
