"""Writing a table piece by piece to CSV, Parquet or JSON lines; the file appears when all of it is there."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from recfusion.core.errors import InputError
from recfusion.core.files import replacing

Write = Callable[[pl.DataFrame], None]


@contextmanager
def table_writer(path: Path) -> Iterator[Write]:
    """Yield a function that appends a frame to the table at `path`; its kind follows from its name."""
    kind = path.suffix.lower()
    if kind not in (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson"):
        raise InputError(f"Cannot tell what to write from the name '{path}': end it in .csv, .tsv, .parquet or .jsonl.")
    with replacing(path) as beside, beside.open("wb") as file, ExitStack() as parquet:
        writer: Any = None

        def append(frame: pl.DataFrame) -> None:
            nonlocal writer
            _check_columns(frame, path)
            if kind == ".parquet":
                from pyarrow.parquet import ParquetWriter

                table = frame.to_arrow()
                writer = writer or parquet.enter_context(ParquetWriter(file, table.schema, compression="zstd"))
                writer.write_table(table)
            elif kind in (".csv", ".tsv"):
                frame.write_csv(file, include_header=file.tell() == 0, separator="\t" if kind == ".tsv" else ",")
            else:
                frame.write_ndjson(file)

        yield append


def _check_columns(frame: pl.DataFrame, path: Path) -> None:
    """Raise unless a file of this kind can hold the columns."""
    kind = path.suffix.lower()
    for name, dtype in frame.schema.items():
        if dtype.is_nested() and kind in (".csv", ".tsv"):
            raise InputError(f"The column '{name}' holds lists, which '{path}' cannot hold: write .parquet or .jsonl.")
        if "Binary" in str(dtype) and kind != ".parquet":
            raise InputError(f"The column '{name}' holds bytes, which '{path}' cannot hold: write .parquet.")
