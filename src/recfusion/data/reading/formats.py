"""File formats of tables: `FORMATS` says for each file suffix how a table is opened and written.

To support a new format, add its suffix there. Frames in memory are tables too: whatever exports an Arrow stream
(polars, pandas, pyarrow, DuckDB). Opening a file reads nothing but what is needed to find its columns.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Protocol, runtime_checkable

import polars as pl

from recfusion.core.errors import InputError
from recfusion.core.files import check_regular, replacing
from recfusion.core.memory import require_memory
from recfusion.core.parquet import ParquetTable
from recfusion.data.reading.columns import sniff_text
from recfusion.data.reading.database import FetchedRows
from recfusion.data.reading.excel import open_excel
from recfusion.data.reading.json_lines import open_json_lines
from recfusion.data.reading.table import Table
from recfusion.data.rows import check_row_count

_PANDAS_INDEX = re.compile(r"__index_level_\d+__")  # the name of an unnamed index of pandas
_REFUSALS = (ValueError, TypeError, NotImplementedError, pl.exceptions.PolarsError)  # pyarrow's are the first three
BATCH_ROWS = 1 << 20  # rows of a typed table per batch

Append = Callable[[pl.DataFrame], None]


@dataclass(frozen=True)
class Format:
    """A file format: how to open a file (path, separator, encoding), and how to write one if it can be written."""

    name: str
    open: Callable[[Path, str | None, str | None], Table]
    writer: Callable[[IO[bytes]], AbstractContextManager[Append]] | None = None
    splittable: bool = True  # Spark tasks can read parts of a file
    holds_lists: bool = False
    holds_bytes: bool = False


def find_format(path: Path) -> Format | None:
    """Return the format of a file by its suffix, before .gz."""
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    return FORMATS.get(suffixes[-1]) if suffixes else None


def open_table(
    table: Path | pl.DataFrame | FetchedRows, separator: str | None = None, name: str = "", encoding: str | None = None
) -> Table:
    """Open a file, or a frame or query under the name `name`; the format follows from the suffix of the file."""
    if isinstance(table, FetchedRows):
        return Table(name, table, table.columns)
    if isinstance(table, pl.DataFrame):
        return Table(name, table.lazy(), table.columns, cuts=(*range(0, table.height, BATCH_ROWS), table.height))
    check_regular(table)
    if table.stat().st_size == 0:
        raise InputError(f"Expected rows of interactions in '{table}', got an empty file.")
    found = find_format(table)
    if found is None:
        raise InputError(
            f"Cannot tell the format of '{table}' from its name: use one that ends in {', '.join(FORMATS)} (text also "
            "with .gz)."
        )
    with table_errors(str(table), found.name):
        return found.open(table, separator, encoding)


@contextmanager
def table_writer(path: Path) -> Iterator[Append]:
    """Yield a function that appends a frame to the file at `path`, which appears if the block succeeds."""
    found = FORMATS.get(path.suffix.lower())
    if found is None or found.writer is None:
        *others, last = [suffix for suffix, one in FORMATS.items() if one.writer is not None]
        raise InputError(f"Cannot tell the format of '{path}' from its name: end it in {', '.join(others)} or {last}.")
    with replacing(path) as beside, beside.open("wb") as file, found.writer(file) as append:

        def checked(frame: pl.DataFrame) -> None:
            for name, dtype in frame.schema.items():
                lists, binary = dtype.is_nested() and not found.holds_lists, "Binary" in str(dtype)
                if lists or (binary and not found.holds_bytes):
                    what, instead = ("lists", ".parquet or .jsonl") if lists else ("bytes", ".parquet")
                    raise InputError(
                        f"The column '{name}' holds {what}, which '{path}' cannot hold: write {instead}.", name
                    )
            append(frame)

        yield checked


def _open_text(path: Path, separator: str | None, encoding: str | None) -> Table:
    layout = sniff_text(path, separator, encoding)
    return Table(str(path), path, list(layout.columns), layout)


def _open_parquet(path: Path, _: str | None, __: str | None) -> Table:
    table = ParquetTable.open(path)
    check_row_count(table.n_rows, str(path))  # a tiny file may claim billions of rows
    require_memory(32 * table.n_rows, f"Reading the {table.n_rows:,} rows of '{path}'", "take a part of it.")
    # Batches are whole row groups; small groups are joined.
    ends = [end for end, following in pairwise(table.ends) if end // BATCH_ROWS != following // BATCH_ROWS]
    return Table(str(path), table, list(table.columns), cuts=(0, *ends, table.n_rows))


def _csv_writer(file: IO[bytes], separator: str = ",") -> AbstractContextManager[Append]:
    return nullcontext(lambda frame: frame.write_csv(file, include_header=file.tell() == 0, separator=separator))


def _json_lines_writer(file: IO[bytes]) -> AbstractContextManager[Append]:
    return nullcontext(lambda frame: frame.write_ndjson(file))


@contextmanager
def _parquet_writer(file: IO[bytes]) -> Iterator[Append]:
    from pyarrow import parquet

    with ExitStack() as stack:
        writer: Any = None

        def append(frame: pl.DataFrame) -> None:
            nonlocal writer
            table = frame.to_arrow()
            writer = writer or stack.enter_context(parquet.ParquetWriter(file, table.schema, compression="zstd"))
            writer.write_table(table)

        yield append


_JSON_LINES = Format("jsonl", open_json_lines, _json_lines_writer, splittable=False, holds_lists=True)
FORMATS: Mapping[str, Format] = {
    ".csv": Format("text", _open_text, _csv_writer),
    ".tsv": Format("text", _open_text, partial(_csv_writer, separator="\t")),
    **dict.fromkeys((".txt", ".dat", ".data", ".tab"), Format("text", _open_text)),
    ".parquet": Format("parquet", _open_parquet, _parquet_writer, holds_lists=True, holds_bytes=True),
    **dict.fromkeys((".jsonl", ".ndjson"), _JSON_LINES),
    ".xlsx": Format("Excel workbook", open_excel, splittable=False),
}


@contextmanager
def table_errors(where: str, kind: str = "a table") -> Iterator[None]:
    """Convert the errors of polars about a broken table into an InputError."""
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, RecursionError) as error:
        text = next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
        advice = "check that it is complete and of the format that its name says"
        if kind == _JSON_LINES.name:
            text, advice = f"a line is no JSON object ({text})", "write one object per line"
        raise InputError(f"Cannot read '{where}' as {kind}: {text[:300]}; {advice}.") from None


@runtime_checkable
class ArrowStream(Protocol):
    """A table in memory that exports an Arrow stream."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


