"""Files of record batches that appear whole, each with a file beside it that says what is to be known of its rows."""

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from recfusion.core.files import replacing, write_json


def write_batches(file: Path, batches: Iterable[pa.RecordBatch], about: Callable[[], Mapping[str, Any]]) -> None:
    """Write record batches, one at least, and then what is to be known of them."""
    batches = iter(batches)
    first = next(batches)
    with (
        replacing(file) as beside,
        pa.OSFile(str(beside), "wb") as opened,
        pa.ipc.new_file(opened, first.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer,
    ):
        for batch in chain([first], batches):
            writer.write_batch(batch)
    write_json(_about(file), about())


def as_batch(frame: pl.DataFrame) -> pa.RecordBatch:
    """Return a frame as one record batch; of a slice of it nothing but the slice is written."""
    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    return pa.record_batch([column.combine_chunks() for column in table.columns], schema=table.schema)


def read_about(file: Path) -> dict[str, Any] | None:
    """Return what is to be known of a file; None where it is not there or not whole."""
    try:
        read_schema(file)
        return dict(json.loads(_about(file).read_text(encoding="utf-8")))
    except (pa.ArrowException, OSError, ValueError):
        return None


def read_schema(file: Path) -> pa.Schema:
    """Return the columns of a file."""
    with pa.OSFile(str(file)) as opened:
        return pa.ipc.open_file(opened).schema


def read_batches(file: Path, start: int = 0, step: int = 1) -> list[pa.RecordBatch]:
    """Return a file's record batches from a number on, in steps."""
    with pa.OSFile(str(file)) as opened:
        reader = pa.ipc.open_file(opened)
        return [reader.get_batch(number) for number in range(start, reader.num_record_batches, step)]


def _about(file: Path) -> Path:
    return file.with_suffix(".json")
