"""The paper's Figure 1: the pipeline that all variants share, and a table of their differences."""

from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path

from recfusion.models import registry
from recfusion.models.recfusion.recfusion import RecFusion
from recfusion.models.settings import setting_values, settings_of
from recfusion.report.figures import FAINT, IMAGE, INK, QUIET, blank

NOT_USED = "–"


@dataclass(frozen=True)
class Stage:
    """A part of the pipeline, its settings, and its colours in the figure."""

    name: str
    settings: tuple[str, ...]
    fill: str
    edge: str


_PROCESS = ("process", "T", "schedule", "decreasing", "beta_low", "beta_high", "low", "high")
_NET = (
    *("net", "time", "width", "depth", "shared", "channels", "levels", "picture_users"),
    *("layout", "pixels", "neighbours", "input_power"),
)
FORWARD = Stage("forward process", _PROCESS, "#d6e6f5", "#4f86b8")
NETWORK = Stage("network", _NET, "#dcefd3", "#5f9e4a")
REVERSE = Stage("reverse step", ("variance",), "#fbe3cc", "#d08a45")
TRAINING = Stage("training", ("objective",), "#e6dcf2", "#8a68b5")  # and all settings of no other stage
STAGES = (FORWARD, NETWORK, REVERSE, TRAINING)

# Settings that are shown even if all variants agree.
_ALWAYS = ("process", "T", "net", "time", "variance", "objective")
# Not used with a layout: survival then falls evenly from high to low.
_SCHEDULE = ("schedule", "decreasing", "beta_low", "beta_high")
# Settings that are used only with some values of another setting.
_USED_WITH: dict[str, tuple[str, tuple[str, ...]]] = {
    "beta_low": ("schedule", ("linear", "quadratic")),
    "beta_high": ("schedule", ("linear", "quadratic", "constant")),
    **dict.fromkeys(("width", "depth", "shared"), ("net", ("mlp",))),
    **dict.fromkeys(("channels", "levels"), ("net", ("unet1d", "unet2d"))),
    "picture_users": ("layout", ("none",)),
    "variance": ("process", ("gaussian",)),
}


@dataclass(frozen=True)
class Row:
    """A setting and its value in each variant."""

    stage: Stage
    setting: str
    meaning: str
    values: tuple[str, ...]

    @property
    def differs(self) -> tuple[bool, ...]:
        """For each variant, whether it differs from the first one."""
        return tuple(value not in (NOT_USED, self.values[0]) for value in self.values)

    @property
    def choices(self) -> list[str]:
        """The distinct values of the variants."""
        return [value for value in dict.fromkeys(self.values) if value != NOT_USED]


@dataclass(frozen=True)
class Family:
    """The variants of RecFusion and their settings."""

    names: tuple[str, ...]
    titles: tuple[str, ...]
    rows: tuple[Row, ...]  # settings in the table
    common: tuple[Row, ...]  # settings with the same value in every variant that uses them


def recfusion_family() -> Family:
    """Return the RecFusion models of the registry with their default settings."""
    names = tuple(name for name, entry in registry.MODELS.items() if issubclass(entry.load(), RecFusion))
    variants = [setting_values(registry.make_model(name)) for name in names]
    declared = {key: of for name in names for key, of in settings_of(registry.MODELS[name].load()).items()}
    stages = {name: stage for stage in STAGES for name in stage.settings if name in declared}
    stages |= {name: TRAINING for name in declared if name not in stages}
    rows = [
        Row(stage, name, declared[name].doc, tuple(_cell(name, of) for of in variants))
        for name, stage in stages.items()
    ]
    shown = tuple(row for row in rows if any(row.differs) or row.setting in _ALWAYS)
    titles = tuple(registry.MODELS[name].title for name in names)
    return Family(names, titles, shown, tuple(row for row in rows if row not in shown))