def as_frame(table: object) -> pl.DataFrame:
    """Return any table that exports an Arrow stream; drops unnamed indexes of pandas, keeps named ones as columns."""
    if isinstance(table, pl.DataFrame):
        return table
    if not isinstance(table, ArrowStream):
        raise InputError(
            "Expected a table in memory such as those of polars, pandas, pyarrow or DuckDB (with __arrow_c_stream__), "
            f"got {type(table).__name__}."
        )
    try:
        try:
            found = pl.from_arrow(table)
        except _REFUSALS:
            found = pl.from_arrow(_mixed_as_text(table))
    except _REFUSALS as error:
        brief = ", ".join(map(str, error.args)).partition("\n")[0].rstrip(".")
        raise InputError(f"Cannot take the {type(table).__name__} as a table: {brief}; convert it first.") from None
    if isinstance(found, pl.Series):
        if not isinstance(found.dtype, pl.Struct):
            raise InputError(f"Expected a table with named columns, got one column of {found.dtype}.")
        found = found.struct.unnest()
    return found.drop(name for name in found.columns if _PANDAS_INDEX.fullmatch(name))


def _mixed_as_text(table: Any) -> Any:
    """Return a pandas frame with columns of mixed numbers and texts as text: Arrow refuses them as they are."""
    mixed = []
    for name, kind in table.dtypes.items() if hasattr(table, "astype") else ():
        try:
            pl.from_arrow(table[[name]] if kind == "object" else pl.DataFrame())
        except _REFUSALS:
            mixed.append(name)
    return table.astype(dict.fromkeys(mixed, str)) if mixed else table
