"""Recommendations for people: own ids in, own ids and titles out, also for users never seen in training.

A user of whom nothing is known (an empty history, or none but unknown ids) gets the most popular items of the training
data, and the column `basis` says so.
"""

import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recfusion.core.arrays import Csr, IntArray
from recfusion.data.reading.formats import ArrowStream, as_frame
from recfusion.data.signals import Extra
from recfusion.evaluation.evaluate import map_batches
from recfusion.inference.bundle import COUNT, Bundle
from recfusion.inference.explanations import explained, people_like
from recfusion.inference.filters import Rules
from recfusion.inference.histories import Histories, histories_of
from recfusion.inference.lists import ListMaker
from recfusion.inference.reranking import Knobs

log = logging.getLogger(__name__)
_BECAUSE = pl.List(pl.Struct({"items": pl.List(pl.String), "text": pl.String, "weight": pl.Float32}))


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


def recommend(
    bundle: Bundle,
    histories: Any,
    k: int = 10,
    *,
    rules: Rules | None = None,
    knobs: Knobs | None = None,
    why: int = 0,
    users: ArrowStream | None = None,
) -> Recommendations:
    """Return the K best items of each user, under rules and knobs, with up to `why` reasons for each.

    `histories` maps any name of a user to the ids of the items that the user has (a list, tuple, array or series), or
    is one such sequence of ids, or a frame with a row per user and item. `users` is a frame with a column `user` and
    what is known of them, for a model that was trained with features of users.
    """
    about = None if users is None else as_frame(users)
    known, maker = histories_of(bundle, histories, about), ListMaker.of(bundle, rules, knobs)
    if known.unknown_rows:
        log.warning(
            "%d ids are unknown to the model and left out (%s).", known.unknown_rows, ", ".join(known.unknown_ids)
        )
    if maker.allowed.unknown:
        log.warning("%d ids in the rules are unknown to the model.", maker.allowed.unknown)
    found = pl.concat(list(recommend_batches(maker, known, k, why=why)))
    return Recommendations(found, known.unknown_rows, known.unknown_ids, known.n_empty)


def recommend_batches(
    maker: ListMaker, histories: Histories, k: int, *, why: int = 0, threads: int | None = None
) -> Iterator[pl.DataFrame]:
    """Yield the recommendations of one batch of users after another, made on all cores unless `threads` says how many.

    Memory does not grow with their number.
    """
    described = maker.bundle.items.drop(COUNT)

    def made(rows: slice) -> pl.DataFrame:
        history = histories.matrix[rows]
        extra = None if histories.extra is None else histories.extra.rows(rows)
        lists = maker.lists(history, k, extra)
        empty, described_users = np.diff(history.indptr) == 0, maker.described(history, extra)
        basis = np.where(empty, np.where(described_users, "features", "popularity"), "history")
        user, rank = np.nonzero(lists.items >= 0)
        taken = lists.items[user, rank]
        frame = pl.DataFrame(
            {
                "user": histories.users[rows][user],
                "rank": rank + 1,
                "item": described["item"][taken],
                "score": lists.scores[user, rank],
                "basis": basis[user],
            }
        )
        frame = frame.hstack(described.drop("item")[taken].get_columns())
        by_features = empty & described_users
        return frame.with_columns(_reasons(maker, history, extra, lists.items, why, by_features)) if why else frame

    yield from map_batches(made, histories.matrix, threads)


def _reasons(
    maker: ListMaker, history: Csr, extra: Extra | None, items: IntArray, why: int, by_features: NDArray[np.bool_]
) -> list[pl.Series]:
    """Return the columns `because` and `reasons`, which says of what kind they are."""
    of_users = [
        people_like(own[own >= 0])
        if by_features[row]
        else explained(
            maker, history[[row]], own[own >= 0], why, None if extra is None else extra.rows(np.array([row]))
        )
        for row, own in enumerate(items)
    ]
    because = [[asdict(reason) for reason in found] for one in of_users for found in one.because]
    kinds = [one.kind for one in of_users for _ in one.because]
    return [pl.Series("because", because, dtype=_BECAUSE), pl.Series("reasons", kinds, dtype=pl.String)]
