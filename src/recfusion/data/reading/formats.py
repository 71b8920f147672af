"""A table opened for reading, be it text, Parquet, JSON lines or a frame; nothing of a file is in memory yet.

A frame is whatever speaks Arrow's PyCapsule interface: those of polars, pandas, pyarrow, DuckDB.
"""

import glob
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import polars as pl
import polars.selectors as cs
from pyarrow import ArrowException, parquet

from recfusion.core.errors import InputError
from recfusion.core.files import check_regular
from recfusion.core.memory import require_memory
from recfusion.data.published.archive import open_bytes
from recfusion.data.reading.columns import sniff_text
from recfusion.data.reading.text_lines import EXTRA, TextLayout, line_blocks, line_cuts, split_lines
from recfusion.data.rows import check_rows

_TEXT = (".csv", ".tsv", ".txt", ".dat", ".data", ".tab")
_KINDS = dict.fromkeys(_TEXT, "text") | {".parquet": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_INDEX = re.compile(r"__index_level_\d+__")  # what pandas calls an index without a name
_REFUSALS = (ValueError, TypeError, NotImplementedError, pl.exceptions.PolarsError)  # pyarrow's are the first three
BATCH_ROWS = 1 << 20  # of a table with types, at a time
DEEPEST, MOST_KEYS = 64, 5_000  # levels of brackets in a line of JSON, and names in all of them


@dataclass(frozen=True)
class Table:
    """A text file by its lines, or a table that has types."""

    where: str  # for messages
    source: Path | pl.LazyFrame
    columns: list[str]
    layout: TextLayout | None = None  # of a text file
    cuts: tuple[int, ...] = ()  # where batches of a table with types begin and end, or the bytes of a text that count

    @property
    def decimal_comma(self) -> bool:
        """Whether commas in numbers are decimal points, as where semicolons separate."""
        return self.layout is not None and self.layout.separator == ";"

    @property
    def named(self) -> bool:
        """Whether the columns have names of their own: False for a text file without a header."""
        return self.layout is None or self.layout.header

    def batches(self, wanted: Sequence[str], skip: int = 0) -> Iterator[pl.DataFrame]:
        """Yield all rows in order, some at a time: the columns `wanted`, and EXTRA (see `split_lines`).

        The first `skip` batches are left out.
        """
        if isinstance(self.source, pl.LazyFrame):
            chosen = self.source.select(cs.by_name(*wanted), pl.lit(None, pl.String).alias(EXTRA))
            yield from (chosen.slice(start, end - start).collect() for start, end in pairwise(self.cuts[skip:]))
        elif self.layout is not None:
            header = 0 if self.cuts else self.layout.skip_lines
            for block in islice(line_blocks(self.source, header, span=self.cuts), skip, None):
                yield split_lines(block, self.layout, wanted)

    def pieces(self, about_bytes: int) -> list["Table"]:
        """Return the table as several, each of some of its rows, in order: of text about so much, of others a batch."""
        cuts = self.cuts
        if isinstance(self.source, Path) and self.layout is not None:
            cuts = line_cuts(self.source, self.layout.skip_lines, about_bytes)
        return [replace(self, cuts=pair) for pair in pairwise(cuts)] or [self]


def open_table(table: Path | pl.DataFrame, separator: str | None, name: str) -> Table:
    """Return a file or frame, `name` for the latter, as a table; a file's kind follows from its name."""
    if isinstance(table, pl.DataFrame):
        return Table(name, table.lazy(), table.columns, cuts=(*range(0, table.height, BATCH_ROWS), table.height))
    check_regular(table)
    where = str(table)
    if table.stat().st_size == 0:
        raise InputError(f"Expected rows of interactions in '{where}', got an empty file.")
    endings = [suffix.lower() for suffix in table.suffixes if suffix.lower() != ".gz"]
    kind = _KINDS.get(endings[-1]) if endings else None
    if kind is None:
        raise InputError(
            f"Cannot tell what kind of table '{where}' is from its name: use one that ends in "
            f"{', '.join(_KINDS)} (text also with .gz)."
        )
    if kind == "text":
        layout = sniff_text(table, separator)
        return Table(where, table, list(layout.columns), layout)
    with table_errors(where, kind):
        frame = pl.scan_parquet(table, glob=False) if kind == "parquet" else _scan_objects(table)
        cuts = _parquet_cuts(table, frame) if kind == "parquet" else (0, 2**32 - 1)  # all that polars has numbers for
        return Table(where, frame, frame.collect_schema().names(), cuts=cuts)


def _parquet_cuts(path: Path, frame: pl.LazyFrame) -> tuple[int, ...]:
    """Return where batches of whole row groups begin and end; a few bytes of a file may stand for billions of rows."""
    rows = frame.select(pl.len()).collect().item()
    check_rows(rows, str(path))
    require_memory(32 * rows, f"Reading the {rows:,} rows of '{path}'", "take a part of it.")
    try:
        about = parquet.read_metadata(path)
        ends = np.cumsum([about.row_group(group).num_rows for group in range(about.num_row_groups)])
    except (ArrowException, OSError):  # polars reads some files that it does not
        ends = np.array([rows])
    if not rows or ends[-1] != rows:
        return 0, rows
    whole = np.append(ends[:-1] // BATCH_ROWS != ends[1:] // BATCH_ROWS, True)  # small groups go together
    return 0, *map(int, ends[whole])


def _scan_objects(path: Path) -> pl.LazyFrame:
    """Return JSON lines as a table; what is packed is unpacked here, where that is bounded."""
    keys: set[str] = set()
    for block in line_blocks(path):
        keys |= _checked_keys(block, path)
        if len(keys) > MOST_KEYS:  # the time to find the types grows with their square
            raise InputError(f"Expected the same few names in each object of '{path}', got over {MOST_KEYS:,} of them.")
    with open_bytes(path) as file:
        source = glob.escape(str(path)) if file.seekable() else b"".join(iter(lambda: file.read(1 << 20), b""))
    return pl.scan_ndjson(source, infer_schema_length=None)


def _checked_keys(block: bytes, path: Path) -> set[str]:
    """Return the names in lines of objects, and raise where one nests so deep that the parser would end the process."""
    line = pl.col("line")
    lines = pl.read_lines(block.decode("utf-8", errors="replace").encode())
    for (text,) in lines.filter(line.str.count_matches(r"[\[{]") > DEEPEST).iter_rows():
        depth = highest = 0
        for mark in re.findall(r"[\[{}\]]", re.sub(r'"(?:[^"\\]|\\.)*"', "", text)):
            depth += 1 if mark in "[{" else -1
            highest = max(highest, depth)
        if highest > DEEPEST:
            raise InputError(f"Expected one plain object per line in '{path}', got one nested over {DEEPEST} times.")
    return set(lines.select(line.str.extract_all(r'"[^"]*"\s*:').explode().unique()).to_series().drop_nulls())


@contextmanager
def table_errors(where: str, kind: str = "a table") -> Iterator[None]:
    """Turn what polars says of a broken table into one sentence."""
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, RecursionError) as error:
        text = next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
        advice = "check that it is complete and of the kind that its name says"
        if kind == "jsonl":
            text, advice = f"a line is no JSON object ({text})", "write one object per line"
        raise InputError(f"Cannot read '{where}' as {kind}: {text[:300]}; {advice}.") from None


@runtime_checkable
class ArrowStream(Protocol):
    """A table that can be handed over without a copy."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


def as_frame(table: object) -> pl.DataFrame:
    """Return any table that exports an Arrow stream; unnamed indexes of pandas are left out, named ones are columns."""
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
            found = pl.from_arrow(_without_mixtures(table))
    except _REFUSALS as error:
        brief = ", ".join(map(str, error.args)).partition("\n")[0].rstrip(".")
        raise InputError(f"Cannot take the {type(table).__name__} as a table: {brief}; convert it first.") from None
    if isinstance(found, pl.Series):
        if not isinstance(found.dtype, pl.Struct):
            raise InputError(f"Expected a table with named columns, got one column of {found.dtype}.")
        found = found.struct.unnest()
    return found.drop(name for name in found.columns if _INDEX.fullmatch(name))


def _without_mixtures(table: Any) -> Any:
    """Return a frame of pandas with text instead of columns of numbers and texts, as Excel sheets give them.

    Arrow refuses such columns; in a text file they are texts.
    """
    mixed = []
    for name, kind in table.dtypes.items() if hasattr(table, "astype") else ():
        try:
            pl.from_arrow(table[[name]] if kind == "object" else pl.DataFrame())
        except _REFUSALS:
            mixed.append(name)
    return table.astype(dict.fromkeys(mixed, str)) if mixed else table
