"""Evaluate the lists of another program on an exported split, as a result like any other."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl

from recfusion.core.arrays import Csr, IntArray, row_numbers
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


@dataclass(frozen=True)
class ReadLists:
    """The lists of a fold's users, and what was left out of the file."""

    items: IntArray  # (users, K), -1 after the end
    notes: tuple[str, ...]


def read_lists(
    path: Path, data: Interactions, fold: Fold, k: int, *, score: str | None = None, rank: str | None = None
) -> ReadLists:
    """Read lists of at least K items from a table with a row per user and item.

    Items are ordered by the column `score` (highest first) or `rank` (lowest first); by default a column with such a
    name, else by the order of the rows. Seen, repeated and unknown items are removed, as for every model, and counted.
    """
    columns = open_table(path).columns
    plain = {name.lower().partition(":")[0]: name for name in columns}
    if score is None and rank is None:
        score = next((plain[name] for name in _SCORES if name in plain), None)
        rank = None if score else next((plain[name] for name in _RANKS if name in plain), None)
    order = score or rank
    if order is not None and order not in columns:
        raise InputError(f"Expected a column '{order}' in '{path}', got {', '.join(columns)}: name another.", "score")
    rows = read_table(path, Source(data=str(path), rating=order or "none", time="none")).rows
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
    seen = ~unknown & _contained(fold.history, place, item)
    pairs = place.astype(np.int64) * data.n_items + item
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
            strangers,
            "user is no test user of this split, and left out",
            "users are no test users of this split, and left out",
        ),
        (int(unknown.sum()), "unknown item was removed", "unknown items were removed"),
        (int(seen.sum()), "item of a shown history was removed", "items of shown histories were removed"),
        (int(repeated.sum()), "repeated item was removed", "repeated items were removed"),
        (empty, "test user has no list and counts as a miss", "test users have no list and count as misses"),
        (short, f"list has fewer than {k} items", f"lists have fewer than {k} items"),
    )
    if empty == len(fold.users):
        raise InputError(
            f"Expected lists of the {empty:,} test users of the split in '{path}', got none of them: check the ids of "
            "users and items, or name the columns user and item."
        )
    return ReadLists(items, tuple(f"{n:,} {one if n == 1 else several}" for n, one, several in counts if n))


def judge_lists(
    lists: ReadLists,
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
    found = evaluate_lists(lists.items, test, parts.train, protocol.metrics, ids=data.items)
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
        examples=examples(lists.items[rows, :LENGTH], rows, data, test),
        versions=package_versions(),
        finished=datetime.now(UTC),
        protocol=protocol,
    )


def deepest(metrics: tuple[str, ...]) -> int:
    """Return the longest list that some metrics need."""
    return max(parse_metric(name)[1] for name in metrics)


def _contained(rows: Csr, place: IntArray, item: IntArray) -> np.ndarray:
    """Return which pairs of row and column `rows` has."""
    own = row_numbers(rows).astype(np.int64) * rows.shape[1] + rows.indices
    return np.isin(place.astype(np.int64) * rows.shape[1] + item, own)