def _cell(name: str, values: dict[str, Any]) -> str:
    if name not in values:
        return NOT_USED
    placed = values.get("layout", "none") != "none"
    if name == "time" and values["net"] != "mlp":  # a U-Net with a layout does not get the step
        return "none" if placed else "built in"
    other, wanted = _USED_WITH.get(name, ("", ("",)))
    if (placed and name in _SCHEDULE) or values.get(other, wanted[0]) not in wanted:
        return NOT_USED
    value = values[name]
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


# Sizes in pixels; the variants' columns begin at _FIRST.
_MARGIN, _TABLE, _COLUMN = 40, 740, 310
_STAGES, _SETTINGS, _FIRST = 154, 210, 780
_MIDDLE: dict[str, Any] = {"ha": "center", "va": "center"}


def architecture_figure(family: Family | None = None) -> Figure:
    """Draw the pipeline and the table of differences of the variants (default: those in the registry)."""
    family = family or recfusion_family()
    meanings = [wrap(row.meaning, 29) for row in family.rows]
    tops = [_TABLE]
    for lines in meanings:
        tops.append(tops[-1] + 36 + 26 * len(lines))
    cells = [f"{row.setting} {row.choices[0]}" for row in family.common if row.choices]
    common = wrap(f"The same for all that use it: {', '.join(cells)}", 150) if family.common else []
    width, bottom = _FIRST + max(6, len(family.names)) * _COLUMN + _MARGIN, tops[-1]
    figure, axes = blank(width, bottom + 90 + 34 * len(common))
    axes.text(_MARGIN, 66, "The RecFusion family", fontsize=15, color=INK, weight="bold")
    explained = "One implementation: above, what all variants share; below, the settings that make each of them."
    axes.text(_MARGIN, 110, explained, fontsize=10, color=QUIET)
    _draw_pipeline(axes, {row.setting: row.choices for row in family.rows})
    legend = f"coloured: differs from {family.names[0]}\n{NOT_USED}  : has no meaning for this variant"
    axes.text(_MARGIN, 616, legend, fontsize=9.5, color=QUIET, va="center", linespacing=1.35)
    centres = [_FIRST + (place + 0.5) * _COLUMN for place in range(len(family.names))]
    for x, name, title in zip(centres, family.names, family.titles, strict=True):
        axes.text(x, 593, name, fontsize=11, color=INK, weight="bold", ha="center")
        axes.text(x, 616, "\n".join(wrap(title, 23)), size=9, color=QUIET, ha="center", va="top", linespacing=1.35)
    for row, lines, top, end in zip(family.rows, meanings, tops, tops[1:], strict=False):
        y = (top + end) / 2
        axes.plot([_SETTINGS, width - _MARGIN], [top, top], color=FAINT, linewidth=0.8)
        axes.text(_SETTINGS + 8, y, row.setting, fontsize=10.5, color=INK, va="center")
        axes.text(436, y, "\n".join(lines), fontsize=8.5, color=QUIET, va="center", linespacing=1.35)
        for x, value, differs in zip(centres, row.values, row.differs, strict=True):
            if differs:
                _box(axes, x - _COLUMN / 2 + 8, top + 7, _COLUMN - 16, end - top - 14, row.stage.fill, rounded=8)
            colour, weight = INK if differs or x == centres[0] else QUIET, "bold" if differs else "normal"
            axes.text(x, y, value, fontsize=10.5, color=colour, weight=weight, **_MIDDLE)
    for stage in dict.fromkeys(row.stage for row in family.rows):
        inside = [place for place, row in enumerate(family.rows) if row.stage is stage]
        top, end = tops[inside[0]], tops[inside[-1] + 1]
        _box(axes, _MARGIN, top + 2, _STAGES, end - top - 4, stage.fill)
        name = stage.name.replace(" ", "\n")
        axes.text(_MARGIN + _STAGES / 2, (top + end) / 2, name, fontsize=10, color=INK, **_MIDDLE)
    axes.text(_MARGIN, bottom + 38, "\n".join(common), fontsize=9, color=QUIET, va="top", linespacing=1.35)
    return figure


