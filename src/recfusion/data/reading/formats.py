"""File formats of tables: `FORMATS` says for each file suffix how a table is opened and written.

To support a new format, add its suffix there. Frames in memory are tables too: whatever exports an Arrow stream
(polars, pandas, pyarrow, DuckDB). Opening a file reads nothing but what is needed to find its columns.
"""

import glob
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import IO, Any, Protocol, runtime_checkable

import numpy as np
import polars as pl
import polars.selectors as cs
from pyarrow import ArrowException, parquet

from recfusion.core.errors import InputError
from recfusion.core.files import check_regular, replacing
from recfusion.core.memory import require_memory
from recfusion.data.published.archive import open_bytes
from recfusion.data.reading.columns import sniff_text
from recfusion.data.reading.text_lines import EXTRA_FIELD, TextLayout, line_blocks, line_cuts, split_lines
from recfusion.data.rows import check_row_count

HEAD_ROWS = 1000  # read first, to find out the types of the columns
_HEAD_BYTES = 1 << 20
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")  # the name of an unnamed index of pandas
_REFUSALS = (ValueError, TypeError, NotImplementedError, pl.exceptions.PolarsError)  # pyarrow's are the first three
BATCH_ROWS = 1 << 20  # rows of a typed table per batch
MAX_DEPTH, MAX_KEYS = 64, 5_000  # nesting of a JSON line, and distinct keys in a file

Append = Callable[[pl.DataFrame], None]


@dataclass(frozen=True)
class Table:
    """An open table: a text file, read line by line, or a table with types."""

    where: str  # its name in messages
    source: Path | pl.LazyFrame
    columns: list[str]
    layout: TextLayout | None = None  # of a text file
    cuts: tuple[int, ...] = ()  # row numbers between the batches of a typed table; the byte range of a part of a text

    @property
    def decimal_comma(self) -> bool:
        """Whether numbers have decimal commas, as in files separated by semicolons."""
        return self.layout is not None and self.layout.separator == ";"

    @property
    def has_names(self) -> bool:
        """Whether the columns have names: False for a text file without a header."""
        return self.layout is None or self.layout.header

    def head(self, wanted: Sequence[str]) -> pl.DataFrame | None:
        """Return the first rows, at most HEAD_ROWS, as `batches` returns them; None if a text has no line."""
        start = self if self.layout is not None else replace(self, cuts=(0, HEAD_ROWS))
        return next((rows.head(HEAD_ROWS) for rows in start.batches(wanted, block_bytes=_HEAD_BYTES)), None)

    def batches(self, wanted: Sequence[str], skip: int = 0, block_bytes: int | None = None) -> Iterator[pl.DataFrame]:
        """Yield all rows in batches, without the first `skip`: the columns `wanted`, and EXTRA_FIELD."""
        if isinstance(self.source, pl.LazyFrame):
            rows = self.source.select(cs.by_name(*wanted), pl.lit(None, pl.String).alias(EXTRA_FIELD))
            yield from (rows.slice(start, end - start).collect() for start, end in pairwise(self.cuts[skip:]))
        elif self.layout is not None:
            header = 0 if self.cuts else self.layout.skip_lines
            for block in islice(line_blocks(self.source, header, block_bytes, span=self.cuts), skip, None):
                yield split_lines(block, self.layout, wanted)

    def split(self, about_bytes: int) -> list["Table"]:
        """Return the table as several parts, in order: about so many bytes of text each, or one batch of typed rows."""
        cuts = self.cuts
        if isinstance(self.source, Path) and self.layout is not None:
            cuts = line_cuts(self.source, self.layout.skip_lines, about_bytes)
        return [replace(self, cuts=pair) for pair in pairwise(cuts)] or [self]


@dataclass(frozen=True)
class Format:
    """A file format: how to open a file (path, separator), and how to write one if it can be written."""

    name: str
    open: Callable[[Path, str | None], Table]
    writer: Callable[[IO[bytes]], AbstractContextManager[Append]] | None = None
    splittable: bool = True  # Spark tasks can read parts of a file
    holds_lists: bool = False
    holds_bytes: bool = False


def find_format(path: Path) -> Format | None:
    """Return the format of a file by its suffix, before .gz."""
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    return FORMATS.get(suffixes[-1]) if suffixes else None


def open_table(table: Path | pl.DataFrame, separator: str | None, name: str) -> Table:
    """Open a file, or a frame under the name `name`; the format follows from the suffix of the file."""
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
        return found.open(table, separator)


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


