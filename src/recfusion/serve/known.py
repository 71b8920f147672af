"""Users of whom a file of histories tells what they have."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from recfusion.core.arrays import IntArray
from recfusion.data.readers import read_table
from recfusion.data.settings import Source


@dataclass(frozen=True)
class KnownUsers:
    """What users have, by their ids."""

    rows: dict[str, int]
    starts: IntArray  # (users + 1,)
    items: pl.Series  # ids as texts, user by user

    @classmethod
    def read(cls, path: Path | None) -> "KnownUsers":
        """Read a file with a row per user and item; no file means nobody."""
        if path is None:
            return cls({}, np.zeros(1, np.int64), pl.Series(dtype=pl.String))
        rows = read_table(path, Source(time="none"), lone_users=True).rows.drop_nulls("item")
        texts = rows.select(pl.col("user", "item").cast(pl.String)).sort("user", maintain_order=True)
        counts = texts.group_by("user", maintain_order=True).len()
        starts = np.concatenate([[0], np.cumsum(counts["len"].to_numpy())])
        return cls({user: row for row, user in enumerate(counts["user"])}, starts, texts["item"])

    def of(self, user: str) -> list[str]:
        """Return the ids of what a user has."""
        row = self.rows.get(user)
        if row is None:
            return []
        found: list[str] = self.items.slice(
            int(self.starts[row]), int(self.starts[row + 1] - self.starts[row])
        ).to_list()
        return found
