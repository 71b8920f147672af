"""Evaluate the lists of another program on an exported split, as a result like any other."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl

from recfusion.core.arrays import IntArray, cell_numbers
from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions, to_columns
from recfusion.data.options import Source
from recfusion.data.protocol import Protocol
from recfusion.data.reading.formats import open_table
from recfusion.data.reading.reader import read_table
from recfusion.data.split import Fold, Split
from recfusion.evaluation.list_evaluation import evaluate_lists
from recfusion.evaluation.metrics import parse_metric
from recfusion.experiments.fit import LENGTH, example_rows, examples
from recfusion.experiments.result import Result, package_versions
from recfusion.training.epoch import Curve

PLACE = "lists of another program"  # instead of the place of a class
_SCORES, _RANKS = ("score", "prediction", "pred"), ("rank", "position", "place")


def read_lists(
    path: Path, data: Interactions, fold: Fold, k: int, *, score: str | None = None, rank: str | None = None
) -> tuple[IntArray, tuple[str, ...]]:
    """Return the lists of a fold's users, (users, K), -1 after the end, and what was left out of the table.

    The table has a row per user and item. Items are ordered by the column `score` (highest first) or `rank` (lowest
    first); by default a column with such a name, else by the order of the rows. Seen, repeated and unknown items are
    removed, as for every model, and counted.
    """
    columns = open_table(path).columns
    plain = {name.lower().partition(":")[0]: name for name in columns}
    if score is None and rank is None:
        score = next((plain[name] for name in _SCORES if name in plain), None)
        rank = None if score else next((plain[name] for name in _RANKS if name in plain), None)
    order = score or rank
    if order is not None and order not in columns:
        raise InputError(f"Expected a column '{order}' in '{path}', got {', '.join(columns)}: name another.", "score")
    # A row that lacks a value is an error of the other program, and is counted: no share of them is too large to read.
    table = read_table(path, Source(data=str(path), rating=order or "none", time="none", max_bad_share=1.0))
    rows, left_out = table.rows, table.report.missing + table.report.unparsable
    user, item = to_columns(data.users, rows["user"]), to_columns(data.items, rows["item"])
    place_of = np.full(data.n_users, -1)
    place_of[fold.users] = np.arange(len(fold.users))
    place = np.where(user >= 0, place_of[np.maximum(user, 0)], -1)
    strangers = rows["user"].filter(pl.Series(place < 0)).n_unique()
    value = np.arange(len(rows)) if order is None else rows["rating"].to_numpy() * (-1 if score else 1)
    own = np.flatnonzero(place >= 0)
    own = own[np.lexsort((own, value[own], place[own]))]
    place, item = place[own], item[own]
    unknown = item < 0
    pairs = place * data.n_items + item
    seen = ~unknown & np.isin(pairs, cell_numbers(fold.history))
    repeated = ~unknown & ~seen
    repeated[np.unique(np.where(repeated, pairs, -1), return_index=True)[1]] = False
    kept = ~(unknown | seen | repeated)
    items = np.full((len(fold.users), k), -1, np.int64)
    place, item = place[kept], item[kept]
    position = np.arange(len(place)) - np.searchsorted(place, place)
    inside = position < k
    items[place[inside], position[inside]] = item[inside]
    lengths = (items >= 0).sum(1)
    empty, short = int((lengths == 0).sum()), int(((lengths > 0) & (lengths < k)).sum())
    counts = (
        (
            left_out,
            f"row lacks a user, an item or a {order or 'place'}, and was left out",
            f"rows lack a user, an item or a {order or 'place'}, and were left out",
        ),
        (
            strangers,
            "user is not a test user of this split and was left out",
            "users are not test users of this split and were left out",
        ),
        (int(unknown.sum()), "unknown item was removed", "unknown items were removed"),
        (int(seen.sum()), "item of a shown history was removed", "items of shown histories were removed"),
        (int(repeated.sum()), "repeated item was removed", "repeated items were removed"),
        (empty, "test user has no list and counts as a miss", "test users have no list and count as misses"),
        (short, f"list has fewer than {k} items", f"lists have fewer than {k} items"),
    )
    notes = tuple(f"{n:,} {one if n == 1 else several}" for n, one, several in counts if n)
    if empty == len(fold.users):
        raise InputError(
            f"Expected lists of the {empty:,} test users of the split in '{path}', got none of them "
            f"({'; '.join(notes[:-1])}): check the ids of users and items, or name the columns user and item."
        )
    return items, notes


def judge_lists(
    items: IntArray,
    label: str,
    data: Interactions,
    protocol: Protocol,
    parts: Split,
    *,
    fit_seconds: float = 0.0,
    trials: int | None = None,
) -> Result:
    """Return the result of the lists of the test users, under the protocol of the split."""
    test, rows = parts.test, example_rows(parts.test)
    found = evaluate_lists(items, test, parts.train, protocol.metrics, ids=data.items)
    return Result(
        label=label,
        model="lists",
        title="lists of another program",
        place=PLACE,
        seed=parts.seed,
        settings={},
        chosen={},
        parameters=0,
        trials=trials,
        curve=Curve(),
        fit_seconds=fit_seconds,
        threads=1,
        validation={},
        overall=found.overall,
        slices=found.slices,
        users=found.users,
        history_size=np.diff(test.history.indptr),
        test=found.per_user,
        examples=examples(items[rows, :LENGTH], rows, data, test),
        versions=package_versions(),
        finished=datetime.now(UTC),
        protocol=protocol,
    )


def deepest(metrics: tuple[str, ...]) -> int:
    """Return the longest list that some metrics need."""
    return max(parse_metric(name)[1] for name in metrics)
