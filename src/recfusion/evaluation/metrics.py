"""Ranking metrics for binary relevance: one entry of METRICS each, named `kind@K`, such as `ndcg@100`.

In the formulas h_r is 1 if the item at rank r is held out, n is the number of held-out items, and sums go over the
first K ranks. `experiments/custom_metric.py` adds metrics of other people.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recfusion.core.arrays import Csr, IntArray, row_numbers
from recfusion.core.errors import InputError, choices
from recfusion.evaluation.list_metrics import ListSet, ScoreMetric, auc, diversity, gini, sampled, serendipity

MAIN_METRIC = "ndcg@100"  # models are tuned, stopped and compared by it unless another metric is asked for
DEFAULT_METRICS = ("calibrated_recall@20", "calibrated_recall@50", MAIN_METRIC)
Values = NDArray[np.float64]


@dataclass(frozen=True)
class Lists:
    """The recommended lists of one batch of users, and what is needed to score them."""

    hits: NDArray[np.bool_]  # (users, K): the item at this rank is held out
    n_held_out: IntArray  # (users,)
    popularity: Values  # (users, K): share of training users who have the item at this rank, 0 past a list's end
    length: IntArray  # (users,): items recommended


@dataclass(frozen=True)
class Metric:
    """A metric: a value for each user, or one value for all users together; one of the functions computes it."""

    formula: str
    per_user: Callable[[Lists, int], Values] | None = None  # lists, K -> (users,)
    overall: Callable[[NDArray[np.bool_]], float] | None = None  # the items that some list has (items,) -> the value
    descriptive: bool = False  # it describes the lists and does not say how good they are
    of_users: Callable[[ListSet, int], Values] | None = None  # the lists of all users, K -> (users,)
    of_lists: Callable[[ListSet, int], float] | None = None  # the lists of all users, K -> the value
    of_scores: ScoreMetric | None = None  # scores, held-out items, K, rng -> (users,)
    without_k: bool = False  # its name has no @K
    origin: str = ""  # "path:function" of a metric of another person

    @property
    def in_batches(self) -> bool:
        """Whether it is computed from batches of users, without whole lists or all scores."""
        return self.per_user is not None or self.overall is not None


def dcg(hits: NDArray[np.bool_], k: int) -> Values:
    """Return the discounted cumulative gain (users,) of the first k ranks of `hits` (users, ranks)."""
    return np.asarray(hits[:, :k] @ _discounts(k)[: hits.shape[1]])


def ideal_dcg(n_held_out: IntArray, k: int) -> Values:
    """Return the highest gain (users,) that k ranks can have with so many held-out items."""
    return np.concatenate([[0.0], np.cumsum(_discounts(k))])[np.minimum(k, n_held_out)]


def _discounts(k: int) -> Values:
    return np.asarray(1 / np.log2(np.arange(2, k + 2)))


def _ideal(lists: Lists, k: int) -> IntArray:
    return np.minimum(k, lists.n_held_out)


def _mrr(lists: Lists, k: int) -> Values:
    hits = lists.hits[:, :k]
    return np.where(hits.any(1), 1 / (hits.argmax(1) + 1), 0.0)


def _map(lists: Lists, k: int) -> Values:
    hits = lists.hits[:, :k]
    precision = np.cumsum(hits, axis=1) / np.arange(1, hits.shape[1] + 1)
    return (precision * hits).sum(1) / _ideal(lists, k)


_MOST_BITS = 20.0  # novelty of an item that no training user has


def _f1(lists: Lists, k: int) -> Values:
    return 2 * lists.hits[:, :k].sum(1) / (k + lists.n_held_out)


def _novelty(lists: Lists, k: int) -> Values:
    bits = -np.log2(np.maximum(lists.popularity[:, :k], 2**-_MOST_BITS))
    real = np.arange(bits.shape[1]) < lists.length[:, None]
    return np.asarray((bits * real).sum(1) / np.maximum(1, np.minimum(k, lists.length)), np.float64)


METRICS: dict[str, Metric] = {
    "calibrated_recall": Metric("sum(h) / min(K, n)", lambda lists, k: lists.hits[:, :k].sum(1) / _ideal(lists, k)),
    "recall": Metric("sum(h) / n", lambda lists, k: lists.hits[:, :k].sum(1) / lists.n_held_out),
    "precision": Metric("sum(h) / K", lambda lists, k: lists.hits[:, :k].sum(1) / k),
    "hit_rate": Metric("1 if any h", lambda lists, k: np.asarray(lists.hits[:, :k].any(1), np.float64)),
    "ndcg": Metric(
        "sum(h_r / log2(r + 1)) / sum over r <= min(K, n) of 1 / log2(r + 1)",
        lambda lists, k: dcg(lists.hits, k) / ideal_dcg(lists.n_held_out, k),
    ),
    "mrr": Metric("1 / rank of the first hit", _mrr),
    "map": Metric("sum(h_r * precision@r) / min(K, n)", _map),
    "f1": Metric("2 sum(h) / (K + n), the harmonic mean of precision and recall", _f1),
    "auc": Metric(
        "chance that a held-out item has a higher score than another unseen one", of_scores=auc, without_k=True
    ),
    "serendipity": Metric("sum(h) / K without the K most popular items", of_users=serendipity),
    "sampled_hit_rate": Metric(
        "mean over held-out items of 1 if it is among the first K of itself and 100 random items",
        of_scores=sampled(lambda rank, k: (rank <= k).astype(np.float64)),
    ),
    "sampled_ndcg": Metric(
        "mean over held-out items of 1 / log2(rank + 1) among itself and 100 random items, 0 below rank K",
        of_scores=sampled(lambda rank, k: (rank <= k) / np.log2(rank + 1)),
    ),
    "novelty": Metric(
        "mean of -log2(share of training users who have the item), at most 20 bits an item", _novelty, descriptive=True
    ),
    "diversity": Metric(
        "1 - mean cosine of the pairs of a list, with an item's training users as its vector",
        of_users=lambda lists, _: diversity(lists),
        descriptive=True,
    ),
    "gini": Metric(
        "Gini index of how often each item is recommended: 0 for equal shares, 1 for a single item",
        of_lists=lambda lists, _: gini(lists),
        descriptive=True,
    ),
    "popularity": Metric(
        "mean share of training users who have the recommended items (the popularity bias)",
        lambda lists, k: lists.popularity[:, :k].sum(1) / np.maximum(1, np.minimum(k, lists.length)),
        descriptive=True,
    ),
    "coverage": Metric(
        "share of all items that are recommended to some user",
        overall=lambda recommended: float(recommended.mean()),
        descriptive=True,
    ),
}


def parse_metric(name: str) -> tuple[str, int]:
    """Return (kind, K) of a metric's name; K is 1 for a metric without one."""
    kind, at, k = name.partition("@")
    if kind not in METRICS:
        known = [f"{one}{'' if metric.without_k else '@K'}" for one, metric in METRICS.items()]
        raise choices("metric", name, known, "metrics")
    if METRICS[kind].without_k:
        if at:
            raise InputError(f"Expected '{kind}' without a list length, got '{name}'.", "metrics")
        return kind, 1
    if not k.isdecimal() or int(k) < 1:
        raise InputError(f"Expected a metric with a list length, such as '{kind}@20', got '{name}'.", "metrics")
    return kind, int(k)


def is_descriptive(name: str) -> bool:
    """Return whether a metric describes the lists and does not say how good they are."""
    known = METRICS.get(name.partition("@")[0])
    return known is not None and known.descriptive


def needs_scores(name: str) -> bool:
    """Return whether a metric needs the scores of all items."""
    return METRICS[parse_metric(name)[0]].of_scores is not None


def check_metrics(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the metrics; raise if there is none, an unknown one, or one twice."""
    for name in names:
        parse_metric(name)
    if not names or len(set(names)) < len(names):
        raise InputError(
            f"Expected at least one metric, such as {MAIN_METRIC}, and none twice, got {list(names)}.", "metrics"
        )
    return tuple(names)


def judge(items: IntArray, held_out: Csr, popularity: Values) -> Lists:
    """Return the lists `items` (users, K; -1 after the end of a list) with their hits."""
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
    """Return the values (users,) of each metric that has a value per user."""
    parsed = {name: parse_metric(name) for name in names}
    return {
        name: compute(lists, k) for name, (kind, k) in parsed.items() if (compute := METRICS[kind].per_user) is not None
    }