def _open_text(path: Path, separator: str | None) -> Table:
    layout = sniff_text(path, separator)
    return Table(str(path), path, list(layout.columns), layout)


def _open_parquet(path: Path, _: str | None) -> Table:
    frame = pl.scan_parquet(path, glob=False)
    return Table(str(path), frame, frame.collect_schema().names(), cuts=_parquet_cuts(path, frame))


def _open_json_lines(path: Path, _: str | None) -> Table:
    """Open a file of one JSON object per line; gzip is unpacked here, where its size is bounded."""
    keys: set[str] = set()
    for block in line_blocks(path):
        keys |= _checked_keys(block, path)
        if len(keys) > MAX_KEYS:  # the time to find the types grows with their square
            raise InputError(f"Expected the same few names in each object of '{path}', got over {MAX_KEYS:,} of them.")
    with open_bytes(path) as file:
        source = glob.escape(str(path)) if file.seekable() else b"".join(iter(lambda: file.read(1 << 20), b""))
    frame = pl.scan_ndjson(source, infer_schema_length=None)
    return Table(str(path), frame, frame.collect_schema().names(), cuts=(0, 2**32 - 1))  # all rows polars can number


def _csv_writer(file: IO[bytes], separator: str = ",") -> AbstractContextManager[Append]:
    return nullcontext(lambda frame: frame.write_csv(file, include_header=file.tell() == 0, separator=separator))


def _json_lines_writer(file: IO[bytes]) -> AbstractContextManager[Append]:
    return nullcontext(lambda frame: frame.write_ndjson(file))


@contextmanager
def _parquet_writer(file: IO[bytes]) -> Iterator[Append]:
    with ExitStack() as stack:
        writer: Any = None

        def append(frame: pl.DataFrame) -> None:
            nonlocal writer
            table = frame.to_arrow()
            writer = writer or stack.enter_context(parquet.ParquetWriter(file, table.schema, compression="zstd"))
            writer.write_table(table)

        yield append


_JSON_LINES = Format("jsonl", _open_json_lines, _json_lines_writer, splittable=False, holds_lists=True)
FORMATS: Mapping[str, Format] = {
    ".csv": Format("text", _open_text, _csv_writer),
    ".tsv": Format("text", _open_text, partial(_csv_writer, separator="\t")),
    **dict.fromkeys((".txt", ".dat", ".data", ".tab"), Format("text", _open_text)),
    ".parquet": Format("parquet", _open_parquet, _parquet_writer, holds_lists=True, holds_bytes=True),
    **dict.fromkeys((".jsonl", ".ndjson"), _JSON_LINES),
}


def _parquet_cuts(path: Path, frame: pl.LazyFrame) -> tuple[int, ...]:
    """Return the row numbers between batches of whole row groups; a tiny file may claim billions of rows."""
    rows = frame.select(pl.len()).collect().item()
    check_row_count(rows, str(path))
    require_memory(32 * rows, f"Reading the {rows:,} rows of '{path}'", "take a part of it.")
    try:
        metadata = parquet.read_metadata(path)
        ends = np.cumsum([metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)])
    except (ArrowException, OSError):  # polars reads some files that pyarrow does not
        ends = np.array([rows])
    if not rows or ends[-1] != rows:
        return 0, rows
    whole = np.append(ends[:-1] // BATCH_ROWS != ends[1:] // BATCH_ROWS, True)  # small groups are joined
    return 0, *map(int, ends[whole])


def _checked_keys(block: bytes, path: Path) -> set[str]:
    """Return the keys of JSON lines; raise if one nests so deeply that the parser would crash the process."""
    line = pl.col("line")
    lines = pl.read_lines(block.decode("utf-8", errors="replace").encode())
    for (text,) in lines.filter(line.str.count_matches(r"[\[{]") > MAX_DEPTH).iter_rows():
        depth = highest = 0
        for mark in re.findall(r"[\[{}\]]", re.sub(r'"(?:[^"\\]|\\.)*"', "", text)):
            depth += 1 if mark in "[{" else -1
            highest = max(highest, depth)
        if highest > MAX_DEPTH:
            raise InputError(f"Expected one plain object per line in '{path}', got one nested over {MAX_DEPTH} times.")
    return set(lines.select(line.str.extract_all(r'"[^"]*"\s*:').explode().unique()).to_series().drop_nulls())


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
