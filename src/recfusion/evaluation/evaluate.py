"""Evaluate a model on a fold batch by batch, also by the popularity of items.

Scores of all users x items are never held in memory.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recfusion.core.arrays import Csr, IntArray, column_counts
from recfusion.core.pool import available_cores
from recfusion.data.split import Fold
from recfusion.evaluation.metrics import DEFAULT_METRICS, METRICS, Values, judge, parse_metric, per_user
from recfusion.evaluation.scoring import Scorer, scores
from recfusion.evaluation.topk import batch_rows, top_k

T = TypeVar("T")
GROUPS = ("head", "middle", "tail")  # each has about a third of the training interactions


@dataclass(frozen=True)
class PopularitySlices:
    """Hits in the first K ranks over all users of a fold, in the order of GROUPS."""

    items: tuple[int, ...]  # items of each group
    held_out: tuple[int, ...]  # held-out interactions of each group
    hits: dict[int, tuple[int, ...]]  # K -> hits in the first K ranks

    @classmethod
    def of(cls, groups: IntArray, held_out: Csr, ks: Sequence[int], hits: IntArray) -> "PopularitySlices":
        """Return the slices of a fold from the groups of items and the hits (ks, groups)."""
        sizes, out = (
            np.bincount(which, minlength=len(GROUPS)).tolist() for which in (groups, groups[held_out.indices])
        )
        counted = {k: tuple(counts) for k, counts in zip(ks, hits.tolist(), strict=True)}
        return cls(items=tuple(sizes), held_out=tuple(out), hits=counted)

    def recall(self, k: int) -> dict[str, float | None]:
        """Return the recall at K of each group; None for a group without held-out interactions."""
        counted = zip(GROUPS, self.hits[k], self.held_out, strict=True)
        return {group: hits / held_out if held_out else None for group, hits, held_out in counted}


@dataclass(frozen=True, repr=False)
class Evaluation:
    """The metrics of one model on one fold."""

    users: IntArray  # rows of the Interactions, one per value below
    per_user: dict[str, Values]
    overall: dict[str, float]  # metrics without a value per user (coverage)
    seconds: float
    slices: PopularitySlices
    lists: IntArray  # (shown, K): the lists of the users that were asked for, -1 after the end

    def mean(self) -> dict[str, float]:
        return {name: float(values.mean()) for name, values in self.per_user.items()} | self.overall

    def to_frame(self) -> pl.DataFrame:
        """Return a row per user: the user's row in the data, and the value of each metric."""
        return pl.DataFrame({"user": self.users, **self.per_user})

    def __repr__(self) -> str:
        values = ", ".join(f"{name} {100 * mean:.2f}" for name, mean in self.mean().items())
        return f"Evaluation({len(self.users)} users: {values})"

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><td>{name}</td><td>{100 * mean:.2f}</td></tr>" for name, mean in self.mean().items())
        return f"<table><tr><th>metric</th><th>mean of {len(self.users)} users, x 100</th></tr>{rows}</table>"


def evaluate(
    model: Scorer,
    fold: Fold,
    train: Csr,
    metrics: Sequence[str] = DEFAULT_METRICS,
    *,
    threads: int | None = None,
    shown: Sequence[int] = (),
    length: int = 0,
    make_lists: Callable[[Fold, int], IntArray] | None = None,
) -> Evaluation:
    """Return the metrics of `model` on `fold`; each user is scored once.

    `train` gives the popularity of items. Known dislikes are masked for every model, whether it reads them or not. The
    first `length` items of the lists of the rows `shown` are kept. `make_lists` makes other lists than the scores do.
    """
    kinds = {name: parse_metric(name) for name in metrics}
    ks = sorted({k for _, k in kinds.values()})
    popularity = column_counts(train) / max(1, train.shape[0])
    overall = {name: found for name, (kind, _) in kinds.items() if (found := METRICS[kind].overall) is not None}
    recommended = {name: np.zeros(train.shape[1], bool) for name in overall}
    groups = popularity_groups(train)
    kept = np.full((len(shown), length), -1, np.int64)

    def run(rows: slice) -> tuple[dict[str, Values], IntArray]:
        part, longest = fold.take(rows), max(ks[-1], length)
        if make_lists is not None:
            items = make_lists(part, longest)
        else:
            items, _ = top_k(scores(model, part.history, part.extra), part.history, longest, part.disliked)
        for place, row in enumerate(shown):
            if rows.start <= row < rows.stop:
                listed = items[row - rows.start, :length]
                kept[place, : len(listed)] = listed
        for name, seen in recommended.items():
            first = items[:, : kinds[name][1]]
            seen[first[first >= 0]] = True
        lists = judge(items, part.held_out, popularity)
        return per_user(lists, metrics), group_hits(items, lists.hits, groups, ks)

    start = time.perf_counter()
    parts = list(map_batches(run, fold.history, threads))
    return Evaluation(
        users=fold.users,
        per_user={name: np.concatenate([part[name] for part, _ in parts]) for name in parts[0][0]},
        overall={name: compute(recommended[name]) for name, compute in overall.items()},
        seconds=time.perf_counter() - start,
        slices=PopularitySlices.of(groups, fold.held_out, ks, np.sum([hits for _, hits in parts], axis=0)),
        lists=kept,
    )


def popularity_groups(train: Csr) -> IntArray:
    """Return each item's group (0 head, 1 middle, 2 tail), by thirds of the training interactions.

    Items are ordered by popularity; an item belongs to the third of its first interaction.
    """
    counts = column_counts(train)
    order = np.argsort(-counts, kind="stable")
    before = np.cumsum(counts[order]) - counts[order]
    groups = np.empty(len(counts), np.int64)
    groups[order] = np.minimum(2, 3 * before // max(1, int(counts.sum())))
    return groups


def group_hits(items: IntArray, hits: NDArray[np.bool_], groups: IntArray, ks: Sequence[int]) -> IntArray:
    """Count the hits of the lists `items` (users, K) in each group within the first k ranks, (ks, groups)."""
    found = [groups[items[:, :k][hits[:, :k]]] for k in ks]
    return np.stack([np.bincount(its_groups, minlength=len(GROUPS)) for its_groups in found])


def batches(n_rows: int, n_items: int) -> Iterator[slice]:
    """Yield slices of users small enough to score at once."""
    size = batch_rows(n_items)
    return (slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size))


def map_batches(run: Callable[[slice], T], history: Csr, threads: int | None = None) -> Iterator[T]:
    """Yield run(rows) for each batch of users, in order; batches run in parallel threads (numpy releases the lock).

    At most as many results as workers wait to be taken.
    """
    slices = batches(*history.shape)
    workers = threads or available_cores()
    if workers <= 1:
        yield from map(run, slices)
        return
    with ThreadPoolExecutor(workers) as pool:
        begun = deque(pool.submit(run, rows) for rows in islice(slices, workers))
        while begun:
            found = begun.popleft().result()
            begun.extend(pool.submit(run, rows) for rows in islice(slices, 1))
            yield found
