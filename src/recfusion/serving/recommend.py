"""Recommendations for people: own ids in, own ids and titles out, also for users never seen in training.

Ids that the model does not know are left out and counted. A user of whom nothing is known (an empty history, or none
but unknown ids) gets the most popular items of the training data, and the column `basis` says so.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from recfusion.core.arrays import Csr, FloatArray, binary_csr
from recfusion.core.errors import InputError
from recfusion.data.interactions import to_columns
from recfusion.data.readers import read_table
from recfusion.data.settings import Source
from recfusion.data.tables import ArrowStream, as_frame
from recfusion.evaluation.evaluate import batches
from recfusion.evaluation.topk import top_k
from recfusion.serving.bundle import COUNT, Bundle

log = logging.getLogger(__name__)
YOU = "you"  # the user of a history that comes without one


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


@dataclass(frozen=True, repr=False)
class Recommendations:
    """Lists for some users, with what the model did not know of them."""

    frame: pl.DataFrame  # user, rank, item, score, basis and what the item table says
    unknown_rows: int  # ids in the histories that the model does not know
    unknown_ids: tuple[str, ...]  # some of them
    n_empty: int  # users who got the most popular items, since no known id was left

    def to_frame(self) -> pl.DataFrame:
        """Return a row per user and rank."""
        return self.frame

    def __repr__(self) -> str:
        unknown = f", {self.unknown_rows} unknown ids" if self.unknown_rows else ""
        return f"Recommendations({self.frame['user'].n_unique()} users, {len(self.frame)} places{unknown})"

    def _repr_html_(self) -> str:
        return self.frame._repr_html_()


def read_histories(bundle: Bundle, rows: pl.DataFrame) -> Histories:
    """Return the histories in `rows` (columns `user`, `item`; a null item makes a user without history)."""
    users = rows["user"].unique(maintain_order=True)
    places = users.to_frame().with_row_index("row")
    row = (
        rows.join(places, on="user", how="left", nulls_equal=True, maintain_order="left")["row"]
        .cast(pl.Int64)
        .to_numpy()
    )
    column = to_columns(bundle.items["item"], rows["item"])
    unknown = (column < 0) & rows["item"].is_not_null().to_numpy()
    names = rows["item"].filter(pl.Series(unknown)).unique(maintain_order=True).head(5).cast(pl.String)
    n_items = len(bundle.items)
    pairs = np.unique(row[column >= 0] * n_items + column[column >= 0])
    indptr = np.concatenate([[0], np.cumsum(np.bincount(pairs // n_items, minlength=len(users)))])
    return Histories(users, binary_csr(indptr, pairs % n_items, n_items), int(unknown.sum()), tuple(names))


def recommend(bundle: Bundle, histories: Any, k: int = 10) -> Recommendations:
    """Return the K best items of each user.

    `histories` maps any name of a user to the ids of the items that the user has (a list, tuple, array or series), or
    is one such sequence of ids, or a frame with a row per user and item.
    """
    known = read_histories(bundle, _rows(histories))
    if known.unknown_rows:
        log.warning(
            "%d ids are unknown to the model and left out (%s).", known.unknown_rows, ", ".join(known.unknown_ids)
        )
    found = pl.concat(list(recommend_batches(bundle, known, k)))
    return Recommendations(found, known.unknown_rows, known.unknown_ids, known.n_empty)


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


def _rows(histories: Any) -> pl.DataFrame:
    """Return histories of any form as rows of user and item; a user without items has a row with a null."""
    if isinstance(histories, ArrowStream) and hasattr(histories, "columns"):  # a series has none
        source = Source(data="frame", rating="none", time="none")
        return read_table(as_frame(histories), source, lone_users=True).rows
    named = histories if isinstance(histories, Mapping) else {YOU: histories}
    if not named:
        raise InputError("Expected at least one user to recommend for, got none.")
    users, items = [], []
    for user, given in named.items():
        ids = _ids(given)
        users += [user] * max(1, len(ids))
        items += ids or [None]
    return pl.DataFrame({"user": pl.Series(users, strict=False), "item": pl.Series(items, dtype=pl.String)})


def _ids(given: Any) -> list[str | None]:
    """Return the ids of one history as texts, whole floats as whole numbers; a bare text is no history."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise InputError(
            f"Expected the ids of a history as a list, tuple, array or series, got {given!r}: write [...]."
        )
    values = given.tolist() if isinstance(given, np.ndarray) else list(given)
    return [_text(value.item() if isinstance(value, np.generic) else value) for value in values]


def _text(value: object) -> str | None:
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else None if np.isnan(value) else str(value)
    if value is None or (isinstance(value, int | str) and not isinstance(value, bool)):
        return None if value is None else str(value)
    raise InputError(f"Expected ids that are numbers or texts, got {value!r} ({type(value).__name__}).")
