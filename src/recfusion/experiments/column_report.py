"""Results by any column of the items or users: of a saved model, and of the models of a comparison."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, hstack

from recfusion.core.arrays import IntArray, cell_numbers, column_counts, row_numbers
from recfusion.core.errors import InputError, choices
from recfusion.data.interactions import Interactions
from recfusion.data.load import load
from recfusion.data.options import Source
from recfusion.data.protocol import check_same_data
from recfusion.data.split import Split
from recfusion.evaluation.evaluate import evaluate
from recfusion.evaluation.metrics import Values
from recfusion.evaluation.significance import bootstrap_means, summarise
from recfusion.experiments.custom_metric import main_metric
from recfusion.experiments.result import Result
from recfusion.experiments.train import rebuild_split
from recfusion.inference.bundle import Bundle
from recfusion.inference.categories import Categories
from recfusion.inference.new_items import without_new
from recfusion.models.base import Recommender

_QUARTERS = 4  # groups of a column of numbers
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
    model = without_new(bundle).model
    if column in bundle.items.columns:
        groups = _item_groups(parts, found_items(model, parts, k), bundle.items.head(parts.train.shape[1]), column)
        return ColumnReport(column, "items", f"recall@{k}", groups)
    asked = source or bundle.protocol.source
    table = load(asked.model_copy(update={"items": None}), bundle.protocol.preparation).user_table
    table = check_user_column(table, column, bundle.items.columns)
    metric = main_metric(bundle.protocol.metrics)
    values = evaluate(model, parts.test, parts.train, [metric]).per_user[metric]
    users = parts.test.users
    return ColumnReport(column, "users", metric, _user_groups(*_groups(table[users], column), users, values))


def compare_by(
    results: Sequence[Result], column: str, data: Interactions, metric: str | None = None
) -> dict[str, ColumnReport]:
    """Return the results of each model, by its label, by a column of the users' file; nothing is fitted again.

    `metric` is by default the one that ranks the models. Results hold values per user, so they cannot be grouped by a
    column of the items.
    """
    table = check_user_column(data.user_table, column)
    for one in results:
        check_same_data(one.protocol, data, f"of {one.label}")
    metric, found = metric or main_metric(results[0].protocol.metrics), {}
    if metric not in results[0].test:
        raise InputError(
            f"Expected a metric with a value per user, got {metric}: name another deciding one.", "deciding"
        )
    everybody = np.unique(np.concatenate([one.users for one in results]))
    names, has = _groups(table[everybody], column)  # the same groups for every model
    for label in dict.fromkeys(one.label for one in results):
        its = [one for one in results if one.label == label]
        users, values = np.concatenate([one.users for one in its]), np.concatenate([one.test[metric] for one in its])
        groups = _user_groups(names, has[np.searchsorted(everybody, users)], users, values)
        found[label] = ColumnReport(column, "users", metric, groups)
    return found


def check_user_column(table: pl.DataFrame | None, column: str, others: Sequence[str] = ()) -> pl.DataFrame:
    """Return the table of users, or raise if it lacks a column; `others` are columns that could be named as well."""
    if table is None and not others:
        raise InputError(
            f"Expected a file of users with the column '{column}', got none: name it with --users-file.", "by"
        )
    if table is None or column not in table.columns:
        known = [*others, *([] if table is None else table.columns)]
        more = "" if table is not None else " (columns of users need --users-file)"
        raise InputError(f"{choices('column', column, known, 'by')}{more}", "by")
    return table


def found_items(model: Recommender, parts: Split, k: int) -> NDArray[np.bool_]:
    """Return whether each held-out item of the test users is in the first k of a list, one value per interaction."""
    test = parts.test
    lists = evaluate(model, test, parts.train, [f"recall@{k}"], shown=range(len(test.users)), length=k).lists
    users, places = np.nonzero(lists >= 0)
    return np.isin(cell_numbers(test.held_out), users * test.held_out.shape[1] + lists[users, places])


def _item_groups(parts: Split, hit: NDArray[np.bool_], table: pl.DataFrame, column: str) -> tuple[GroupResult, ...]:
    test, (names, has) = parts.test, _groups(table, column)
    users, items, n_users = row_numbers(test.held_out), test.held_out.indices, len(test.users)
    found = []
    for number in _largest(has.T @ column_counts(test.held_out)):
        own = has[:, [number]].toarray()[items, 0] > 0
        held_out, hits = np.bincount(users[own], minlength=n_users), np.bincount(users[own], hit[own], n_users)
        who = np.flatnonzero(held_out)
        found.append(_group(names[number], int(held_out.sum()), test.users[who], hits[who] / held_out[who]))
    return tuple(found)


def _user_groups(names: Sequence[str], has: csc_array, users: IntArray, values: Values) -> tuple[GroupResult, ...]:
    """Return the groups of users; `has` (values, groups) says who is in which."""
    chosen = [(names[number], has[:, [number]].nonzero()[0]) for number in _largest(np.diff(has.indptr))]
    return tuple(_group(name, len(np.unique(users[own])), users[own], values[own]) for name, own in chosen)


def _group(name: str, size: int, users: IntArray, values: Values) -> GroupResult:
    summary = summarise([values], bootstrap_means(users, values[:, None])[:, 0])
    return GroupResult(name, size, len(np.unique(users)), summary.mean, summary.ci95)


def _groups(table: pl.DataFrame, column: str) -> tuple[list[str], csc_array]:
    """Return the values of a column and which rows have them, (rows, values): quarters of numbers, else categories."""
    values = table[column]
    if values.dtype.is_numeric() and values.n_unique() > 2 * _QUARTERS:
        cuts = np.unique(np.quantile(values.drop_nulls().to_numpy(), np.arange(1, _QUARTERS) / _QUARTERS))
        texts = [f"up to {cut:g}" for cut in cuts] + [f"above {cuts[-1]:g}"]
        table = pl.DataFrame({column: values.cut(cuts.tolist(), labels=texts).cast(pl.String)})
    found = Categories.of(table, column)
    without = csr_array((np.diff(found.matrix.indptr) == 0).astype(np.float32)[:, None])
    return [*found.names, "none"], hstack([found.matrix, without], "csc")


def _largest(sizes: NDArray[Any]) -> list[int]:
    return [int(place) for place in np.argsort(-sizes, kind="stable")[:_MOST] if sizes[place]]
