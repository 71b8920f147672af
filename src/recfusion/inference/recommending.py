"""Recommendations as frames: ids in, ids and item columns out, also for users never seen in training.

A user with no known items gets the most popular items of the training data, and the column `basis` says so.
"""

import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from recfusion.data.reading.formats import ArrowStream, as_frame
from recfusion.evaluation.evaluate import map_batches
from recfusion.evaluation.topk import batch_rows
from recfusion.inference.bundle import COUNT, Bundle
from recfusion.inference.histories import Histories, parse_histories
from recfusion.inference.lists import ListMaker
from recfusion.inference.request import Filters, Reranking

log = logging.getLogger(__name__)
_BECAUSE = pl.List(pl.Struct({"items": pl.List(pl.String), "text": pl.String, "weight": pl.Float32}))


@dataclass(frozen=True, repr=False)
class Recommendations:
    """Lists for some users, with the ids that the model did not know."""

    frame: pl.DataFrame  # user, rank, item, score, basis and the columns of the item table
    unknown_rows: int  # ids in the histories that the model does not know
    unknown_ids: tuple[str, ...]  # some of them
    n_empty: int  # users without an item that the model knows

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
    filters: Filters | None = None,
    reranking: Reranking | None = None,
    why: int = 0,
    parts: bool = False,
    users: ArrowStream | None = None,
) -> Recommendations:
    """Return the K best items of each user after filters and re-ranking, with up to `why` reasons for each.

    With `parts`, columns such as part:ials have what each part of a mixture adds to the score (null in popular lists).

    `histories` maps any name of a user to the ids of the items that the user has (a list, tuple, array or series), or
    is one such sequence of ids, or a frame with a row per user and item. `users` is a frame with a column `user` and
    their features, for a model that was trained with features of users.
    """
    known = parse_histories(bundle, histories, None if users is None else as_frame(users))
    maker = ListMaker.of(bundle, filters, reranking)
    if known.unknown_rows:
        log.warning(
            "%d ids are unknown to the model and left out (%s).", known.unknown_rows, ", ".join(known.unknown_ids)
        )
    if maker.n_unknown:
        log.warning("%d ids in the filters and pins are unknown to the model.", maker.n_unknown)
    found = pl.concat(list(recommend_batches(maker, known, k, why=why, parts=parts)))
    return Recommendations(found, known.unknown_rows, known.unknown_ids, known.n_empty)


def recommend_batches(
    maker: ListMaker, histories: Histories, k: int, *, why: int = 0, parts: bool = False, threads: int | None = None
) -> Iterator[pl.DataFrame]:
    """Return an iterator with a frame for each batch of users, made on all cores or on `threads` of them.

    Memory does not grow with the number of users.
    """
    table, users = maker.bundle.items, histories.users
    assert users is not None
    others = [name for name in table.columns if name not in (COUNT, "item")]
    mixture = None
    if parts:
        from recfusion.inference.part_scores import mixture_of, part_scores  # imports the mixtures of models

        mixture = mixture_of(maker)

    def make_frame(rows: slice) -> pl.DataFrame:
        lists = maker.lists(histories.rows(rows), k, why=why)
        user, rank = np.nonzero(lists.items >= 0)
        items = lists.items[user, rank]
        columns = {
            "user": users[rows][user],
            "rank": rank + 1,
            "item": table["item"][items],
            "score": lists.scores[user, rank],
            "basis": np.array(lists.basis)[user],
        }
        frame = pl.DataFrame(columns | {name: table[name][items] for name in others})
        if mixture is not None:
            known, parts_of = pl.col("basis") != "popularity", part_scores(mixture, histories.rows(rows))
            added = {f"part:{name}": pl.Series(scores[user, items]) for name, scores in parts_of.items()}
            frame = frame.with_columns(pl.when(known).then(own).alias(name) for name, own in added.items())
        if lists.explanations is None:
            return frame
        because = [[asdict(reason) for reason in found] for own in lists.explanations for found in own.because]
        kinds = [own.kind for own in lists.explanations for _ in own.because]
        return frame.with_columns(
            pl.Series("because", because, dtype=_BECAUSE), pl.Series("reasons", kinds, dtype=pl.String)
        )

    n_users, n_items = histories.matrix.shape
    return map_batches(make_frame, histories.matrix, 1 if n_users <= batch_rows(n_items) else threads)
