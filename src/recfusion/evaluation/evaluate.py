"""Scoring a fold batch by batch and judging the lists; users x items is never held in memory."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from recfusion.core.arrays import Csr, FloatArray, IntArray, column_counts
from recfusion.data.split import Fold
from recfusion.evaluation.metrics import COVERAGE, DEFAULT_METRICS, Values, judge, parse_metric, per_user
from recfusion.evaluation.topk import batch_rows, top_k

T = TypeVar("T")


class Scorer(Protocol):
    """Whatever gives scores (users, items) for a batch of histories."""

    def score(self, history: Csr) -> FloatArray: ...


@dataclass(frozen=True)
class Evaluation:
    """The metrics of one model on one fold."""

    users: IntArray  # rows of the Interactions, one per value below
    per_user: dict[str, Values]
    overall: dict[str, float]  # metrics that have no value per user (coverage)
    seconds: float

    def mean(self) -> dict[str, float]:
        """Return each metric's mean over users."""
        return {name: float(values.mean()) for name, values in self.per_user.items()} | self.overall


def evaluate(
    model: Scorer, fold: Fold, train: Csr, metrics: Sequence[str] = DEFAULT_METRICS, *, threads: int | None = None
) -> Evaluation:
    """Return the metrics of `model` on `fold`; `train` gives the popularity of items."""
    kinds = {name: parse_metric(name) for name in metrics}
    longest = max(k for _, k in kinds.values())
    popularity = column_counts(train) / max(1, train.shape[0])
    covered = {name: np.zeros(train.shape[1], bool) for name, (kind, _) in kinds.items() if kind == COVERAGE}

    def run(rows: slice) -> dict[str, Values]:
        items, _ = top_k(model.score(fold.history[rows]), fold.history[rows], longest)
        for name, seen in covered.items():
            shown = items[:, : kinds[name][1]]
            seen[shown[shown >= 0]] = True
        return per_user(judge(items, fold.held_out[rows], popularity), metrics)

    start = time.perf_counter()
    parts = map_batches(run, fold.history, threads)
    values = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    overall = {name: float(seen.mean()) for name, seen in covered.items()}
    return Evaluation(fold.users, values, overall, time.perf_counter() - start)


def batches(n_rows: int, n_items: int) -> Iterator[slice]:
    """Yield slices of users small enough to score at once."""
    size = batch_rows(n_items)
    return (slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size))


def map_batches(run: Callable[[slice], T], history: Csr, threads: int | None = None) -> list[T]:
    """Return run(rows) for each batch of users, in order; batches run side by side (numpy lets go of the lock)."""
    slices = list(batches(*history.shape))
    workers = min(len(slices), threads or os.cpu_count() or 1)
    if workers <= 1:
        return [run(rows) for rows in slices]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(run, slices))
