"""What the page shows beside its main table: slices of users and items, training curves, and how to run it again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from recfusion.report.charts import Mark
from recfusion.report.curves import curve_panel, known_epochs
from recfusion.report.document import REFERENCE, Document
from recfusion.report.formats import NONE

DEEPEST = 34  # percent of the accent colour in the best cell of a column: text keeps its contrast
MOST_LISTS = 4  # models side by side in an example: as many as a page is wide
MOST_HISTORY = 12
_CONTRAST = 3  # power of a cell's share of the best: near the top, small shares are what differs


@dataclass(frozen=True)
class Shaded:
    """A number of a slice, and how deep its cell is coloured, in percent."""

    text: str
    shade: int
    mark: Mark = ""


@dataclass(frozen=True)
class SliceTable:
    """A metric in each slice: heads with a second line, and the models' cells."""

    ident: str
    title: str
    note: str
    heads: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, tuple[Shaded, ...]], ...]


@dataclass(frozen=True)
class ExampleLists:
    """The lists of one test user, those of the best models first."""

    user: str
    history: Sequence[str | None]
    more: int  # items of the history that are not shown
    lists: Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class CurvePanel:
    """The training curves of one model."""

    name: str
    svg: Markup


def slice_tables(document: Document, order: Sequence[str], metric: str) -> list[SliceTable]:
    """Return the tables by users' activity and by items' popularity, models in the given order."""
    slices: Mapping[str, Any] = document.get("slices") or {}
    found = [_activity(slices.get("activity"), order, metric), _popularity(slices.get("popularity"), order)]
    return [table for table in found if table is not None and table.rows]


def curve_panels(document: Document, order: Sequence[str]) -> list[CurvePanel]:
    """Return a panel for each model that trained in epochs and was judged on the way; all share one scale."""
    curves: Mapping[str, Sequence[Mapping[str, Any]]] = document.get("curves") or {}
    shown = {name: curves[name] for name in order if any(known_epochs(curve) for curve in curves.get(name, ()))}
    top = max((value for its in shown.values() for curve in its for _, value in known_epochs(curve)), default=0.0)
    return [
        CurvePanel(name, curve_panel(its, ident=f"curve-{number}", title=f"{name}, validation", top=top))
        for number, (name, its) in enumerate(shown.items())
    ]


def example_lists(document: Document, order: Sequence[str]) -> list[ExampleLists]:
    """Return the examples with the lists of the best models in the given order, the reference always among them."""
    found = []
    for example in document.get("examples") or ():
        known = [name for name in order if name in example["lists"]]
        if not known:
            continue
        best = known[:MOST_LISTS]
        shown = [*best[: MOST_LISTS - 1], REFERENCE] if REFERENCE in known[MOST_LISTS:] else best
        found.append(
            ExampleLists(
                user=example["user"],
                history=example["history"][:MOST_HISTORY],
                more=example.get("more", 0) + max(0, len(example["history"]) - MOST_HISTORY),
                lists={name: example["lists"][name] for name in shown},
            )
        )
    return found


def _activity(found: Mapping[str, Any] | None, order: Sequence[str], metric: str) -> SliceTable | None:
    if not found:
        return None
    heads = [(f"{low}–{high}" if low < high else f"{low}", "items") for low, high in found["sizes"]]
    total = sum(found["users"])
    note = (
        f"{metric} of test users with few to many items in the history that the model is shown; "
        f"{len(heads)} groups of about {total // len(heads):,} test users, counted over all splits."
    )
    rows = _rows(order, lambda name: found["models"].get(name, {}).get(metric))
    return SliceTable("activity", "By activity of the user", note, tuple(heads), rows)


def _popularity(found: Mapping[str, Any] | None, order: Sequence[str]) -> SliceTable | None:
    if not found:
        return None
    metric = next((key for of_model in found["models"].values() for key in of_model), None)  # the shortest list
    if metric is None:
        return None
    heads = [(group, f"{count:,} items") for group, count in zip(found["groups"], found["items"], strict=True)]
    note = (
        f"Share of the held-out items found in the first {metric.partition('@')[2]}: items in the order of "
        "popularity, cut into three groups with a third of the training interactions each."
    )
    rows = _rows(order, lambda name: found["models"].get(name, {}).get(metric))
    return SliceTable("popularity", "By popularity of the item", note, tuple(heads), rows)


def _rows(
    order: Sequence[str], values_of: Callable[[str], Sequence[float | None] | None]
) -> tuple[tuple[str, tuple[Shaded, ...]], ...]:
    known = {name: values for name in order if (values := values_of(name)) is not None}
    columns = list(zip(*known.values(), strict=True))
    tops = [max((value for value in column if value is not None), default=0.0) for column in columns]
    return tuple(
        (name, tuple(_shaded(value, top, len(known)) for value, top in zip(values, tops, strict=True)))
        for name, values in known.items()
    )


def _shaded(value: float | None, top: float, n_models: int) -> Shaded:
    if value is None:
        return Shaded(NONE, 0)
    best = n_models > 1 and value == top > 0
    return Shaded(
        f"{100 * value:.1f}", round(DEEPEST * (value / top) ** _CONTRAST) if top > 0 else 0, "best" if best else ""
    )
