"""Delimited text files: one row per physical line, unpacked within bounds."""

import codecs
import csv
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from recfusion.core.errors import InputError
from recfusion.data.published.archive import open_bytes

EXTRA_FIELD = "\x00extra"  # a column for the first surplus field of a row, or for a whole broken line
LONGEST_LINE = 1 << 25
BROKEN = "\0"  # EXTRA_FIELD starts with it if the quotes of a line do not pair
BLOCK_BYTES = 1 << 24
BOM = b"\xef\xbb\xbf"
_STAND_INS = ("\x1f", "\x1e", "\x1d", "\x1c", "\x1b", "\x1a", "\x02", "\x01")  # for separators of several bytes


@dataclass(frozen=True)
class TextLayout:
    """Separator, header and columns of a delimited text file."""

    separator: str
    header: bool
    columns: tuple[str, ...]
    skip_lines: int  # lines up to the end of the header
    encoding: str = "utf-8"


def line_blocks(
    path: Path,
    skip_lines: int = 0,
    block_bytes: int | None = None,
    *,
    span: tuple[int, ...] = (),
    encoding: str = "utf-8",
) -> Iterator[bytes]:
    """Yield blocks of whole lines of a file after its first `skip_lines`, in UTF-8 without a byte order mark.

    `span` limits them to the lines between two positions of `line_cuts`.
    """
    start, stop = span or (0, sys.maxsize)
    block_bytes = block_bytes or BLOCK_BYTES
    rest, begun = b"", start > 0
    decoder = None if encoding == "utf-8" else codecs.getincrementaldecoder(encoding)(errors="replace")
    with open_bytes(path) as file:
        if span:
            file.seek(start)
        while piece := file.read(min(block_bytes, stop - start)):
            start += len(piece)
            text = piece if decoder is None else decoder.decode(piece).encode()
            rest, begun = rest + (text if begun else text.removeprefix(BOM)), True
            end = rest.rfind(b"\n") + 1
            if not end and len(rest) > LONGEST_LINE:
                raise InputError(f"Expected rows in lines in '{path}', got one of more than {LONGEST_LINE:,} bytes.")
            skipped = 0
            while skip_lines and skipped < end:
                skipped, skip_lines = rest.index(b"\n", skipped) + 1, skip_lines - 1
            if skipped < end:
                yield rest[skipped:end]
            rest = rest[end:]
    rest += b"" if decoder is None else decoder.decode(b"", final=True).encode()
    if rest and not skip_lines:
        yield rest


def line_cuts(path: Path, skip_lines: int, about_bytes: int) -> tuple[int, ...]:
    """Return the byte positions that cut a file, after its header, into whole lines; none if it is compressed."""
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
                break  # reading such a long line is an error
            cuts.append(file.tell())
    return *cuts, size


def split_lines(block: bytes, layout: TextLayout, wanted: Sequence[str]) -> pl.DataFrame:
    """Return a row for every line of `block`: the `wanted` fields as text, and EXTRA_FIELD.

    A field that begins with a double quote must end with one, and may hold separators and doubled quotes; elsewhere
    quotes are ordinary characters. A line that breaks this rule has only EXTRA_FIELD: BROKEN and the line.
    """
    if b"\r" in block:
        block = block.removesuffix(b"\r").replace(b"\r\n", b"\n") or b"\n"  # a lone carriage return is an empty line
    separator = layout.separator
    if len(separator.encode()) > 1:
        separator = next((mark for mark in _STAND_INS if mark.encode() not in block), "")
        if not separator:
            raise InputError(f"Expected text separated by '{layout.separator}', got many control characters.")
        block = block.replace(layout.separator.encode(), separator.encode())
    count = block.count(b"\n") + (not block.endswith(b"\n"))
    if b'"' not in block:
        rows = _fields(block, separator, layout, wanted, quoted=False)
    else:
        rows = _with_quotes(block, separator, layout, wanted)
        if separator != layout.separator:
            rows = rows.with_columns(pl.all().str.replace_all(separator, layout.separator, literal=True))
    if rows.height != count:  # no known file causes this
        raise InputError(f"Expected {count:,} rows, one per line, got {rows.height:,}: convert the text to Parquet.")
    return rows


def fields_of(line: str, separator: str) -> list[str]:
    """Return the fields of one line, by the quoting rule of `split_lines`."""
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
    lines = pl.read_lines(block.decode("utf-8", errors="replace").encode(), name="line")
    opened = pl.col("line").str.contains(rf'(?:^|{mark})"')
    paired = pl.col("line").str.contains(rf"^(?:{field})(?:{mark}(?:{field}))*$")
    kinds = lines.select(pl.when(~opened).then(0).when(paired).then(1).otherwise(2).cast(pl.Int8)).to_series()
    parts = []
    for kind in kinds.unique().sort():
        chosen = lines.filter(kinds == kind)
        if kind == 2:
            nothing = (pl.lit(None, pl.String).alias(name) for name in wanted)
            parts.append(chosen.select(*nothing, (BROKEN + pl.col("line")).alias(EXTRA_FIELD)))
        else:
            text = chosen["line"].str.join("\n").item().encode() + b"\n"
            parts.append(_fields(text, separator, layout, wanted, quoted=kind == 1))
    if len(parts) == 1:
        return parts[0]
    return pl.concat(parts)[kinds.arg_sort().arg_sort()]


def _fields(block: bytes, separator: str, layout: TextLayout, wanted: Sequence[str], *, quoted: bool) -> pl.DataFrame:
    # The empty first line keeps polars from guessing that a block is compressed, or a width from its first line.
    rows = pl.scan_csv(
        b"\n" + block,
        glob=False,
        separator=separator,
        has_header=False,
        schema=dict.fromkeys((*layout.columns, EXTRA_FIELD), pl.String),
        quote_char='"' if quoted else None,
        truncate_ragged_lines=True,
        missing_columns="insert",
        encoding="utf8-lossy",
        raise_if_empty=False,
    )
    return rows.select(*wanted, EXTRA_FIELD).slice(1).collect()