def _draw_pipeline(axes: Axes, choices: dict[str, list[str]]) -> None:
    """Draw x^0 -> q -> x^t -> network -> p -> ranking, with the settings of the variants in the boxes."""
    wide, narrow, tall, y = 400.0, 250.0, 170.0, 330.0
    widths = [narrow, wide, narrow, wide, wide, narrow]
    gap = (axes.get_xlim()[1] - 2 * _MARGIN - sum(widths)) / 5
    lefts = [_MARGIN + sum(widths[:place]) + place * gap for place in range(6)]
    history, _, noise, _, step, ranking = (left + width / 2 for left, width in zip(lefts, widths, strict=True))
    clean, noised = [0, 1, 0, 0, 1, 1, 0, 0, 1, 0], [0.2, 0.7, 0.1, 0.5, 0.8, 0.4, 0.3, 0.1, 0.9, 0.4]
    for values, x, name in ((clean, history, "a user's row  $x^0$"), (noised, noise, "with noise  $x^t$")):
        axes.imshow([values], extent=(x - narrow / 2, x + narrow / 2, y + 25, y - 25), **IMAGE)
        axes.text(x, y + 66, name, fontsize=10.5, color=INK, ha="center")
    boxes = (
        (FORWARD, lefts[1], r"$q(x^t \mid x^0)$", choices["process"]),
        (NETWORK, lefts[3], r"$f_\theta(x^t, t)$", choices["net"]),
        (REVERSE, lefts[4], r"$p_\theta(x^{t-1} \mid x^t)$", choices["variance"]),
    )
    for stage, left, formula, found in boxes:
        _box(axes, left, y - tall / 2, wide, tall, stage.fill, edge=stage.edge, rounded=14)
        used, x = "\n".join(wrap(" | ".join(found), 26)), left + wide / 2
        axes.text(x, y - 43, stage.name, fontsize=11.5, color=INK, weight="bold", ha="center")
        axes.text(x, y + 3, formula, fontsize=11, color=INK, ha="center")
        axes.text(x, y + 46, used, fontsize=9.5, color=QUIET, linespacing=1.35, **_MIDDLE)
    for place, share in enumerate((1, 0.75, 0.55, 0.4, 0.25)):
        _box(axes, lefts[5], y - 60 + 24 * place, share * narrow, 16, "#fde725" if place < 3 else FAINT)
    axes.text(ranking, y + 96, "ranked items", fontsize=10.5, color=INK, ha="center")
    for place in range(5):
        _arrow(axes, QUIET, (lefts[place] + widths[place] + 8, y), (lefts[place + 1] - 8, y))
    above, below = y - tall / 2 - 50, y + tall / 2 + 50
    _arrow(axes, QUIET, (history, y - 34), (history, above), (noise, above), (noise, y - 34))
    told = "to recommend: the history is taken for $x^1$"
    axes.text((history + noise) / 2, above - 14, told, fontsize=10, color=INK, ha="center")
    _arrow(axes, TRAINING.edge, (step, y + tall / 2 + 6), (step, below), (history, below), (history, y + 78))
    told = f"training compares with $x^0$:  {'  |  '.join(choices['objective'])}"
    axes.text((history + step) / 2, below + 36, told, fontsize=10, color=INK, ha="center")


def _arrow(axes: Axes, colour: str, *points: tuple[float, float]) -> None:
    axes.add_patch(FancyArrowPatch(path=Path(points), arrowstyle="-|>", mutation_scale=11, color=colour, linewidth=1.3))


def _box(
    axes: Axes, x: float, y: float, width: float, height: float, fill: str, *, edge: str = "none", rounded: float = 0
) -> None:
    """Draw a filled rectangle with its upper left corner at (x, y)."""
    shape = f"round,pad=0,rounding_size={rounded}" if rounded else "square,pad=0"
    axes.add_patch(FancyBboxPatch((x, y), width, height, shape, facecolor=fill, edgecolor=edge, linewidth=1.2))
