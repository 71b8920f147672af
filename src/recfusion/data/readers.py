"""Reading a user's own table of interactions: CSV, TSV, Parquet or JSON lines, with every bad row counted."""

import glob
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from recfusion.core.errors import InputError
from recfusion.data.parsing import EXTRA, final_value, given_cell, parse_rows, remarks, row_flags
from recfusion.data.raw import RawData, ReadReport
from recfusion.data.sniff import TextLayout, guess_columns, sniff_text

_log = logging.getLogger(__name__)

_TEXT = (".csv", ".tsv", ".txt", ".dat", ".data", ".tab")
_KINDS = dict.fromkeys(_TEXT, "text") | {".parquet": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_NEEDED = dict.fromkeys(("user", "item"), "a whole number or text in UTF-8") | {
    "rating": "a number",
    "time": "an ISO date or a number of seconds since 1970",
}


@dataclass(frozen=True)
class _Table:
    """A file opened for reading: nothing of it is in memory yet."""

    frame: pl.LazyFrame
    columns: list[str]
    named: bool = True  # False: a text file without a header
    layout: TextLayout | None = None  # of a text file
    note: str = ""


@dataclass(frozen=True)
class Reading:
    """How the rows of a table are read: which column has which role, and how cells become values."""

    path: Path
    frame: pl.LazyFrame  # the roles' columns as they stand in the file, and EXTRA
    columns: dict[str, str]  # role -> column in the file
    layout: TextLayout | None  # of a text file
    notes: tuple[str, ...]
    lone_users: bool

    def parse(self, frame: pl.LazyFrame, seconds: pl.Expr | None = None) -> pl.LazyFrame:
        """Return rows of the table, all or some, with their values and flags (see `parse_rows`)."""
        return parse_rows(frame, decimal_comma=decimal_comma(self.layout), lone_users=self.lone_users, seconds=seconds)

    def report(self, facts: Mapping[str, int]) -> ReadReport:
        """Return what was read, from the counts of the rows' flags."""
        counts = (facts["rows"], self.columns, facts["missing"], facts["unparsable"])
        return ReadReport(*counts, (*self.notes, *remarks(facts)))


def open_rows(
    path: Path, asked: dict[str, str | None], *, separator: str | None = None, lone_users: bool = False
) -> Reading:
    """Return how the interactions of a file are read; columns that are not asked for by role are guessed."""
    table = _scan(path, separator)
    chosen = guess_columns(table.columns, asked, where=f"'{path}'", by_position=not table.named)
    guessed = [f"{role} = {name}" for role, name in chosen.items() if asked[role] is None]
    notes = [table.note] * bool(table.note) + [f"columns guessed: {', '.join(guessed)}"] * bool(guessed)
    frame = table.frame.select(*(pl.col(name).alias(role) for role, name in chosen.items()), EXTRA)
    try:
        _check_kinds(frame, chosen, path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _unreadable(path, error) from None
    return Reading(path, frame, chosen, table.layout, tuple(notes), lone_users)


def read_table(
    path: Path,
    *,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    time: str | None = None,
    separator: str | None = None,
    max_bad_share: float = 0.05,
    lone_users: bool = False,
) -> RawData:
    """Return the interactions of a file; columns that are not named are guessed, and the report says which.

    Rows that lack a value, and rows that cannot be parsed, are counted and left out; more of them than
    `max_bad_share` is an error. A rating or time named "none" is not read. With `lone_users` a row may name a user and
    no item: somebody without a history.
    """
    path = Path(path)
    asked = {"user": user, "item": item, "rating": rating, "time": time}
    reading = open_rows(path, asked, separator=separator, lone_users=lone_users)
    try:
        parsed = reading.parse(reading.frame)
        counts = parsed.select(**{name: flag.sum() for name, flag in row_flags(parsed).items()})
        facts = counts.collect(engine="streaming").row(0, named=True)
        check_share(reading, facts, max_bad_share)
        rows = parsed.filter("good").select(**{role: final_value(role, facts) for role in reading.columns})
        good = rows.collect(engine="streaming")
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _unreadable(path, error) from None
    return RawData(path.name, good, None, reading.report(facts))


def read_items(path: Path, item: str | None, separator: str | None = None) -> pl.DataFrame:
    """Return a table of items (titles, genres, ...), one row each, with its id column renamed to `item`."""
    path = Path(path)
    table = _scan(path, separator)
    if not table.named:
        raise InputError(f"Expected a header in the item file '{path}', got none: add one that names its columns.")
    plain = next((column for column in table.columns if column.lower() == "id"), None)
    try:
        asked = {"item": item if item in table.columns else plain}
        name = guess_columns(table.columns, asked, where=f"'{path}'", by_position=False)["item"]
    except InputError:
        raise InputError(
            f"Expected a column '{item or 'item'}' with the ids in the item file '{path}', which has: "
            f"{', '.join(table.columns)}; rename the one that holds them."
        ) from None
    renamed = table.frame.select(table.columns).rename({"item": "item_2", name: "item"}, strict=False)
    frame = renamed.select("item", pl.exclude("item"))
    try:
        items = frame.with_columns(given_cell("item", frame.collect_schema()["item"])).collect(engine="streaming")
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _unreadable(path, error) from None
    if items.is_empty():
        raise InputError(f"Expected a row per item in '{path}', got none.")
    described = items.drop_nulls("item").unique("item", keep="first", maintain_order=True)
    if len(described) < len(items):
        counts = (len(items) - len(described), len(items))
        _log.warning("%s of %s rows in '%s' repeat an item or lack its id and are left out.", *counts, path)
    return described


def _scan(path: Path, separator: str | None) -> _Table:
    if not path.is_file():
        found = "a folder" if path.is_dir() else "nothing"
        raise InputError(f"Expected a file at '{path}', got {found}: check the path.")
    if path.stat().st_size == 0:
        raise InputError(f"Expected rows of interactions in '{path}', got an empty file.")
    endings = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    kind = _KINDS.get(endings[-1]) if endings else None
    if kind is None:
        raise InputError(
            f"Cannot tell what kind of table '{path}' is from its name: use one that ends in "
            f"{', '.join(_KINDS)} (text also with .gz)."
        )
    if kind == "text":
        return _scan_text(path, separator)
    try:
        if kind == "parquet":
            frame = pl.scan_parquet(path, glob=False)
        else:
            frame = pl.scan_ndjson(glob.escape(str(path)), infer_schema_length=None)
        columns = frame.collect_schema().names()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _unreadable(path, error, kind) from None
    return _Table(frame.with_columns(pl.lit(None, pl.String).alias(EXTRA)), columns)


def _scan_text(path: Path, separator: str | None) -> _Table:
    layout = sniff_text(path, separator)
    note = f"separator {layout.separator!r}, {'with' if layout.header else 'without'} a header"
    note += ", commas in ratings read as decimal points" * decimal_comma(layout)
    return _Table(text_rows(path, layout, layout.skip_lines), list(layout.columns), layout.header, layout, note)


def text_rows(source: Path | bytes, layout: TextLayout, skip_lines: int = 0) -> pl.LazyFrame:
    """Return the rows of a delimited text as text; a field too many goes into the column EXTRA."""
    return pl.scan_csv(
        source,
        glob=False,
        separator=layout.separator,
        has_header=False,
        skip_lines=skip_lines,
        schema=dict.fromkeys((*layout.columns, EXTRA), pl.String),
        truncate_ragged_lines=True,
        missing_columns="insert",
        encoding="utf8-lossy",
        raise_if_empty=False,
    )


def decimal_comma(layout: TextLayout | None) -> bool:
    """Return whether commas in numbers are decimal points, as where semicolons separate."""
    return layout is not None and layout.separator == ";"


def _check_kinds(frame: pl.LazyFrame, chosen: Mapping[str, str], path: Path) -> None:
    for role, dtype in frame.drop(EXTRA).collect_schema().items():
        wrong = dtype.is_nested() or dtype in (pl.Binary, pl.Object, pl.Time, pl.Duration)
        if wrong or (role == "rating" and dtype.is_temporal()) or (role == "time" and dtype == pl.Boolean):
            raise InputError(
                f"Expected {_NEEDED[role]} in each row of the column '{chosen[role]}' in '{path}', got {dtype}: "
                f"name another column with --{role}."
            )


def check_share(reading: Reading, facts: Mapping[str, int], max_bad_share: float) -> None:
    """Raise where too many rows cannot be used, and say what is wrong with the first of them."""
    chosen, path = reading.columns, reading.path
    total, missing, unparsable = facts["rows"], facts["missing"], facts["unparsable"]
    if not total:
        raise InputError(f"Expected rows of interactions in '{path}', got none below the names of the columns.")
    if missing + unparsable > max_bad_share * total:
        columns = ", ".join(f"{role} = {name}" for role, name in chosen.items())
        spare = "".join(f", leave out the {role} (--{role} none)" for role in ("rating", "time") if role in chosen)
        raise InputError(
            f"Of {total:,} rows in '{path}', {missing:,} lack a value and {unparsable:,} cannot be parsed, which is "
            f"more than the allowed {max_bad_share:.0%}; {_first_fault(reading)}. Check the columns "
            f"({columns}){spare}, or raise --max-bad-share."
        )


def _first_fault(reading: Reading) -> str:
    """Return what is wrong with the first bad row, for an error message."""
    parsed = reading.parse(reading.frame)
    bad = parsed.with_row_index("row", offset=1).filter(~pl.col("good") & ~pl.col("blank")).head(1).collect()
    row = bad.row(0, named=True)
    for role in reading.columns:
        if row[f"{role} given"] is None:
            return f"row {row['row']} has no {role}"
        if row[f"{role} value"] is None:
            return f"row {row['row']} has the {role} {row[role]!r} instead of {_NEEDED[role]}"
    return f"row {row['row']} has too many fields"


def _unreadable(path: Path, error: Exception, kind: str = "a table") -> InputError:
    text = next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
    advice = "check that it is complete and of the kind that its name says"
    if "malformed" in text or "escaped" in str(error):
        text, advice = (
            "a double quote is not closed, or stands inside a field",
            "quote that field and double its quotes",
        )
    elif kind == "jsonl":
        text, advice = f"a line is no JSON object ({text})", "write one object per line"
    return InputError(f"Cannot read '{path}' as {kind}: {text}; {advice}.")
