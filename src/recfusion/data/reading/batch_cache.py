"""Batches of a table that were read before: a reading that was stopped goes on after them."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from recfusion.core.files import replacing

_ABOUT = "recfusion"  # the key of what a file says beside its rows

# kind -> number of the first such row, what is wrong with it, and what stands there: that is shown, and never recorded
Faults = Mapping[str, tuple[int, str, str]]


@dataclass(frozen=True)
class Batch:
    """What came of one batch of a table."""

    rows: pl.DataFrame  # those that are good, with ids as they are meant
    count: int  # of all its rows
    facts: Mapping[str, int]  # counts of their flags
    faults: Faults


@dataclass(frozen=True)
class Kept:
    """The batches as files of a folder, each of which appears whole."""

    folder: Path

    def read(self) -> Iterator[Batch]:
        """Yield the batches from the first on, as far as they are there."""
        number = 0
        while (path := self._path(number)).is_file():
            try:
                about = json.loads(pl.read_parquet_metadata(path)[_ABOUT])
                faults = {
                    kind: (int(row), str(what), str(there)) for kind, (row, what, there) in about["faults"].items()
                }
                batch = Batch(pl.read_parquet(path, glob=False), about["count"], about["facts"], faults)
            except (pl.exceptions.PolarsError, ValueError, KeyError, OSError):  # a disk that lost some of it
                return
            yield batch
            number += 1

    def add(self, number: int, batch: Batch) -> None:
        """Keep a batch."""
        self.folder.mkdir(parents=True, exist_ok=True)
        about = {"count": batch.count, "facts": dict(batch.facts), "faults": dict(batch.faults)}
        with replacing(self._path(number)) as beside:
            batch.rows.write_parquet(beside, metadata={_ABOUT: json.dumps(about)})

    def _path(self, number: int) -> Path:
        return self.folder / f"batch-{number:05d}.parquet"
