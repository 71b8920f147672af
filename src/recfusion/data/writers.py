"""Writing a table piece by piece to CSV, Parquet or JSON lines; the file appears when all of it is there."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

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
    with replacing(path) as beside:
        if kind == ".parquet":
            with _parquet(beside) as write:
                yield write
        else:
            with beside.open("wb") as file:
                written = 0

                def append(frame: pl.DataFrame) -> None:
                    nonlocal written
                    if kind in (".csv", ".tsv"):
                        _refuse_lists(frame, path)
                        frame.write_csv(file, include_header=not written, separator="\t" if kind == ".tsv" else ",")
                    else:
                        frame.write_ndjson(file)
                    written += 1

                yield append


def _refuse_lists(frame: pl.DataFrame, path: Path) -> None:
    for name, dtype in frame.schema.items():
        if dtype.is_nested():
            raise InputError(f"The column '{name}' holds lists, which '{path}' cannot hold: write .parquet or .jsonl.")


@contextmanager
def _parquet(path: Path) -> Iterator[Write]:
    import pyarrow.parquet as pq

    writer: pq.ParquetWriter | None = None

    def append(frame: pl.DataFrame) -> None:
        nonlocal writer
        table = frame.to_arrow()
        if writer is None:
            writer = pq.ParquetWriter(path, table.schema, compression="zstd")
        writer.write_table(table)

    try:
        yield append
    finally:
        if writer is not None:
            writer.close()
