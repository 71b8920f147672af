"""Reading a user's own table: CSV, TSV, Parquet, JSON lines or a frame in memory, with every bad row counted."""

import glob
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import polars.selectors as cs

from recfusion.core.errors import InputError
from recfusion.data.parsing import EXTRA, final_value, given_cell, number_column, parse_rows, remarks, row_flags
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
    """A table opened for reading: nothing of a file is in memory yet."""

    where: str  # for messages
    frame: pl.LazyFrame
    columns: list[str]
    named: bool = True  # False: a text file without a header
    layout: TextLayout | None = None  # of a text file
    note: str = ""


@dataclass(frozen=True)
class Reading:
    """How the rows of a table are read: which column has which role, and how cells become values."""

    where: str  # for messages
    frame: pl.LazyFrame  # the roles' columns as they stand in the table, and EXTRA
    columns: dict[str, str]  # role -> column in the table
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
    table: Path | pl.DataFrame,
    asked: dict[str, str | None],
    *,
    separator: str | None = None,
    lone_users: bool = False,
    name: str = "frame",
) -> Reading:
    """Return how the interactions of a table are read; columns that are not asked for by role are guessed."""
    found = _scan(table, separator, name)
    chosen = guess_columns(found.columns, asked, where=f"'{found.where}'", by_position=not found.named)
    guessed = [f"{role} = {column}" for role, column in chosen.items() if asked[role] is None]
    notes = [found.note] * bool(found.note) + [f"columns guessed: {', '.join(guessed)}"] * bool(guessed)
    frame = found.frame.select(*(pl.col(column).alias(role) for role, column in chosen.items()), EXTRA)
    with _reading(found.where):
        _check_kinds(frame, chosen, found.where)
    return Reading(found.where, frame, chosen, found.layout, tuple(notes), lone_users)


def read_table(
    table: Path | pl.DataFrame,
    *,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    time: str | None = None,
    separator: str | None = None,
    max_bad_share: float = 0.05,
    lone_users: bool = False,
    name: str = "frame",
) -> RawData:
    """Return the interactions of a file or frame; columns that are not named are guessed, and the report says which.

    Rows that lack a value, and rows that cannot be parsed, are counted and left out; more of them than
    `max_bad_share` is an error. A rating or time named "none" is not read. With `lone_users` a row may name a user and
    no item: somebody without a history. `name` is what a frame is called.
    """
    asked = {"user": user, "item": item, "rating": rating, "time": time}
    reading = open_rows(table, asked, separator=separator, lone_users=lone_users, name=name)
    with _reading(reading.where):
        parsed = reading.parse(reading.frame)
        counts = parsed.select(**{name: flag.sum() for name, flag in row_flags(parsed).items()})
        facts = counts.collect(engine="streaming").row(0, named=True)
        check_share(reading, facts, max_bad_share)
        rows = parsed.filter("good").select(**{role: final_value(role, facts) for role in reading.columns})
        good = rows.collect(engine="streaming")
    return RawData(table.name if isinstance(table, Path) else name, good, None, reading.report(facts))


def read_items(
    table: Path | pl.DataFrame, item: str | None, separator: str | None = None, *, name: str = "frame of items"
) -> pl.DataFrame:
    """Return a table of items (titles, genres, ...), one row each, with its id column renamed to `item`."""
    found = _scan(table, separator, name)
    where = found.where
    if not found.named:
        raise InputError(f"Expected a header in the item file '{where}', got none: add one that names its columns.")
    plain = next((column for column in found.columns if column.lower() == "id"), None)
    try:
        asked = {"item": item if item in found.columns else plain}
        column = guess_columns(found.columns, asked, where=f"'{where}'", by_position=False)["item"]
    except InputError:
        raise InputError(
            f"Expected a column '{item or 'item'}' with the ids in the item file '{where}', which has: "
            f"{', '.join(found.columns)}; rename the one that holds them."
        ) from None
    renamed = found.frame.select(found.columns).rename({"item": "item_2", column: "item"}, strict=False)
    frame = renamed.select("item", pl.exclude("item"))
    with _reading(where):
        ids = given_cell("item", frame.collect_schema()["item"])
        items = frame.with_columns(ids, (cs.float() - cs.by_name("item")).fill_nan(None)).collect(engine="streaming")
    if items.is_empty():
        raise InputError(f"Expected a row per item in '{where}', got none.")
    described = items.drop_nulls("item").unique("item", keep="first", maintain_order=True)
    if len(described) < len(items):
        counts = (len(items) - len(described), len(items))
        _log.warning("%s of %s rows in '%s' repeat an item or lack its id and are left out.", *counts, where)
    if found.layout is None:  # its columns have types of their own
        return described
    return described.with_columns(
        number_column(column, decimal_comma=decimal_comma(found.layout)) for column in described.drop("item")
    )


