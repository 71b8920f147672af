"""Recommendations for people: own ids in, own ids and titles out, also for users never seen in training.

Ids that the model does not know are left out and counted. A user of whom nothing is known (an empty history, or none
but unknown ids) gets the most popular items of the training data, and the column `basis` says so.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from recfusion.core.arrays import Csr, FloatArray, binary_csr
from recfusion.core.errors import InputError
from recfusion.data.interactions import to_columns
from recfusion.evaluation.evaluate import batches
from recfusion.evaluation.topk import top_k
from recfusion.models.bundle import COUNT, Bundle


@dataclass(frozen=True)
class Histories:
    """What is known of some users, as columns of a model; made by `read_histories`."""

    users: pl.Series
    matrix: Csr  # (users, items)
    unknown_rows: int  # rows whose item the model does not know
    unknown_ids: tuple[str, ...]  # some of those ids, for a message

    @property
    def n_empty(self) -> int:
        """How many users have nothing that the model knows."""
        return int(np.count_nonzero(np.diff(self.matrix.indptr) == 0))


def read_histories(bundle: Bundle, rows: pl.DataFrame) -> Histories:
    """Return the histories in `rows` (columns `user`, `item`; a null item makes a user without history)."""
    users = rows["user"].unique(maintain_order=True)
    row = to_columns(users, rows["user"])
    column = to_columns(bundle.items["item"], rows["item"])
    unknown = (column < 0) & rows["item"].is_not_null().to_numpy()
    names = rows["item"].filter(pl.Series(unknown)).unique(maintain_order=True).head(5).cast(pl.String)
    n_items = len(bundle.items)
    pairs = np.unique(row[column >= 0] * n_items + column[column >= 0])
    indptr = np.concatenate([[0], np.cumsum(np.bincount(pairs // n_items, minlength=len(users)))])
    return Histories(users, binary_csr(indptr, pairs % n_items, n_items), int(unknown.sum()), tuple(names))


def recommend(bundle: Bundle, histories: Mapping[Any, Sequence[Any]], k: int = 10) -> pl.DataFrame:
    """Return the K best items of each user: user, rank, item, score, basis and what the item table says.

    `histories` maps any name of a user to the ids of the items that the user has.
    """
    users = [user for user, items in histories.items() for _ in (items or [None])]
    items = [item for items in histories.values() for item in (items or [None])]
    if not users:
        raise InputError("Expected at least one user to recommend for, got none.")
    texts = pl.Series("item", [None if item is None else str(item) for item in items], pl.String)
    known = read_histories(bundle, pl.DataFrame({"user": pl.Series(users, strict=False), "item": texts}))
    return pl.concat(list(recommend_batches(bundle, known, k)))


def recommend_batches(bundle: Bundle, histories: Histories, k: int) -> Iterator[pl.DataFrame]:
    """Yield the recommendations of one batch of users after another; memory does not grow with their number."""
    if k < 1:
        raise InputError(f"Expected at least one item to recommend, got k = {k}.")
    described = bundle.items.drop(COUNT)
    popularity = bundle.items[COUNT].to_numpy().astype(np.float32)
    for rows in batches(*histories.matrix.shape):
        history = histories.matrix[rows]
        scores = _scores(bundle, history, popularity)
        empty = np.diff(history.indptr) == 0
        columns, values = top_k(scores, history, k)
        user, rank = np.nonzero(columns >= 0)
        taken = columns[user, rank]
        yield pl.DataFrame(
            {
                "user": histories.users[rows][user],
                "rank": rank + 1,
                "item": described["item"][taken],
                "score": values[user, rank],
                "basis": np.where(empty[user], "popularity", "history"),
            }
        ).hstack(described.drop("item")[taken].get_columns())


def _scores(bundle: Bundle, history: Csr, popularity: FloatArray) -> FloatArray:
    scores = bundle.model.score(history)
    empty = np.diff(history.indptr) == 0
    if empty.any():
        scores[empty] = popularity / max(1.0, float(popularity.max()))
    return scores
