"""What the page shows beside its charts: the main table, who is above whom, slices of users and items, and examples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from recfusion.evaluation.metrics import is_descriptive
from recfusion.experiments.comparison import Comparison
from recfusion.experiments.details import SideBySide
from recfusion.report.formats import NONE
from recfusion.report.words import base_tests, digits_of, points, signed, span, told_apart

Mark = Literal["best", "same", "above", "below", ""]  # the best, not told apart from it; told apart from the reference

DEEPEST = 34  # percent of the accent colour in the best cell of a column: text keeps its contrast
MOST_LISTS = 4  # models side by side in an example: as many as a page is wide
_CONTRAST = 3  # power of a cell's share of the best: near the top, small shares are what differs


@dataclass(frozen=True)
class Cell:
    """A number of a model as the main table shows it."""

    value: float | None = None
    text: str = NONE
    interval: str = ""
    mark: Mark = ""


@dataclass(frozen=True)
class Shaded:
    """A number of a slice, and how deep its cell is coloured, in percent."""

    text: str
    shade: int
    best: bool = False


@dataclass(frozen=True)
class SliceTable:
    """A metric in each slice: heads with a second line, and the models' cells."""

    ident: str
    title: str
    note: str
    heads: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, tuple[Shaded, ...]], ...]


def metric_cells(comparison: Comparison, metric: str) -> dict[str, Cell]:
    """Return the cells of a metric's column, the best and those not told apart from it marked."""
    best = "" if is_descriptive(metric) or len(comparison.models) == 1 else comparison.best(metric)
    digits, cells = digits_of(comparison, metric), {}
    for label, model in comparison.models.items():
        found, test = model.metrics[metric], comparison.test(metric, best, label)
        mark: Mark = "best" if label == best else "same" if test is not None and not told_apart(test) else ""
        interval = span(found.ci95, digits, "–") if found.ci95 else ""
        cells[label] = Cell(100 * found.mean, points(found.mean, digits), interval, mark)
    return cells


def difference_cells(comparison: Comparison) -> dict[str, Cell]:
    """Return the cells of the differences to the reference, else to the best; none where nothing was tested."""
    base, tests = base_tests(comparison)
    cells = {}
    for label in comparison.models if tests else ():
        cells[label] = Cell(0.0 if label == base else None)
        if label in tests:
            difference, interval = tests[label].of(label)
            mark: Mark = "" if not told_apart(tests[label]) else "above" if difference > 0 else "below"
            cells[label] = Cell(100 * difference, signed(difference), " to ".join(map(signed, interval)), mark)
    return cells


def told_groups(comparison: Comparison) -> dict[str, list[str]]:
    """Return the models above the reference, not told apart from it and below it, each in the order of difference."""
    base, tests = base_tests(comparison)
    cells = difference_cells(comparison)
    order = sorted(tests, key=lambda label: -tests[label].of(label)[0])
    groups: Mapping[str, Mark] = {f"Above {base}": "above", f"Not told apart from {base}": "", f"Below {base}": "below"}
    found = {title: [label for label in order if cells[label].mark == mark] for title, mark in groups.items()}
    return {title: labels for title, labels in found.items() if labels}


def slice_tables(comparison: Comparison) -> list[SliceTable]:
    """Return the tables by users' activity and by items' popularity, models in the order of the main table."""
    found = []
    metric, activity, groups = comparison.main_metric, comparison.activity, comparison.item_groups
    if rows := _rows(comparison, activity.models, metric):
        heads = [(f"{low}–{high}" if low < high else f"{low}", "items") for low, high in activity.sizes]
        note = (
            f"{metric} of test users with few to many items in the history that the model is shown; "
            f"{len(heads)} groups of about {sum(activity.users) // len(heads):,} test users, counted over all splits."
        )
        found.append(SliceTable("activity", "By activity of the user", note, tuple(heads), rows))
    shortest = next((key for of_model in groups.models.values() for key in of_model), "")
    if rows := _rows(comparison, groups.models, shortest):
        heads = [(group, f"{n:,} items") for group, n in zip(groups.groups, groups.items, strict=True)]
        note = (
            f"Share of the held-out items found in the first {shortest.partition('@')[2]}: items in the order of "
            "popularity, cut into three groups with a third of the training interactions each."
        )
        found.append(SliceTable("popularity", "By popularity of the item", note, tuple(heads), rows))
    return found


def example_lists(comparison: Comparison) -> list[SideBySide]:
    """Return the examples with the lists of the best models, the reference always among them."""
    found = []
    for example in comparison.examples:
        known = [label for label in comparison.ranked() if label in example.lists]
        shown = known[:MOST_LISTS]
        if comparison.reference in known[MOST_LISTS:]:
            shown[-1] = str(comparison.reference)
        found.append(replace(example, lists={label: example.lists[label] for label in shown}))
    return found


def _rows(
    comparison: Comparison, models: Mapping[str, Mapping[str, Sequence[float | None]]], metric: str
) -> tuple[tuple[str, tuple[Shaded, ...]], ...]:
    known = {label: models[label][metric] for label in comparison.ranked() if metric in models[label]}
    columns = zip(*known.values(), strict=True)
    tops = [max((value for value in column if value is not None), default=0.0) for column in columns]
    return tuple(
        (label, tuple(_shaded(value, top, len(known)) for value, top in zip(values, tops, strict=True)))
        for label, values in known.items()
    )


def _shaded(value: float | None, top: float, n_models: int) -> Shaded:
    if value is None:
        return Shaded(NONE, 0)
    shade = round(DEEPEST * (value / top) ** _CONTRAST) if top > 0 else 0
    return Shaded(f"{100 * value:.1f}", shade, best=n_models > 1 and value == top > 0)