def _scan(table: Path | pl.DataFrame, separator: str | None, name: str) -> _Table:
    if isinstance(table, pl.DataFrame):
        return _typed(name, table.lazy())
    if not table.is_file():
        found = "a folder" if table.is_dir() else "nothing"
        raise InputError(f"Expected a file at '{table}', got {found}: check the path.")
    if table.stat().st_size == 0:
        raise InputError(f"Expected rows of interactions in '{table}', got an empty file.")
    endings = [suffix.lower() for suffix in table.suffixes if suffix.lower() != ".gz"]
    kind = _KINDS.get(endings[-1]) if endings else None
    if kind is None:
        raise InputError(
            f"Cannot tell what kind of table '{table}' is from its name: use one that ends in "
            f"{', '.join(_KINDS)} (text also with .gz)."
        )
    if kind == "text":
        return _scan_text(table, separator)
    with _reading(str(table), kind):
        if kind == "parquet":
            return _typed(str(table), pl.scan_parquet(table, glob=False))
        return _typed(str(table), pl.scan_ndjson(glob.escape(str(table)), infer_schema_length=None))


def _typed(where: str, frame: pl.LazyFrame) -> _Table:
    return _Table(where, frame.with_columns(pl.lit(None, pl.String).alias(EXTRA)), frame.collect_schema().names())


def _scan_text(path: Path, separator: str | None) -> _Table:
    layout = sniff_text(path, separator)
    note = f"separator {layout.separator!r}, {'with' if layout.header else 'without'} a header"
    note += ", commas in ratings read as decimal points" * decimal_comma(layout)
    rows = text_rows(path, layout, layout.skip_lines)
    return _Table(str(path), rows, list(layout.columns), layout.header, layout, note)


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


def _check_kinds(frame: pl.LazyFrame, chosen: Mapping[str, str], where: str) -> None:
    for role, dtype in frame.drop(EXTRA).collect_schema().items():
        wrong = dtype.is_nested() or dtype in (pl.Binary, pl.Object, pl.Time, pl.Duration)
        if wrong or (role == "rating" and dtype.is_temporal()) or (role == "time" and dtype == pl.Boolean):
            raise InputError(
                f"Expected {_NEEDED[role]} in each row of the column '{chosen[role]}' in '{where}', got {dtype}: "
                f"name another column with --{role}."
            )


def check_share(reading: Reading, facts: Mapping[str, int], max_bad_share: float) -> None:
    """Raise where too many rows cannot be used, and say what is wrong with the first of them."""
    chosen, where = reading.columns, reading.where
    total, missing, unparsable = facts["rows"], facts["missing"], facts["unparsable"]
    if not total:
        raise InputError(f"Expected rows of interactions in '{where}', got none below the names of the columns.")
    if missing + unparsable > max_bad_share * total:
        columns = ", ".join(f"{role} = {name}" for role, name in chosen.items())
        spare = "".join(f", leave out the {role} (--{role} none)" for role in ("rating", "time") if role in chosen)
        raise InputError(
            f"Of {total:,} rows in '{where}', {missing:,} lack a value and {unparsable:,} cannot be parsed, which is "
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


@contextmanager
def _reading(where: str, kind: str = "a table") -> Iterator[None]:
    """Turn what polars says of a broken table into one sentence."""
    try:
        yield
    except (pl.exceptions.PolarsError, OSError) as error:
        text = next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
        advice = "check that it is complete and of the kind that its name says"
        if "malformed" in text or "escaped" in str(error):
            text = "a double quote is not closed, or stands inside a field"
            advice = "quote that field and double its quotes"
        elif kind == "jsonl":
            text, advice = f"a line is no JSON object ({text})", "write one object per line"
        raise InputError(f"Cannot read '{where}' as {kind}: {text}; {advice}.") from None
