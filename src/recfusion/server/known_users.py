"""Users of the histories file, by their ids."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from recfusion.data.options import Source
from recfusion.data.reading.reader import read_table
from recfusion.inference.bundle import Bundle
from recfusion.inference.training_source import source_as_trained


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
        asked = Source(data=files[0].name, time=None if bundle.reads_times else "none")
        source = source_as_trained(bundle, files[0], asked)
        rows = read_table(files, source, lone_users=True).rows.drop_nulls("item")
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


NOBODY = KnownUsers({}, pl.DataFrame(schema={"item": pl.String}))
