"""The texts and numbers of the page: cells of the main table, significance groups, slices, examples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from recfusion.evaluation.metrics import is_descriptive
from recfusion.experiments.comparison import Comparison
from recfusion.experiments.comparison_parts import ExampleUser
from recfusion.experiments.paired_tests import PairedTest
from recfusion.report.formats import NONE, points, span

# The best; not significantly worse than it; significantly above or below the reference.
Mark = Literal["best", "same", "above", "below", ""]
DEEPEST = 34  # percent of the accent colour in the best cell of a column: text keeps its contrast
MOST_LISTS = 4  # models in an example: as many as fit on a page
_CONTRAST = 3  # power of a cell's share of the best, so that small differences near the best are visible
MEANING: Mapping[str, str] = {
    "calibrated_recall": "share of the held-out items found in the first {k}, of as many as fit",
    "recall": "share of the held-out items found in the first {k}",
    "precision": "share of the first {k} that are held-out items",
    "hit_rate": "share of users with a hit in the first {k}",
    "ndcg": "hits in the first {k}, discounted by rank; 100 is the ideal order",
    "mrr": "one over the rank of the first hit in the first {k}",
    "map": "precision at the rank of each hit in the first {k}, averaged",
    "popularity": "share of training users who have the items recommended: describes the lists, not their accuracy",
    "coverage": "share of all items recommended to at least one user: describes the lists, not their accuracy",
}


@dataclass(frozen=True)
class PageCell:
    """A cell of the main table on the page."""

    value: float | None = None
    text: str = NONE
    interval: str = ""
    mark: Mark = ""


@dataclass(frozen=True)
class Shaded:
    """A number of a slice, and the depth of its colour in percent."""

    text: str
    shade: int
    best: bool = False


@dataclass(frozen=True)
class SliceTable:
    """A metric by slice: two-line heads, and a row of cells for each model."""

    ident: str
    title: str
    note: str
    heads: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, tuple[Shaded, ...]], ...]


def metric_cells(comparison: Comparison, metric: str) -> dict[str, PageCell]:
    """Return the cells of a metric; the best, and models not significantly worse, are marked."""
    best = "" if is_descriptive(metric) or len(comparison.models) == 1 else comparison.best(metric)
    digits, cells = digits_of(comparison, metric), {}
    for label, model in comparison.models.items():
        found, test = model.metrics[metric], comparison.test(metric, best, label)
        mark: Mark = "best" if label == best else "same" if test is not None and not test.is_significant else ""
        interval = span(found.ci95, digits, to="–")
        cells[label] = PageCell(100 * found.mean, points(found.mean, digits), interval, mark)
    return cells


def difference_cells(comparison: Comparison) -> dict[str, PageCell]:
    """Return the cells of the differences to the reference or, without one, to the best; empty without tests."""
    base, tests = base_tests(comparison)
    cells = {}
    for label in comparison.models if tests else ():
        cells[label] = PageCell(0.0 if label == base else None)
        if label in tests:
            difference, ends = tests[label].of(label)
            mark: Mark = "" if not tests[label].is_significant else "above" if difference > 0 else "below"
            shown = points(difference, signed=True), span(ends, signed=True)
            cells[label] = PageCell(100 * difference, *shown, mark)
    return cells


def significance_groups(comparison: Comparison) -> dict[str, list[str]]:
    """Return the models significantly above, not different from, and below the reference, ordered by difference."""
    base, tests = base_tests(comparison)
    cells = difference_cells(comparison)
    order = sorted(tests, key=lambda label: -tests[label].of(label)[0])
    groups: Mapping[str, Mark] = {
        f"Above {base}": "above",
        f"No significant difference to {base}": "",
        f"Below {base}": "below",
    }
    found = {title: [label for label in order if cells[label].mark == mark] for title, mark in groups.items()}
    return {title: labels for title, labels in found.items() if labels}


def slice_tables(comparison: Comparison) -> list[SliceTable]:
    """Return the tables by user activity and by item popularity, with models in the order of the main table."""
    found = []
    metric, activity, groups = comparison.main_metric, comparison.activity, comparison.item_groups
    if rows := _rows(comparison, activity.models, metric):
        heads = [(f"{low}–{high}" if low < high else f"{low}", "items") for low, high in activity.sizes]
        note = (
            f"{metric} of test users by the number of items in their history; "
            f"{len(heads)} groups of about {sum(activity.users) // len(heads):,} test users over all splits."
        )
        found.append(SliceTable("activity", "By activity of the user", note, tuple(heads), rows))
    shortest = next((key for of_model in groups.models.values() for key in of_model), "")
    if rows := _rows(comparison, groups.models, shortest):
        heads = [(group, f"{n:,} items") for group, n in zip(groups.groups, groups.items, strict=True)]
        note = (
            f"Share of the held-out items found in the first {shortest.partition('@')[2]}: items by popularity, in "
            "three groups with a third of the training interactions each."
        )
        found.append(SliceTable("popularity", "By popularity of the item", note, tuple(heads), rows))
    return found


def example_lists(comparison: Comparison) -> list[ExampleUser]:
    """Return the examples with the lists of the best models and the reference."""
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


def base_tests(comparison: Comparison) -> tuple[str, dict[str, PairedTest]]:
    """Return the model that others are compared with, the reference or the best, and the tests by label."""
    base = comparison.reference or comparison.best()
    known = comparison.differences if comparison.reference else comparison.tests
    tests = [test for test in known if test.metric == comparison.main_metric]
    return base, {test.a if test.b == base else test.b: test for test in tests}


def meaning(metric: str) -> str:
    """Return the meaning of a metric in words."""
    kind, _, k = metric.partition("@")
    return MEANING.get(kind, "").format(k=k)


def digits_of(comparison: Comparison, metric: str) -> int:
    """Return the decimals of a metric: one, or two if all values are below 10 points."""
    return 1 if max(model.mean(metric) for model in comparison.models.values()) >= 0.1 else 2


def seconds(value: float) -> str:
    """Return seconds as text without a unit."""
    return "<0.01" if value < 0.01 else f"{value:,.{2 if value < 1000 else 0}f}"
