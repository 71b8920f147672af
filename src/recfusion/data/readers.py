"""Reading a user's own table of interactions: CSV, TSV, Parquet or JSON lines, with every bad row counted."""

import glob
import logging
from collections.abc import Mapping
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
_TEXT = (".csv", ".tsv", ".txt", ".dat", ".data", ".tab")
_KINDS = dict.fromkeys(_TEXT, "text") | {".parquet": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_NEEDED = dict.fromkeys(("user", "item"), "a whole number or text in UTF-8") | {
    "rating": "a number",
    "time": "an ISO date or a number of seconds since 1970",
}
_DATES = ("%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M")


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
    lone_users: bool = False,
) -> RawData:
    """Return the interactions of a file; columns that are not named are guessed, and the report says which.

    Rows that lack a value, and rows that cannot be parsed, are counted and left out; more of them than
    `max_bad_share` is an error. A rating or time named "none" is not read. With `lone_users` a row may name a user and
    no item: somebody without a history.
    """
    path = Path(path)
    asked = {"user": user, "item": item, "rating": rating, "time": time}
    table = _scan(path, separator)
    chosen = guess_columns(table.columns, asked, where=f"'{path}'", by_position=not table.named)
    guessed = [f"{role} = {name}" for role, name in chosen.items() if asked[role] is None]
    notes = [table.note] * bool(table.note) + [f"columns guessed: {', '.join(guessed)}"] * bool(guessed)
    frame = table.frame.select(*(pl.col(name).alias(role) for role, name in chosen.items()), _EXTRA)
    try:
        _check_kinds(frame, chosen, path)
        parsed = _parse(frame, decimal_comma=table.decimal_comma, lone_users=lone_users)
        facts = parsed.select(**_facts(parsed)).collect(engine="streaming").row(0, named=True)
        _check_share(parsed, facts, chosen, path, max_bad_share)
        rows = parsed.filter("good").select(**{role: _final(role, facts) for role in chosen})
        good = rows.collect(engine="streaming")
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _unreadable(path, error) from None
    report = ReadReport(facts["rows"], chosen, facts["missing"], facts["unparsable"], (*notes, *_remarks(facts)))
    return RawData(path.name, good, None, report)


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
        items = frame.with_columns(_given("item", frame.collect_schema()["item"])).collect(engine="streaming")
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
    return _Table(frame.with_columns(pl.lit(None, pl.String).alias(_EXTRA)), columns)


def _scan_text(path: Path, separator: str | None) -> _Table:
    layout = sniff_text(path, separator)
    frame = pl.scan_csv(
        path,
        glob=False,
        separator=layout.separator,
        has_header=False,
        skip_lines=layout.skip_lines,
        schema=dict.fromkeys((*layout.columns, _EXTRA), pl.String),
        truncate_ragged_lines=True,
        missing_columns="insert",
        encoding="utf8-lossy",
        raise_if_empty=False,
    )
    decimal_comma = layout.separator == ";"
    note = f"separator {layout.separator!r}, {'with' if layout.header else 'without'} a header"
    note += ", commas in ratings read as decimal points" * decimal_comma
    return _Table(frame, list(layout.columns), layout.header, decimal_comma, note)


def _check_kinds(frame: pl.LazyFrame, chosen: Mapping[str, str], path: Path) -> None:
    for role, dtype in frame.drop(_EXTRA).collect_schema().items():
        wrong = dtype.is_nested() or dtype in (pl.Binary, pl.Object, pl.Time, pl.Duration)
        if wrong or (role == "rating" and dtype.is_temporal()) or (role == "time" and dtype == pl.Boolean):
            raise InputError(
                f"Expected {_NEEDED[role]} in each row of the column '{chosen[role]}' in '{path}', got {dtype}: "
                f"name another column with --{role}."
            )


def _parse(frame: pl.LazyFrame, *, decimal_comma: bool, lone_users: bool) -> pl.LazyFrame:
    """Add what each role's column gives and its value as typed, and the flags blank, missing, unparsable and good.

    The stages are separate so that no text is parsed twice.
    """
    kinds = {role: dtype for role, dtype in frame.collect_schema().items() if role != _EXTRA}
    given = frame.with_columns(_given(role, dtype).alias(f"{role} given") for role, dtype in kinds.items())
    values = {role: _identifier(role, kinds[role]) for role in ("user", "item")}
    if "rating" in kinds:
        number = pl.col("rating given")
        if decimal_comma:
            number = number.str.replace(",", ".", literal=True)
        number = number.cast(pl.Float32, strict=False)
        values["rating"] = pl.when(number.is_finite()).then(number)
    if "time" in kinds:
        values["time"] = _seconds(given, kinds["time"])
    typed = given.with_columns(value.alias(f"{role} value") for role, value in values.items())
    all_given = pl.all_horizontal(pl.col(f"{role} given").is_not_null() for role in kinds)
    none_given = pl.all_horizontal(pl.col(f"{role} given").is_null() for role in kinds)
    good = pl.all_horizontal(pl.col(f"{role} value").is_not_null() for role in kinds) & pl.col(_EXTRA).is_null()
    blank = none_given & pl.col(_EXTRA).is_null()
    lone = pl.lit(lone_users) & pl.col("user value").is_not_null() & pl.col("item given").is_null()
    flagged = typed.with_columns(blank=blank, missing=~all_given & ~blank & ~lone, good=good | lone)
    return flagged.with_columns(unparsable=~pl.any_horizontal("good", "missing", "blank"))


