"""Users of the histories file, by their ids."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from recfusion.core.arrays import IntArray
from recfusion.data.options import Source
from recfusion.data.protocol import Protocol
from recfusion.data.reading.reader import read_table
from recfusion.inference.histories import sum_counts


@dataclass(frozen=True)
class KnownUsers:
    """The histories of known users."""

    rows: dict[str, int]
    starts: IntArray  # (users + 1,)
    items: pl.DataFrame  # ids as texts, user by user, with `rating` and `time` where the file and the model have them

    @classmethod
    def read(cls, path: Path | None, protocol: Protocol) -> "KnownUsers":
        """Read a file with a row per user and item, as a model with this protocol reads it; without a file, no user."""
        if path is None:
            return cls({}, np.zeros(1, np.int64), pl.DataFrame(schema={"item": pl.String}))
        source = Source(time=None if "times" in protocol.signals.used else "none")
        rows = sum_counts(read_table(path, source, lone_users=True).rows, protocol).drop_nulls("item")
        order = ["user", "time"] if "time" in rows.columns else ["user"]
        texts = rows.with_columns(pl.col("user", "item").cast(pl.String)).sort(order, maintain_order=True)
        counts = texts.group_by("user", maintain_order=True).len()
        starts = np.concatenate([[0], np.cumsum(counts["len"].to_numpy())])
        return cls({user: row for row, user in enumerate(counts["user"])}, starts, texts.drop("user"))

    def of(self, user: str) -> list[dict[str, Any]]:
        """Return the entries of a user, oldest first if the file has times."""
        row = self.rows.get(user)
        if row is None:
            return []
        return self.items.slice(int(self.starts[row]), int(self.starts[row + 1] - self.starts[row])).to_dicts()
