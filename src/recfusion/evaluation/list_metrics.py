"""Metrics that need whole lists (diversity, serendipity, Gini) or all scores (AUC, sampled metrics)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray, IntArray, column_counts, row_numbers

Values = NDArray[np.float64]
NEGATIVES = 100  # sampled items of a sampled metric
SAMPLED_WARNING = (
    f"Sampled metrics rank each held-out item among {NEGATIVES} random ones. They need not order models as the exact "
    "metrics do (Krichene and Rendle, KDD 2020): report the exact ones."
)
_STEP = 1000  # users at once


@dataclass(frozen=True)
class UserList:
    """The list of one user, as a metric per user gets it; items are columns of the data."""

    items: IntArray  # best first
    hits: NDArray[np.bool_]  # the item at this rank is held out
    history: IntArray  # the items that the model was shown
    held_out: IntArray
    popularity: Values  # share of training users who have each item of the list
    ids: list[object]  # of the items; empty if they are not known


@dataclass(frozen=True)
class ListSet:
    """The lists of all users of a fold, cut to K; items are columns of the data, -1 after the end of a list."""

    items: IntArray  # (users, K)
    hits: NDArray[np.bool_]  # (users, K)
    history: Csr
    held_out: Csr
    train: Csr
    ids: pl.Series | None = None  # of the items

    def cut(self, k: int) -> "ListSet":
        """Return the first k places of all lists."""
        return ListSet(self.items[:, :k], self.hits[:, :k], self.history, self.held_out, self.train, self.ids)

    def users(self) -> list[UserList]:
        """Return the lists one by one."""
        popularity = column_counts(self.train) / max(1, self.train.shape[0])
        found = []
        for row, items in enumerate(self.items):
            own, kept = items[items >= 0], self.hits[row][items >= 0]
            history, held_out = (part[[row]].indices.astype(np.int64) for part in (self.history, self.held_out))
            ids = [] if self.ids is None else self.ids[own].to_list()
            found.append(UserList(own, kept, history, held_out, popularity[own], ids))
        return found


def gini(lists: ListSet) -> float:
    """Return the Gini index of how often each item is recommended."""
    return gini_index(np.bincount(lists.items[lists.items >= 0], minlength=lists.train.shape[1]))


def gini_index(counts: NDArray[np.integer]) -> float:
    """Return the Gini index of counts: 0 for equal ones, near 1 if a single one has everything."""
    n, total = len(counts), max(1, int(counts.sum()))
    return float(((2 * np.arange(1, n + 1) - n - 1) * np.sort(counts)).sum() / (n * total))


def diversity(lists: ListSet) -> Values:
    """Return 1 minus the mean cosine of the pairs of a list, (users,); 0 for a list of one item.

    The vector of an item has its training users. With unit vectors, the sum over pairs is |sum of vectors|^2 - K.
    """
    counts = np.maximum(1, column_counts(lists.train)).astype(np.float64)
    units = csr_array((1 / np.sqrt(counts[lists.train.indices]), lists.train.indices, lists.train.indptr))
    units.resize(lists.train.shape)
    by_item, seen = units.T.tocsr(), column_counts(lists.train) > 0
    found = np.zeros(len(lists.items))
    for start in range(0, len(lists.items), _STEP):
        items = lists.items[start : start + _STEP]
        there = items >= 0
        sizes = there.sum(1)
        chosen = csr_array((np.ones(there.sum()), items[there], np.concatenate([[0], np.cumsum(sizes)])))
        chosen.resize((len(items), lists.train.shape[1]))
        together = chosen @ by_item  # (users, training users)
        pairs = np.asarray(together.multiply(together).sum(1)).ravel() - (seen[np.maximum(items, 0)] & there).sum(1)
        found[start : start + _STEP] = np.where(sizes > 1, 1 - pairs / np.maximum(1, sizes * (sizes - 1)), 0)
    return found


def serendipity(lists: ListSet, k: int) -> Values:
    """Return the share of the K places with a hit that the K most popular items do not have, (users,)."""
    popular = np.argsort(-column_counts(lists.train), kind="stable")[:k]
    return np.asarray((lists.hits & ~np.isin(lists.items, popular)).sum(1) / k, np.float64)


ScoreMetric = Callable[[FloatArray, Csr, int, np.random.Generator], Values]


def auc(scores: FloatArray, held_out: Csr, k: int, rng: np.random.Generator) -> Values:  # noqa: ARG001
    """Return the chance that a held-out item has a higher score than another unseen one; ties count half."""

    def of(own: FloatArray, others: FloatArray) -> float:
        ordered = np.sort(others)
        below = np.searchsorted(ordered, own, "left") + np.searchsorted(ordered, own, "right")
        return float(below.mean() / 2 / len(others)) if len(others) else 1.0

    return _per_user(scores, held_out, of)


def sampled(gain: Callable[[NDArray[np.float64], int], NDArray[np.float64]]) -> ScoreMetric:
    """Return a metric that ranks each held-out item among NEGATIVES random unseen ones."""

    def metric(scores: FloatArray, held_out: Csr, k: int, rng: np.random.Generator) -> Values:
        def of(own: FloatArray, others: FloatArray) -> float:
            drawn = rng.choice(others, min(NEGATIVES, len(others)), replace=False) if len(others) else others
            above = (drawn[None] > own[:, None]).sum(1) + (drawn[None] == own[:, None]).sum(1) / 2
            return float(gain(1 + above, k).mean())

        return _per_user(scores, held_out, of)

    return metric


def _per_user(scores: FloatArray, held_out: Csr, of: Callable[[FloatArray, FloatArray], float]) -> Values:
    """Return of(scores of held-out items, scores of other candidates) for each row; -inf marks seen items."""
    mine = np.zeros(scores.shape, bool)
    mine[row_numbers(held_out), held_out.indices] = True
    there = scores > -np.inf
    return np.array([of(row[own & can], row[~own & can]) for row, own, can in zip(scores, mine, there, strict=True)])
