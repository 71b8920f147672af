"""Shared by the readers of published data sets: what a layout is, and tables that must equal what was published."""

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import polars as pl

from recfusion.data.interactions import RawData
from recfusion.data.published.archive import Archive, changed_copy

Schema: TypeAlias = Mapping[str, type[pl.DataType]]


@dataclass(frozen=True)
class Layout:
    """How a data set is published: its reader, and how an unpacked folder is recognised."""

    read: Callable[[Path, str], RawData]  # (archive or folder, name)
    is_folder: Callable[[Path], bool]
    read_users: Callable[[Path], pl.DataFrame | None] = lambda _: None
    embedded: bool = False  # the files are in the package


def has_file(name: str) -> Callable[[Path], bool]:
    """Return a check whether a folder holds a file of this name."""
    return lambda folder: any(full.rpartition("/")[2] == name for full in Archive(folder).names())


def rating_table(
    data: Path | bytes, schema: Schema, expected: str, separator: str = ",", skip_lines: int = 0
) -> pl.DataFrame:
    """Return the ratings of a text; columns with names that begin with '_' must be empty and are dropped."""
    try:
        rows = pl.read_csv(
            data,
            separator=separator,
            has_header=False,
            skip_lines=skip_lines,
            schema=schema,
            quote_char=None,
            glob=False,
        )
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise changed_copy(f"Expected {expected}, {reason}") from None
    gaps = [name for name in schema if name.startswith("_")]
    wrong = (pl.col(name).is_not_null() if name in gaps else pl.col(name).is_null() for name in schema)
    broken = rows.select((pl.any_horizontal(wrong) | ~pl.col("rating").is_finite()).sum()).item()
    if broken or rows.is_empty():
        what = f"lack a field or have a single '{separator}'" if gaps else "lack a field"
        found = f"{broken:,} of {rows.height:,} lines {what}" if broken else "got nothing"
        raise changed_copy(f"Expected {expected}, {found}")
    return rows.drop(gaps)


def headed_table(data: bytes, schema: Schema, where: str, separator: str = ",") -> pl.DataFrame:
    """Return the table of a text with a header, which must name the columns of the schema."""
    expected = f"Expected the columns {', '.join(schema)} in {where}"
    try:
        found = pl.read_csv(data, separator=separator, quote_char=None, schema_overrides=dict(schema))
    except pl.exceptions.PolarsError as error:
        raise changed_copy(f"{expected}, {str(error).partition(chr(10))[0]}") from None
    if found.columns != list(schema):
        raise changed_copy(f"{expected}, got {', '.join(found.columns)[:80]}")
    return found


def item_table(
    text: bytes, schema: Schema, parse: Callable[[str], tuple[object, ...]], expected: str, where: str
) -> pl.DataFrame:
    """Return `parse(line)` of each line that is not blank; the error for a ValueError names the line."""
    try:
        lines = text.decode("utf-8").split("\n")
    except UnicodeDecodeError:  # older sets; splitlines would split inside titles
        lines = text.decode("latin-1").split("\n")
    table = []
    for number, line in enumerate(lines, start=1):
        try:
            table += [parse(line.rstrip("\r"))] if line.strip() else []
        except (ValueError, csv.Error):
            raise changed_copy(f"Expected {expected} in line {number} of {where}, got '{line[:80]}'") from None
    return pl.DataFrame(table, schema=schema, orient="row")


def whole_number(text: str, digits: int = 18) -> int:
    """Return a text as a number, such as an id or year; raise ValueError if it is none or too long."""
    if not (text.isascii() and text.isdigit() and len(text) <= digits):
        raise ValueError(text)
    return int(text)
