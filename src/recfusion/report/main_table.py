"""The columns of the main table. To add a column, add a record to COLUMNS: the page and all files show it.

The page has one main table with the metrics and these columns. In Markdown and LaTeX each metric has a table of its own
with its tests, and these columns are the table "Cost". In CSV they follow the columns of the metric.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from recfusion.experiments.comparison import Comparison
from recfusion.experiments.comparison_parts import ModelSummary
from recfusion.inference.model_card import WATTS
from recfusion.models.code_digest import CodeState
from recfusion.report.formats import Cell, Column
from recfusion.report.sections import PageCell, base_tests, difference_cells, metric_cells, seconds

Place: TypeAlias = Literal["page", "files", "csv"]  # files: Markdown and LaTeX
STALE, UNKNOWN = "†", "‡"  # marks of rows that are not known to be made by today's code
CODE_MARKS: Mapping[str, str] = {
    STALE: "fitted by older code than that of this version.",
    UNKNOWN: "not known to be fitted by the code of this version.",
}


@dataclass(frozen=True)
class ModelColumn:
    """One column: its head, its value for a model, the format of numbers, and where it is shown."""

    head: str
    value: Callable[[ModelSummary], Cell]
    digits: int = 2
    page_text: Callable[[Any], str] = "{:,}".format
    places: tuple[Place, ...] = ("page", "files", "csv")
    shown: Callable[[Comparison], bool] = lambda _: True


def energy(model: ModelSummary) -> float | None:
    """Return the energy of a fit with its search in watt hours: the seconds of busy cores times a stated power."""
    return None if model.cpu_seconds is None else model.cpu_seconds * WATTS / 3600


def measured_energy(model: ModelSummary) -> float | None:
    """Return the measured energy of a fit with its search in watt hours, of whole processor packages."""
    return None if model.energy_joules is None else model.energy_joules / 3600


def _is_measured(comparison: Comparison) -> bool:
    return any(model.energy_joules is not None for model in comparison.models.values())


def _cpu_is_known(comparison: Comparison) -> bool:
    return any(model.cpu_seconds is not None for model in comparison.models.values())


def _unequal_splits(comparison: Comparison) -> bool:
    return len({len(model.seeds) for model in comparison.models.values()}) > 1


def chosen_text(chosen: Mapping[str, Sequence[Any]]) -> str:
    """Return the settings that fits chose, each as its range over the splits; only the numbers of nested records."""
    texts = []
    for key, values in chosen.items():
        if all(isinstance(value, dict) for value in values):
            names = dict.fromkeys(name for record in values for name in record)
            columns = {name: [record.get(name, 0) for record in values] for name in names}
            texts += [f"{name} {_range_text(column)}" for name, column in columns.items() if _numeric(column)]
        else:
            texts.append(f"{key} = {_range_text(values)}")
    return "; ".join(texts)


COLUMNS: tuple[ModelColumn, ...] = (
    ModelColumn("splits", lambda model: len(model.seeds), places=("page",), shown=_unequal_splits),
    ModelColumn("parameters", lambda model: model.parameters),
    ModelColumn("epochs", lambda model: model.epochs or None, digits=1, places=("files", "csv")),
    ModelColumn("trials", lambda model: model.trials, digits=1, places=("files", "csv")),
    ModelColumn("fit s", lambda model: model.fit_seconds, page_text=seconds),
    ModelColumn("score s", lambda model: model.score_seconds, page_text=seconds),
    ModelColumn(f"energy Wh at {WATTS:g} W a core", energy, digits=3, places=("files", "csv"), shown=_cpu_is_known),
    ModelColumn("measured Wh", measured_energy, digits=3, places=("files", "csv"), shown=_is_measured),
    ModelColumn("chosen in the fit", lambda model: chosen_text(model.chosen), places=("files", "csv")),
    ModelColumn("code", lambda model: model.code, places=("csv",)),
)


@dataclass(frozen=True)
class PageColumn:
    """A column of the page's main table: its head, and the cell of each model."""

    head: str
    kind: Literal["metric", "cost"]
    cells: Mapping[str, PageCell]
    is_main: bool = False


def page_columns(comparison: Comparison, metrics: Sequence[str]) -> list[PageColumn]:
    """Return the columns of the page's main table: the metrics, the difference to the reference, and COLUMNS."""
    main, found = comparison.main_metric, []
    for metric in metrics:
        found.append(PageColumn(metric, "metric", metric_cells(comparison, metric), is_main=metric == main))
        if metric == main and (versus := difference_cells(comparison)):
            found.append(PageColumn(f"{main} vs {base_tests(comparison)[0]}", "metric", versus))
    for column in columns_in("page", comparison):
        values = {label: column.value(model) for label, model in comparison.models.items()}
        cells = {label: _page_cell(column, value) for label, value in values.items()}
        found.append(PageColumn(column.head.capitalize(), "cost", cells))
    return found


def columns_in(place: Place, comparison: Comparison) -> list[ModelColumn]:
    """Return the columns that are shown in a place."""
    return [column for column in COLUMNS if place in column.places and column.shown(comparison)]


def file_columns(columns: Sequence[ModelColumn]) -> list[Column]:
    """Return columns as the tables of files have them."""
    return [Column(column.head, digits=column.digits) for column in columns]


def code_mark(code: CodeState, place: str) -> str:
    """Return the mark of results by older or unknown code; classes that are not ours (with a `place`) have none."""
    return STALE if code == "stale" else UNKNOWN if code == "unknown" and not place else ""


def row_name(model: ModelSummary) -> str:
    """Return the label of a model, with the mark of its code."""
    mark = code_mark(model.code, model.place)
    return f"{model.label} {mark}" if mark else model.label


def code_note(comparison: Comparison) -> str:
    """Return the meanings of the marks in a comparison; an empty text if there are none."""
    used = {code_mark(model.code, model.place) for model in comparison.models.values()}
    return " ".join(f"{mark}: {meaning}" for mark, meaning in CODE_MARKS.items() if mark in used)


def code_text(model: ModelSummary) -> str:
    """Return the code versions that fitted a model."""
    return (", ".join(model.code_versions) or "unknown") + " (stale)" * (model.code == "stale")


def _page_cell(column: ModelColumn, value: Cell) -> PageCell:
    if isinstance(value, int | float):
        return PageCell(value, column.page_text(value))
    return PageCell(None, Column(column.head, digits=column.digits).text(value))


def _range_text(values: Sequence[Any]) -> str:
    if not _numeric(values):
        return ", ".join(dict.fromkeys(str(value) for value in values))
    low, high = f"{min(values):.4g}", f"{max(values):.4g}"
    return low if low == high else f"{low} to {high}"


def _numeric(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
