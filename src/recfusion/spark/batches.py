"""Files of record batches that appear whole, and say in their schema what is to be known beside the rows."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from recfusion.core.files import replacing

OLDEST = pl.CompatLevel.oldest()  # plain strings, of which a slice is written alone
_ABOUT = b"recfusion"


def write_batches(file: Path, table: pa.Table, sizes: Sequence[int], about: Mapping[str, Any]) -> None:
    """Write consecutive rows of a table as record batches of these sizes, and what is to be said beside them."""
    schema = table.schema.with_metadata({_ABOUT: json.dumps(about)})
    whole = pa.record_batch([column.combine_chunks() for column in table.columns], schema=schema)
    with (
        replacing(file) as beside,
        pa.OSFile(str(beside), "wb") as opened,
        pa.ipc.new_file(opened, schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer,
    ):
        for end, size in zip(np.cumsum(sizes), sizes, strict=True):
            writer.write_batch(whole.slice(end - size, size))


def read_about(file: Path) -> dict[str, Any] | None:
    """Return what a file says beside its rows; None where it is not there or not whole."""
    try:
        return dict(json.loads(read_schema(file).metadata[_ABOUT]))
    except (pa.ArrowException, OSError, KeyError, ValueError):
        return None


def read_schema(file: Path) -> pa.Schema:
    """Return the columns of a file."""
    with pa.OSFile(str(file)) as opened:
        return pa.ipc.open_file(opened).schema


def read_batch(file: Path, number: int) -> pa.RecordBatch:
    """Return one of the record batches of a file."""
    with pa.OSFile(str(file)) as opened:
        return pa.ipc.open_file(opened).get_batch(number)
