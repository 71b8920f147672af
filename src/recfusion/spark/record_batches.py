"""Files of Arrow record batches, written atomically, each with a JSON file of metadata beside it."""

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from recfusion.core.files import replacing, write_json


def write_batches(file: Path, batches: Iterable[pa.RecordBatch], about: Callable[[], Mapping[str, Any]]) -> None:
    """Write record batches, at least one, and then their metadata."""
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
    """Return a frame as one record batch; a slice of it is written without the rest."""
    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    return pa.record_batch([column.combine_chunks() for column in table.columns], schema=table.schema)


def read_about(file: Path) -> dict[str, Any] | None:
    """Return the metadata of a file; None if the file is missing or incomplete."""
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
    """Return the record batches start, start + step, ... of a file."""
    with pa.OSFile(str(file)) as opened:
        reader = pa.ipc.open_file(opened)
        return [reader.get_batch(number) for number in range(start, reader.num_record_batches, step)]


def _about(file: Path) -> Path:
    return file.with_suffix(".json")
