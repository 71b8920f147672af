"""Results of a saved model by any column of its items or users."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recfusion.core.arrays import row_numbers
from recfusion.core.errors import InputError, choices
from recfusion.data.load import load
from recfusion.data.options import Source
from recfusion.data.split import Split
from recfusion.evaluation.evaluate import evaluate
from recfusion.evaluation.metrics import MAIN_METRIC, Values, parse_metric
from recfusion.evaluation.significance import bootstrap_means, summarise
from recfusion.experiments.train import rebuild_split
from recfusion.inference.bundle import Bundle
from recfusion.inference.new_items import without_new

_GROUPS = 4  # of a column of numbers
_MOST = 30  # groups that are shown, the largest ones


@dataclass(frozen=True)
class GroupResult:
    """A group of items or users, and the mean of a metric over the test users who count in it."""

    value: str
    size: int  # held-out interactions of a group of items, test users of a group of users
    users: int
    mean: float
    ci95: tuple[float, float] | None


@dataclass(frozen=True)
class ColumnReport:
    """A metric by the values of a column; of items it is the recall, the share of a user's held-out items found."""

    column: str
    of: str  # items or users
    metric: str
    groups: tuple[GroupResult, ...]


def report_by(bundle: Bundle, column: str, source: Source | None = None, k: int = 20) -> ColumnReport:
    """Return the results of a saved model on its test users, by a column of its items or of the users' file."""
    parts = rebuild_split(bundle, source)
    model, n_items = without_new(bundle).model, parts.train.shape[1]
    if column in bundle.items.columns:
        found = evaluate(model, parts.test, parts.train, [f"recall@{k}"], shown=range(len(parts.test.users)), length=k)
        groups = _item_groups(parts, found.lists, _cells(bundle.items[column].head(n_items)))
        return ColumnReport(column, "items", f"recall@{k}", groups)
    asked = source or bundle.protocol.source
    table = load(asked.model_copy(update={"items": None}), bundle.protocol.preparation).user_table
    known = [*bundle.items.columns, *([] if table is None else table.columns)]
    if table is None or column not in table.columns:
        more = "" if table is not None else " (columns of users need --users-file)"
        raise InputError(f"{choices('column', column, known, 'by')}{more}", "by")
    metric = MAIN_METRIC if MAIN_METRIC in bundle.protocol.metrics else bundle.protocol.metrics[-1]
    parse_metric(metric)
    values = evaluate(model, parts.test, parts.train, [metric]).per_user[metric]
    rows, names = _pairs(_cells(table[column][parts.test.users]))
    chosen = [(name, rows[names == name]) for name in _largest(names)]
    return ColumnReport(
        column, "users", metric, tuple(_group(name, len(own), own, values[own], parts) for name, own in chosen)
    )


def _item_groups(parts: Split, lists: NDArray[Any], cells: list[list[str]]) -> tuple[GroupResult, ...]:
    users, items = row_numbers(parts.test.held_out), parts.test.held_out.indices
    hit = _marked(lists, parts.test.held_out.shape[1])[users, items]
    rows, names = _pairs([cells[item] for item in items])
    found = []
    for name in _largest(names):
        own = rows[names == name]
        of = users[own]
        held_out = np.bincount(of, minlength=len(parts.test.users))
        hits = np.bincount(of, hit[own], len(parts.test.users))
        who = np.flatnonzero(held_out)
        found.append(_group(name, len(own), who, hits[who] / held_out[who], parts))
    return tuple(found)


def _marked(lists: NDArray[Any], n_items: int) -> NDArray[Any]:
    shown = np.zeros((len(lists), n_items + 1), bool)
    shown[np.arange(len(lists))[:, None], lists] = True  # -1 marks the last column, which is dropped
    return shown[:, :-1]


def _group(name: str, size: int, who: NDArray[Any], values: Values, parts: Split) -> GroupResult:
    drawn = bootstrap_means(parts.test.users[who], values[:, None])[:, 0]
    summary = summarise([values], drawn)
    return GroupResult(name, size, len(who), summary.mean, summary.ci95)


def _cells(column: pl.Series) -> list[list[str]]:
    """Return the values of each cell: quarters of numbers, the members of lists and of texts such as "Action|Drama"."""
    if column.dtype.is_numeric() and column.n_unique() > 2 * _GROUPS:
        cuts = np.unique(np.quantile(column.drop_nulls().to_numpy(), np.arange(1, _GROUPS) / _GROUPS))
        texts = [f"up to {cut:g}" for cut in cuts] + [f"above {cuts[-1]:g}"]
        return [["none"] if cell is None else [texts[int(np.searchsorted(cuts, cell))]] for cell in column.to_list()]
    cells = column.to_list()
    split = [cell if isinstance(cell, list) else str(cell).split("|") if cell is not None else [] for cell in cells]
    return [[str(one).strip() for one in cell if one not in (None, "")] or ["none"] for cell in split]


def _pairs(cells: list[list[str]]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the number of the cell and the value, one of each value of each cell."""
    rows = np.repeat(np.arange(len(cells)), [len(cell) for cell in cells])
    return rows, np.array([value for cell in cells for value in cell], dtype=object)


def _largest(names: NDArray[Any]) -> list[str]:
    values, counts = np.unique(names.astype(str), return_counts=True)
    return [str(values[place]) for place in np.argsort(-counts, kind="stable")[:_MOST]]
