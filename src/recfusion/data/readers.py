"""Reading a user's own table of interactions: CSV, TSV, Parquet or JSON lines, with every bad row counted."""

import glob
import gzip
import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from recfusion.core.errors import InputError
from recfusion.data.raw import RawData, ReadReport
from recfusion.data.sniff import guess_columns, sniff_text

_log = logging.getLogger(__name__)

_EXTRA = "\x00extra"  # a column that only rows with too many fields fill
_ABSENT = ("", "NA", "N/A", "<NA>", "null", "NULL", "NaN", "nan", "None")
_INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"
_EXACT = 2**53  # beyond it, floats skip whole numbers
_SUFFIXES = "csv, tsv, txt, dat (also .gz), parquet, jsonl, ndjson"
_NEEDED = {"user": "an id", "item": "an id", "rating": "a number", "time": "an ISO date or seconds since 1970"}
_TIME_FORMATS = ("%+", "%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%Y-%m-%d")


@dataclass(frozen=True)
class _Table:
    """A file opened for reading: nothing of it is in memory yet."""

    frame: pl.LazyFrame
    columns: list[str]
    named: bool = True  # False: a text file without a header
    decimal_comma: bool = False
    note: str = ""


def read_table(
    path: Path,
    *,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    time: str | None = None,
    separator: str | None = None,
    max_bad_share: float = 0.05,
) -> RawData:
    """Return the interactions of a file; columns that are not named are guessed, and the report says which.

    Rows that lack a value, and rows that cannot be parsed, are counted and left out; more of them than
    `max_bad_share` is an error. A `rating` or `time` named "none" is not read.
    """
    path = Path(path)
    asked = {"user": user, "item": item, "rating": rating, "time": time}
    table = _scan(path, separator)
    chosen = guess_columns(table.columns, asked, where=f"'{path}'", by_position=not table.named)
    guessed = [f"{role} = {name}" for role, name in chosen.items() if asked[role] is None]
    notes = [table.note] * bool(table.note) + [f"columns guessed: {', '.join(guessed)}"] * bool(guessed)

    chosen_only = table.frame.select(*(pl.col(name).alias(role) for role, name in chosen.items()), _EXTRA)
    _check_kinds(chosen_only.collect_schema(), chosen, path)
    try:
        parsed = _parse(chosen_only, decimal_comma=table.decimal_comma)
        facts = parsed.select(*_facts(parsed)).collect(engine="streaming").row(0, named=True)
        _check_share(parsed, facts, chosen, path, max_bad_share)
        rows = parsed.filter(~pl.any_horizontal("blank", "missing", "unparsable")).select(
            pl.col(f"{role} value").cast(pl.Int64 if facts.get(f"{role} integer") else None).alias(role)
            if False
            else _final(role, facts)
            for role in chosen
        )
        good = rows.collect(engine="streaming")
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(f"Cannot read '{path}' as a table: {_explain(error)}") from None
    report = ReadReport(facts["rows"], chosen, facts["missing"], facts["unparsable"], (*notes, *_remarks(facts)))
    return RawData(path.name, good, None, report)
