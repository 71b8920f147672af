"""A table opened for reading, be it text, Parquet, JSON lines or a frame; nothing of a file is in memory yet."""

import glob
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import polars.selectors as cs

from recfusion.core.errors import InputError
from recfusion.core.files import check_regular
from recfusion.core.memory import require_memory
from recfusion.data.archive import open_bytes
from recfusion.data.lines import EXTRA, TextLayout, line_blocks, split_lines
from recfusion.data.sniff import sniff_text

_TEXT = (".csv", ".tsv", ".txt", ".dat", ".data", ".tab")
_KINDS = dict.fromkeys(_TEXT, "text") | {".parquet": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl"}
DEEPEST, MOST_KEYS = 64, 5_000  # levels of brackets in a line of JSON, and names in all of them


@dataclass(frozen=True)
class Table:
    """A text file by its lines, or a table that has types."""

    where: str  # for messages
    source: Path | pl.LazyFrame
    columns: list[str]
    layout: TextLayout | None = None  # of a text file

    @property
    def decimal_comma(self) -> bool:
        """Whether commas in numbers are decimal points, as where semicolons separate."""
        return self.layout is not None and self.layout.separator == ";"

    @property
    def named(self) -> bool:
        """Whether the columns have names of their own: False for a text file without a header."""
        return self.layout is None or self.layout.header

    def batches(self, wanted: Sequence[str]) -> Iterator[pl.LazyFrame]:
        """Yield all rows in order, some at a time: the columns `wanted`, and EXTRA (see `split_lines`)."""
        if isinstance(self.source, pl.LazyFrame):
            yield self.source.select(cs.by_name(*wanted), pl.lit(None, pl.String).alias(EXTRA))
        elif self.layout is not None:
            for block in line_blocks(self.source, self.layout.skip_lines):
                yield split_lines(block, self.layout, wanted).lazy()


def open_table(table: Path | pl.DataFrame, separator: str | None, name: str) -> Table:
    """Return a file or frame, `name` for the latter, as a table; a file's kind follows from its name."""
    if isinstance(table, pl.DataFrame):
        return Table(name, table.lazy(), table.columns)
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
        frame = _scan_parquet(table) if kind == "parquet" else _scan_objects(table)
        return Table(where, frame, frame.collect_schema().names())


def _scan_parquet(path: Path) -> pl.LazyFrame:
    """Return a Parquet file as a table; a few bytes of it may stand for billions of rows."""
    frame = pl.scan_parquet(path, glob=False)
    rows = frame.select(pl.len()).collect().item()
    require_memory(32 * rows, f"Reading the {rows:,} rows of '{path}'", "take a part of it.")
    return frame


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
