"""A cache of parsed batches on disk, from which an interrupted reading resumes."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from recfusion.core.files import replacing
from recfusion.core.parquet import ParquetTable

_KEY = "recfusion"  # of the metadata in a file

# kind of fault -> first such row, numbered from 0, its problem, and the cell; batch counts have the number of its rows
Faults = Mapping[str, tuple[int, str, str]]


@dataclass(frozen=True)
class Batch:
    """One parsed batch of a table."""

    rows: pl.DataFrame  # the good ones
    size: int  # all rows, good or not
    counts: Mapping[str, int]  # of the rows' flags
    faults: Faults


@dataclass(frozen=True)
class BatchCache:
    """Batches as files of a folder, each written atomically."""

    folder: Path

    def read(self) -> Iterator[Batch]:
        """Yield the cached batches from the first on."""
        number = 0
        while (path := self._path(number)).is_file():
            try:
                table = ParquetTable.open(path)
                about = json.loads(table.metadata[_KEY.encode()])
                faults = {kind: (int(row), str(what), str(cell)) for kind, (row, what, cell) in about["first"].items()}
                batch = Batch(table.read(), about["count"], about["facts"], faults)
            except (pl.exceptions.PolarsError, ValueError, KeyError, OSError):  # damaged
                return
            yield batch
            number += 1

    def add(self, number: int, batch: Batch) -> None:
        """Write a batch."""
        self.folder.mkdir(parents=True, exist_ok=True)
        about = {"count": batch.size, "facts": dict(batch.counts), "first": dict(batch.faults)}
        with replacing(self._path(number)) as beside:
            batch.rows.write_parquet(beside, metadata={_KEY: json.dumps(about)})

    def _path(self, number: int) -> Path:
        return self.folder / f"batch-{number:05d}.parquet"
