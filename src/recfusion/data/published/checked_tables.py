"""Tables of published files: a file that differs from what its publisher made is an error that names the line."""

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import polars as pl

from recfusion.data.published.archive import changed_copy

Schema: TypeAlias = Mapping[str, type[pl.DataType]]


def rating_table(
    data: Path | bytes, schema: Schema, expected: str, separator: str = ",", skip_lines: int = 0
) -> pl.DataFrame:
    """Return the ratings of a text; columns whose name begins with '_' must be empty, and are left out."""
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


def item_table(
    text: bytes, schema: Schema, parse: Callable[[str], tuple[object, ...]], expected: str, where: str
) -> pl.DataFrame:
    """Return what `parse` makes of each line that is not blank; where it raises a ValueError, the line is named."""
    try:
        lines = text.decode("utf-8").split("\n")
    except UnicodeDecodeError:  # the older sets; splitlines would also split at bytes that stand within titles
        lines = text.decode("latin-1").split("\n")
    table = []
    for number, line in enumerate(lines, start=1):
        try:
            table += [parse(line.rstrip("\r"))] if line.strip() else []
        except (ValueError, csv.Error):
            raise changed_copy(f"Expected {expected} in line {number} of {where}, got '{line[:80]}'") from None
    return pl.DataFrame(table, schema=schema, orient="row")


def whole_number(text: str, digits: int = 18) -> int:
    """Return the number that a publisher's file has as an id or year; a ValueError where it is none, or too long."""
    if not (text.isascii() and text.isdigit() and len(text) <= digits):
        raise ValueError(text)
    return int(text)