def _is_typed(role: str, dtype: pl.DataType) -> bool:
    """Say whether a column can be used as it is; all others are read as text."""
    if role == "rating":
        return dtype.is_numeric() or dtype == pl.Boolean
    if role == "time":
        return dtype.is_numeric() or dtype.is_temporal()
    return dtype.is_float() or (dtype.is_integer() and dtype not in (pl.UInt64, pl.Int128, pl.UInt128))


def _given(role: str, dtype: pl.DataType) -> pl.Expr:
    """Return the column with everything that means "no value" as null."""
    if _is_typed(role, dtype):
        return pl.col(role).fill_nan(None) if dtype.is_float() else pl.col(role)
    text = pl.col(role).cast(pl.String).str.strip_chars()
    return pl.when(~text.is_in(_ABSENT)).then(text)


def _identifier(role: str, dtype: pl.DataType) -> pl.Expr:
    """Return the ids: whole numbers as integers, text as it stands if it was UTF-8."""
    given = pl.col(f"{role} given")
    if dtype.is_float():
        return pl.when((given == given.round()) & (given.abs() < _EXACT)).then(given).cast(pl.Int64)
    if _is_typed(role, dtype):
        return given.cast(pl.Int64)
    return pl.when(~given.str.contains("\ufffd", literal=True)).then(given)


def _seconds(frame: pl.LazyFrame, dtype: pl.DataType) -> pl.Expr:
    """Return seconds since 1970 from numbers (seconds, milli-, micro- or nanoseconds), dates or date texts."""
    given = pl.col("time given")
    if dtype.is_temporal():
        return given.cast(pl.Datetime("us")).dt.epoch("s")
    number = given.cast(pl.Float64, strict=False)
    for limit, divisor in ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3)):
        number = pl.when(number.abs() >= limit).then(number / divisor).otherwise(number)
    seconds = pl.when(number.abs() < 1e11).then(number.floor()).cast(pl.Int64)
    if dtype.is_numeric():
        return seconds
    forms = [
        seconds,
        given.str.to_datetime("%+", strict=False, time_zone="UTC").dt.epoch("s"),
        *(given.str.to_datetime(form, strict=False).dt.epoch("s") for form in _DATES),
        given.str.to_date("%Y-%m-%d", strict=False).cast(pl.Datetime("us")).dt.epoch("s"),
    ]
    # To try every form on every row is slow; most files use one.
    head = frame.select("time given").head(1000).collect()
    fits = [form for form in forms if head.select(form.is_not_null().all()).item()]
    return fits[0] if fits else pl.coalesce(forms)


def _facts(parsed: pl.LazyFrame) -> dict[str, pl.Expr]:
    """Return what one pass over the file must tell before its rows can be taken."""
    schema = parsed.collect_schema()
    facts = {flag: pl.col(flag).sum() for flag in ("blank", "missing", "unparsable")}
    facts["rows"] = (~pl.col("blank")).sum()
    for role in ("user", "item"):
        if schema[f"{role} value"] == pl.String:
            value = pl.col(f"{role} value")
            facts[f"{role} integer"] = (value.str.contains(_INTEGER) | ~pl.col("good")).all()
            facts[f"{role} trimmed"] = (value != pl.col(role).cast(pl.String)).sum()
    return facts


def _final(role: str, facts: Mapping[str, Any]) -> pl.Expr:
    value = pl.col(f"{role} value")
    return value.cast(pl.Int64) if facts.get(f"{role} integer") else value


def _remarks(facts: Mapping[str, Any]) -> list[str]:
    trimmed = {role: facts.get(f"{role} trimmed") for role in ("user", "item")}
    remarks = [f"blanks around {count:,} {role} ids were removed" for role, count in trimmed.items() if count]
    return remarks + [f"{facts['blank']:,} empty rows were skipped"] * bool(facts["blank"])


def _check_share(
    parsed: pl.LazyFrame, facts: Mapping[str, Any], chosen: Mapping[str, str], path: Path, max_bad_share: float
) -> None:
    total, missing, unparsable = facts["rows"], facts["missing"], facts["unparsable"]
    if not total:
        raise InputError(f"Expected rows of interactions in '{path}', got none below the names of the columns.")
    if missing + unparsable > max_bad_share * total:
        columns = ", ".join(f"{role} = {name}" for role, name in chosen.items())
        spare = "".join(f", leave out the {role} (--{role} none)" for role in ("rating", "time") if role in chosen)
        raise InputError(
            f"Of {total:,} rows in '{path}', {missing:,} lack a value and {unparsable:,} cannot be parsed, which is "
            f"more than the allowed {max_bad_share:.0%}; {_first_fault(parsed, chosen)}. Check the columns "
            f"({columns}){spare}, or raise --max-bad-share."
        )


def _first_fault(parsed: pl.LazyFrame, chosen: Mapping[str, str]) -> str:
    """Return what is wrong with the first bad row, for an error message."""
    bad = parsed.with_row_index("row", offset=1).filter(~pl.col("good") & ~pl.col("blank")).head(1).collect()
    row = bad.row(0, named=True)
    for role in chosen:
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
