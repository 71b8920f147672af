"""Reads Parquet files with pyarrow, for which a damaged file is an error; polars may end the process instead.

Every Parquet file is read here: those of users, and our own, since a digest detects damage and proves no authorship.
The serving set has no pyarrow: there a child process reads the bytes with polars first, and only it may be ended.
"""

import io
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import polars as pl

from recfusion.core.extras import is_installed
from recfusion.core.files import check_regular

_TRIAL = "import io, sys, polars; polars.read_parquet(io.BytesIO(sys.stdin.buffer.read()))"
_SECONDS = 30  # that the trial may take


@dataclass(frozen=True)
class ParquetTable:
    """An open Parquet file: its columns, and the number of rows up to the end of each row group."""

    path: Path
    columns: tuple[str, ...]
    ends: tuple[int, ...]
    metadata: dict[bytes, bytes]

    @classmethod
    def open(cls, path: Path) -> "ParquetTable":
        """Read the footer of a file."""
        from pyarrow import parquet

        check_regular(path)
        with _damage_errors(), parquet.ParquetFile(path) as file:
            about = file.metadata
            sizes = [about.row_group(group).num_rows for group in range(about.num_row_groups)]
            if min(sizes, default=0) < 0 or sum(sizes) != about.num_rows:
                raise ValueError("its row groups and its number of rows differ")
            return cls(path, tuple(file.schema_arrow.names), tuple(accumulate(sizes)), about.metadata or {})

    @property
    def n_rows(self) -> int:
        return self.ends[-1] if self.ends else 0

    def read(self, columns: Sequence[str] | None = None, start: int = 0, end: int | None = None) -> pl.DataFrame:
        """Return rows from the beginning of a row group on: whole groups, or a part of the first one."""
        import pyarrow as pa
        from pyarrow import parquet

        end = self.n_rows if end is None else min(end, self.n_rows)
        groups = [group for group, last in enumerate(self.ends) if start < last and ([0, *self.ends][group] < end)]
        with _damage_errors(), parquet.ParquetFile(self.path) as file:
            if groups and end < self.ends[groups[-1]]:
                batches = file.iter_batches(end - start, [*groups], columns)
                table = pa.Table.from_batches([next(batches)])
            else:
                table = file.read_row_groups(groups, columns)
            if len(table) != max(0, end - start):
                raise ValueError(f"{end - start:,} rows expected, {len(table):,} found")
            table.validate(full=True)  # also that texts are UTF-8, which polars takes for granted
            found = pl.DataFrame(table.replace_schema_metadata(None))
        return found if columns is None else found.select(columns)


def read_parquet(path: Path) -> pl.DataFrame:
    """Return the table of a file; a damaged one raises an error of polars."""
    if is_installed("pyarrow"):
        return ParquetTable.open(path).read()
    check_regular(path)
    content, command = path.read_bytes(), [sys.executable, "-P", "-c", _TRIAL]
    try:
        trial = subprocess.run(command, input=content, capture_output=True, check=False, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        raise pl.exceptions.ComputeError(f"polars did not read it within {_SECONDS} seconds") from None
    if trial.returncode:
        told = trial.stderr.decode(errors="replace").splitlines()
        raise pl.exceptions.ComputeError(told[-1] if told else "polars ended")
    return pl.read_parquet(io.BytesIO(content))


@contextmanager
def _damage_errors() -> Iterator[None]:
    """Convert the errors of damaged files into one class, which callers take for a table that cannot be read."""
    from pyarrow import ArrowException

    try:
        yield
    except (FileNotFoundError, PermissionError, MemoryError):
        raise
    except (ArrowException, ValueError, OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise pl.exceptions.ComputeError(str(error).strip() or type(error).__name__) from None
