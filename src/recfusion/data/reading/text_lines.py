"""Text files as physical lines: opened where they are files, unpacked within bounds, and one row for every line."""

import csv
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from recfusion.core.errors import InputError
from recfusion.data.published.archive import open_bytes

EXTRA = "\x00extra"  # a column that only rows with too many fields fill, and broken lines
LONGEST_LINE = 1 << 25
BROKEN = "\0"  # begins EXTRA where the quotes of a line do not pair
BLOCK_BYTES = 1 << 24
BOM = b"\xef\xbb\xbf"
_STAND_INS = ("\x1f", "\x1e", "\x1d", "\x1c", "\x1b", "\x1a", "\x02", "\x01")  # for separators of several bytes


@dataclass(frozen=True)
class TextLayout:
    """How a delimited text file is laid out."""

    separator: str
    header: bool
    columns: tuple[str, ...]
    skip_lines: int  # up to the end of the header


def line_blocks(
    path: Path, skip_lines: int = 0, block_bytes: int = BLOCK_BYTES, *, span: tuple[int, ...] = ()
) -> Iterator[bytes]:
    """Yield the lines of a file after the first `skip_lines` in blocks of whole lines, without a byte order mark.

    A `span` of two places of `line_cuts` are all the lines between them.
    """
    start, stop = span or (0, sys.maxsize)
    rest, begun = b"", start > 0
    with open_bytes(path) as file:
        if span:
            file.seek(start)
        while piece := file.read(min(block_bytes, stop - start)):
            start += len(piece)
            rest, begun = rest + (piece if begun else piece.removeprefix(BOM)), True
            end = rest.rfind(b"\n") + 1
            if not end and len(rest) > LONGEST_LINE:
                raise InputError(f"Expected rows in lines in '{path}', got one of more than {LONGEST_LINE:,} bytes.")
            skipped = 0
            while skip_lines and skipped < end:
                skipped, skip_lines = rest.index(b"\n", skipped) + 1, skip_lines - 1
            if skipped < end:
                yield rest[skipped:end]
            rest = rest[end:]
    if rest and not skip_lines:
        yield rest


def line_cuts(path: Path, skip_lines: int, about_bytes: int) -> tuple[int, ...]:
    """Return where a file may be cut into spans of whole lines, from the end of its header on; none if it is packed."""
    with open_bytes(path) as file:
        if not file.seekable():
            return ()
        file.seek(len(BOM) if file.read(len(BOM)) == BOM else 0)
        for _ in range(skip_lines):
            file.readline()
        cuts, size = [file.tell()], path.stat().st_size
        while cuts[-1] + about_bytes < size:
            file.seek(cuts[-1] + about_bytes - 1)
            if not file.readline(LONGEST_LINE).endswith(b"\n") or file.tell() == size:
                break  # whoever reads a longer line says so
            cuts.append(file.tell())
    return *cuts, size


def split_lines(block: bytes, layout: TextLayout, wanted: Sequence[str]) -> pl.DataFrame:
    """Return a row for every line of `block`: the `wanted` fields as text, and EXTRA.

    A field that begins with a double quote must end with one, and may hold separators and doubled quotes; elsewhere
    quotes are characters as any other. A line that breaks this rule gives a row with nothing but EXTRA: BROKEN and the
    line.
    """
    block = block.removesuffix(b"\r").replace(b"\r\n", b"\n")
    separator = layout.separator
    if len(separator.encode()) > 1:
        separator = next((mark for mark in _STAND_INS if mark.encode() not in block), "")
        if not separator:
            raise InputError(f"Expected text that is separated by '{layout.separator}', got many control characters.")
        block = block.replace(layout.separator.encode(), separator.encode())
    count = block.count(b"\n") + (not block.endswith(b"\n"))
    if b'"' not in block:
        rows = _fields(block, separator, layout, wanted, quoted=False)
    else:
        rows = _with_quotes(block, separator, layout, wanted)
        if separator != layout.separator:
            rows = rows.with_columns(pl.all().str.replace_all(separator, layout.separator, literal=True))
    if rows.height != count:  # no file is known for which this happens
        raise InputError(f"Expected {count:,} rows of as many lines, got {rows.height:,}: convert the text to Parquet.")
    return rows


def fields_of(line: str, separator: str) -> list[str]:
    """Return the fields of one line, by the rule of `split_lines` as far as its quotes pair."""
    if '"' not in line:
        return line.removesuffix("\r").split(separator)
    mark = next((mark for mark in _STAND_INS if mark not in line), "\ue000")
    try:
        [fields] = csv.reader([line.replace("\r", " ").replace(separator, mark)], delimiter=mark)
    except csv.Error:  # longer than that module reads
        return line.split(separator)
    return [field.replace(mark, separator) for field in fields]


def _with_quotes(block: bytes, separator: str, layout: TextLayout, wanted: Sequence[str]) -> pl.DataFrame:
    field = rf'"(?:[^"]|"")*"|[^"\x{{{ord(separator):x}}}]*'
    mark = rf"\x{{{ord(separator):x}}}"
    lines = pl.read_lines(block.decode("utf-8", errors="replace").encode())
    opened = pl.col("line").str.contains(rf'(?:^|{mark})"')
    paired = pl.col("line").str.contains(rf"^(?:{field})(?:{mark}(?:{field}))*$")
    kinds = lines.select(pl.when(~opened).then(0).when(paired).then(1).otherwise(2).cast(pl.Int8)).to_series()
    parts = []
    for kind in kinds.unique().sort():
        chosen = lines.filter(kinds == kind)
        if kind == 2:
            nothing = (pl.lit(None, pl.String).alias(name) for name in wanted)
            parts.append(chosen.select(*nothing, (BROKEN + pl.col("line")).alias(EXTRA)))
        else:
            text = chosen["line"].str.join("\n").item().encode() + b"\n"
            parts.append(_fields(text, separator, layout, wanted, quoted=kind == 1))
    if len(parts) == 1:
        return parts[0]
    return pl.concat(parts)[kinds.arg_sort().arg_sort()]


def _fields(block: bytes, separator: str, layout: TextLayout, wanted: Sequence[str], *, quoted: bool) -> pl.DataFrame:
    # The empty first line keeps polars from taking a block for a packed one, or its first line for all others' width.
    rows = pl.scan_csv(
        b"\n" + block,
        glob=False,
        separator=separator,
        has_header=False,
        schema=dict.fromkeys((*layout.columns, EXTRA), pl.String),
        quote_char='"' if quoted else None,
        truncate_ragged_lines=True,
        missing_columns="insert",
        encoding="utf8-lossy",
        raise_if_empty=False,
    )
    return rows.select(*wanted, EXTRA).slice(1).collect()
