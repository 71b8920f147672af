"""Ranking metrics for binary relevance, one value per user, and two that describe the lists themselves.

A metric is named `kind@K`, e.g. `ndcg@100`. With h_r = 1 where the item at rank r is held out, and n held-out items:

    calibrated_recall  sum(h) / min(K, n)          recall     sum(h) / n
    precision          sum(h) / K                  hit_rate   1 if any h
    ndcg               sum(h_r / log2(r + 1)) / sum over r <= min(K, n) of 1 / log2(r + 1)
    mrr                1 / rank of the first hit   map        sum(h_r * precision@r) / min(K, n)
    popularity         mean share of training users who have the recommended items (the popularity bias)
    coverage           share of all items recommended to somebody: one value for all users together
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recfusion.core.arrays import Csr, IntArray, row_numbers
from recfusion.core.errors import InputError, choices

MAIN_METRIC = "ndcg@100"  # decides in tuning, validation and rankings
DEFAULT_METRICS = ("calibrated_recall@20", "calibrated_recall@50", MAIN_METRIC)
Values = NDArray[np.float64]


@dataclass(frozen=True)
class Lists:
    """Recommended lists with what is needed to judge them: the users of one batch."""

    hits: NDArray[np.bool_]  # (users, K): the item at this rank is held out
    n_held_out: IntArray  # (users,)
    popularity: Values  # (users, K): share of training users who have the item at this rank, 0 past a list's end
    length: IntArray  # (users,): items recommended


def _ideal(lists: Lists, k: int) -> IntArray:
    return np.minimum(k, lists.n_held_out)


def _ndcg(lists: Lists, k: int) -> Values:
    hits = lists.hits[:, :k]
    discount = 1 / np.log2(np.arange(2, k + 2))
    best = np.concatenate([[0.0], np.cumsum(discount)])
    return hits @ discount[: hits.shape[1]] / best[_ideal(lists, k)]


def _mrr(lists: Lists, k: int) -> Values:
    hits = lists.hits[:, :k]
    return np.where(hits.any(1), 1 / (hits.argmax(1) + 1), 0.0)


def _map(lists: Lists, k: int) -> Values:
    hits = lists.hits[:, :k]
    precision = np.cumsum(hits, axis=1) / np.arange(1, hits.shape[1] + 1)
    return (precision * hits).sum(1) / _ideal(lists, k)


PER_USER: Mapping[str, Callable[[Lists, int], Values]] = {
    "calibrated_recall": lambda lists, k: lists.hits[:, :k].sum(1) / _ideal(lists, k),
    "recall": lambda lists, k: lists.hits[:, :k].sum(1) / lists.n_held_out,
    "precision": lambda lists, k: lists.hits[:, :k].sum(1) / k,
    "hit_rate": lambda lists, k: np.asarray(lists.hits[:, :k].any(1), np.float64),
    "ndcg": _ndcg,
    "mrr": _mrr,
    "map": _map,
    "popularity": lambda lists, k: lists.popularity[:, :k].sum(1) / np.maximum(1, np.minimum(k, lists.length)),
}
COVERAGE = "coverage"


def parse_metric(name: str) -> tuple[str, int]:
    """Return (kind, K) of a metric's name."""
    kind, _, k = name.partition("@")
    if kind not in (*PER_USER, COVERAGE):
        raise choices("metric", name, [f"{known}@K" for known in (*PER_USER, COVERAGE)])
    if not k.isdecimal() or int(k) < 1:
        raise InputError(f"Expected a metric with a list length, such as '{kind}@20', got '{name}'.")
    return kind, int(k)


def is_descriptive(name: str) -> bool:
    """Return whether a metric says what the lists are like, and not how good they are."""
    return name.partition("@")[0] in ("popularity", COVERAGE)


def check_metrics(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of at least one metric, none of them twice; anything else is an error."""
    for name in names:
        parse_metric(name)
    if not names or len(set(names)) < len(names):
        raise InputError(
            f"Expected at least one metric, such as {DEFAULT_METRICS[-1]}, and none twice, got {list(names)}."
        )
    return tuple(names)


def judge(items: IntArray, held_out: Csr, popularity: Values) -> Lists:
    """Return the lists `items` (users, K; -1 where a list ends) together with which of them are hits."""
    n_users, n_items = held_out.shape
    relevant = np.zeros((n_users, n_items), bool)
    relevant[row_numbers(held_out), held_out.indices] = True
    real = items >= 0
    return Lists(
        hits=np.take_along_axis(relevant, np.maximum(items, 0), axis=1) & real,
        n_held_out=np.diff(held_out.indptr).astype(np.int64),
        popularity=popularity[np.maximum(items, 0)] * real,
        length=real.sum(1),
    )


def per_user(lists: Lists, names: Sequence[str]) -> dict[str, Values]:
    """Return each per-user metric's values (users,); `coverage` is left to the caller, who sees all users."""
    parsed = {name: parse_metric(name) for name in names}
    return {name: PER_USER[kind](lists, k) for name, (kind, k) in parsed.items() if kind != COVERAGE}
