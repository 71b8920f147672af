"""Users of the histories file, by their ids."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from recfusion.data.conditions import named_columns
from recfusion.data.options import Source
from recfusion.data.reading.formats import open_table
from recfusion.data.reading.reader import read_table
from recfusion.inference.bundle import Bundle

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class KnownUsers:
    places: dict[str, tuple[int, int]]  # first row and number of rows of each user
    items: pl.DataFrame  # ids as texts, user by user, with `rating` and `time` where the file and the model have them

    @classmethod
    def read(cls, paths: Sequence[Path], bundle: Bundle) -> "KnownUsers":
        """Read files with a row per user, item and purchase, as the model read its orders; without a file, no user."""
        if not paths:
            return NOBODY
        files = histories_files(paths)
        rows = read_table(files, _source(files[0], bundle), lone_users=True).rows.drop_nulls("item")
        order = ["user", "time"] if "time" in rows.columns else ["user"]
        texts = rows.with_columns(pl.col("user", "item").cast(pl.String)).sort(order, maintain_order=True)
        counts = texts.group_by("user", maintain_order=True).len().with_columns(end=pl.col("len").cum_sum())
        return cls({user: (end - rows, rows) for user, rows, end in counts.iter_rows()}, texts.drop("user"))

    def of(self, user: str) -> list[dict[str, Any]]:
        """Return the entries of a user, oldest first if the file has times."""
        return self.items.slice(*self.places.get(user, (0, 0))).to_dicts()


def histories_files(paths: Sequence[Path]) -> list[Path]:
    """Return the files, with those of patterns such as orders-*.csv."""
    return [Path(file) for path in paths for file in Source(data=str(path)).files]


def _source(file: Path, bundle: Bundle) -> Source:
    """Return how the model read its orders, for a file with the same columns; in another file they are guessed."""
    own, read = bundle.protocol.source, bundle.protocol.read
    columns = open_table(file, own.separator, encoding=own.encoding).columns
    time = own.time if bundle.reads_times else "none"
    if {*read.columns.values(), *named_columns(own.rows or "")} <= {*columns}:
        return own.model_copy(update={"data": file.name, "time": time, "query": None})
    if own.rows is not None:
        told = "The histories file %s has other columns than the orders of the model: all its rows count."
        log.warning(told, file.name)
    return Source(data=file.name, time=None if bundle.reads_times else "none", date_format=own.date_format)


NOBODY = KnownUsers({}, pl.DataFrame(schema={"item": pl.String}))
