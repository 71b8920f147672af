"""What is known of users, in their own ids, as rows of a matrix over a model's items.

Ids that the model does not know are left out and counted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from recfusion.core.arrays import Csr, binary_csr
from recfusion.core.errors import InputError
from recfusion.data.interactions import to_columns
from recfusion.data.readers import read_table
from recfusion.data.settings import Source
from recfusion.data.tables import ArrowStream, as_frame
from recfusion.serving.bundle import Bundle
from recfusion.serving.ids import id_texts

YOU = "you"  # the user of a history that comes without one


@dataclass(frozen=True)
class Histories:
    """What is known of some users, as columns of a model."""

    users: pl.Series
    matrix: Csr  # (users, items)
    unknown_rows: int  # rows whose item the model does not know
    unknown_ids: tuple[str, ...]  # some of those ids, for a message

    @property
    def n_empty(self) -> int:
        """How many users have nothing that the model knows."""
        return int(np.count_nonzero(np.diff(self.matrix.indptr) == 0))


def histories_of(bundle: Bundle, given: Any) -> Histories:
    """Return histories of any form: users with their ids, one sequence of ids, or a frame of users and items."""
    return read_histories(bundle, _rows(given))


def read_histories(bundle: Bundle, rows: pl.DataFrame) -> Histories:
    """Return the histories in `rows` (columns `user`, `item`; a null item makes a user without history)."""
    users = rows["user"].unique(maintain_order=True)
    places = users.to_frame().with_columns(row=pl.int_range(len(users)))
    row = rows.join(places, on="user", how="left", nulls_equal=True, maintain_order="left")["row"].to_numpy()
    column = to_columns(bundle.items["item"], rows["item"])
    unknown = (column < 0) & rows["item"].is_not_null().to_numpy()
    names = rows["item"].filter(pl.Series(unknown)).unique(maintain_order=True).head(5).cast(pl.String)
    n_items = len(bundle.items)
    pairs = np.unique(row[column >= 0] * n_items + column[column >= 0])
    indptr = np.concatenate([[0], np.cumsum(np.bincount(pairs // n_items, minlength=len(users)))])
    return Histories(users, binary_csr(indptr, pairs % n_items, n_items), int(unknown.sum()), tuple(names))


def _rows(given: Any) -> pl.DataFrame:
    """Return histories as rows of user and item; a user without items has a row with a null."""
    if isinstance(given, ArrowStream) and hasattr(given, "columns"):  # a series has none
        source = Source(data="frame", rating="none", time="none")
        return read_table(as_frame(given), source, lone_users=True).rows
    named = given if isinstance(given, Mapping) else {YOU: given}
    if not named:
        raise InputError("Expected at least one user to recommend for, got none.")
    users, items = [], []
    for user, own in named.items():
        ids = id_texts(own)
        users += [user] * max(1, len(ids))
        items += ids or [None]
    return pl.DataFrame({"user": pl.Series(users, strict=False), "item": pl.Series(items, dtype=pl.String)})
