"""Reading a user's own table of interactions: CSV, TSV, Parquet or JSON lines, with every bad row counted."""

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from recfusion.core.errors import InputError
from recfusion.data.raw import RawData, ReadReport
from recfusion.data.sniff import guess_columns, sniff_text

_EXTRA = "\x00extra"  # a column that only rows with too many fields fill
_ABSENT = ("", "null", "NULL", "NaN", "nan", "None")
_INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"
_SUFFIXES = "csv, tsv, txt, dat (also .gz), parquet, jsonl, ndjson"


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

    Rows without a user, item or rating, and rows that cannot be parsed, are counted and left out; more of them than
    `max_bad_share` is an error.
    """
    path = Path(path)
    asked = {"user": user, "item": item, "rating": rating, "time": time}
    table = _scan(path, separator)
    chosen = guess_columns(table.columns, asked, where=f"'{path}'", by_position=not table.named)
    guessed = [f"{role} = {name}" for role, name in chosen.items() if asked[role] is None]
    notes = [table.note] * bool(table.note) + [f"columns guessed: {', '.join(guessed)}"] * bool(guessed)

    roles = [pl.col(name).alias(role) for role, name in chosen.items()]
    strings = table.frame.select(*roles, pl.col(_EXTRA))
    try:
        parsed, id_notes = _parse(strings, list(chosen), decimal_comma=table.decimal_comma)
        rows = parsed.collect(engine="streaming")
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(f"Cannot read '{path}' as a table: {_first_line(error)}") from None
    total = len(rows)
    missing, unparsable = int(rows["missing"].sum()), int(rows["unparsable"].sum())
    report = ReadReport(total, chosen, missing, unparsable, tuple(notes + id_notes))
    if not total:
        raise InputError(f"Expected rows of interactions in '{path}', got a header and nothing below it.")
    if (missing + unparsable) > max_bad_share * total:
        raise InputError(
            f"Of {total:,} rows in '{path}', {missing:,} lack a value and {unparsable:,} cannot be parsed "
            f"({_example(strings, rows)}), which is more than the allowed {max_bad_share:.0%}: "
            f"check the columns ({', '.join(f'{role} = {name}' for role, name in chosen.items())}) or raise "
            "--max-bad-share."
        )
    good = rows.filter(~pl.col("missing") & ~pl.col("unparsable")).select(list(chosen))
    return RawData(path.name, good, None, report)


def read_items(path: Path, item: str | None, separator: str | None = None) -> pl.DataFrame:
    """Return a table of items (titles, genres, ...) with its id column renamed to `item`."""
    table = _scan(Path(path), separator)
    if not table.named:
        raise InputError(f"Expected a header in the item file '{path}', got none: add one that names its columns.")
    asked = {"item": item if item in table.columns else None}
    name = guess_columns(table.columns, asked, where=f"'{path}'", by_position=False)["item"]
    try:
        items = table.frame.select(table.columns).collect(engine="streaming").rename({name: "item"})
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(f"Cannot read '{path}' as a table of items: {_first_line(error)}") from None
    return items.select("item", pl.exclude("item")).drop_nulls("item")


def _scan(path: Path, separator: str | None) -> _Table:
    if not path.is_file():
        raise InputError(f"There is no file '{path}': name a data set of the catalog or a file of interactions.")
    if path.stat().st_size == 0:
        raise InputError(f"Expected rows of interactions in '{path}', got an empty file.")
    kind = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"][-1:]
    try:
        if kind == [".parquet"] or kind in ([".jsonl"], [".ndjson"]):
            frame = pl.scan_parquet(path) if kind == [".parquet"] else pl.scan_ndjson(path, infer_schema_length=None)
            columns = frame.collect_schema().names()
            return _Table(frame.with_columns(pl.lit(None, pl.String).alias(_EXTRA)), columns)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(f"Cannot read '{path}' as {kind[0][1:]}: {_first_line(error)}") from None
    if kind not in ([".csv"], [".tsv"], [".txt"], [".dat"], [".data"], [".tab"]):
        raise InputError(f"Cannot tell what kind of table '{path}' is from its name: use one of {_SUFFIXES}.")
    layout = sniff_text(path, separator)
    frame = pl.scan_csv(
        path,
        separator=layout.separator,
        has_header=False,
        skip_lines=int(layout.header),
        schema=dict.fromkeys((*layout.columns, _EXTRA), pl.String),
        truncate_ragged_lines=True,
        missing_columns="insert",
        encoding="utf8-lossy",
        raise_if_empty=False,
    )
    note = f"separator {layout.separator!r}, {'with' if layout.header else 'without'} a header"
    return _Table(frame, list(layout.columns), layout.header, layout.separator == ";", note)


def _parse(frame: pl.LazyFrame, roles: list[str], *, decimal_comma: bool) -> tuple[pl.LazyFrame, list[str]]:
    """Return the typed frame with the flags `missing` and `unparsable`, and notes on the ids."""
    schema = frame.collect_schema()
    notes: list[str] = []
    typed: dict[str, pl.Expr] = {}
    absent: list[pl.Expr] = []
    broken = [pl.col(_EXTRA).is_not_null()]
    for role in ("user", "item"):
        typed[role], note = _identifier(frame, role, schema[role])
        notes.extend(note)
        absent.append(typed[role].is_null())
    if "rating" in roles:
        source = _text_or_null("rating", schema["rating"])
        text = source.str.replace(",", ".", literal=True) if decimal_comma and schema["rating"] == pl.String else source
        typed["rating"] = text.cast(pl.Float32, strict=False)
        absent.append(source.is_null())
        broken.append(source.is_not_null() & (typed["rating"].is_null() | ~typed["rating"].is_finite()))
    if "time" in roles:
        source = _text_or_null("time", schema["time"])
        typed["time"] = _seconds(source, schema["time"])
        broken.append(typed["time"].is_null())
    is_missing = pl.any_horizontal(absent)
    is_broken = pl.any_horizontal(broken)
    columns = [expression.alias(role) for role, expression in typed.items()]
    return frame.select(
        *columns,
        is_missing.fill_null(True).alias("missing"),
        (is_broken.fill_null(True) & ~is_missing).alias("unparsable"),
    ), notes


def _identifier(frame: pl.LazyFrame, role: str, dtype: pl.DataType) -> tuple[pl.Expr, list[str]]:
    """Return the column of ids: integers where every id is one without loss, else text as it stands."""
    column = pl.col(role)
    if dtype.is_integer():
        return column.cast(pl.Int64), []
    if dtype.is_float():
        finite = column.is_finite() & (column == column.round())
        return pl.when(finite).then(column).cast(pl.Int64), []
    text = _text_or_null(role, dtype)
    facts = (
        frame.select(
            integer=text.str.contains(_INTEGER).all(),
            blanks=(text != pl.col(role).cast(pl.String)).sum(),
            lossy=text.str.contains("\ufffd", literal=True).sum(),
        )
        .collect(engine="streaming")
        .row(0, named=True)
    )
    notes = []
    if facts["blanks"]:
        notes.append(f"blanks around {facts['blanks']:,} {role} ids were removed")
    if facts["lossy"]:
        notes.append(f"{facts['lossy']:,} {role} ids are not UTF-8 text; bytes that cannot be read became '\ufffd'")
    return (text.cast(pl.Int64) if facts["integer"] else text), notes


def _text_or_null(role: str, dtype: pl.DataType) -> pl.Expr:
    if dtype not in (pl.String, pl.Categorical, pl.Enum):
        return pl.col(role)
    text = pl.col(role).cast(pl.String).str.strip_chars()
    return pl.when(~text.is_in(_ABSENT)).then(text)


def _seconds(column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Return seconds since 1970 from numbers (seconds, milli-, micro- or nanoseconds), dates or date texts."""
    if dtype.is_temporal():
        return column.cast(pl.Datetime("us")).dt.epoch("s")
    number = column.cast(pl.Float64, strict=False)
    for limit, divisor in ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3)):
        number = pl.when(number.abs() >= limit).then(number / divisor).otherwise(number)
    seconds = number.floor().cast(pl.Int64, strict=False)
    if dtype.is_numeric():
        return seconds
    date = pl.coalesce(
        column.str.to_datetime("%+", strict=False, time_zone="UTC").dt.replace_time_zone(None),
        column.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", strict=False),
        column.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", strict=False),
        column.str.to_datetime("%Y-%m-%d %H:%M", strict=False),
        column.str.to_date("%Y-%m-%d", strict=False).cast(pl.Datetime("us")),
    )
    return pl.coalesce(seconds, date.dt.epoch("s"))


def _example(strings: pl.LazyFrame, rows: pl.DataFrame) -> str:
    """Return what the first bad row holds, for an error message."""
    place = int((rows["missing"] | rows["unparsable"]).arg_max() or 0)
    row = strings.drop(_EXTRA).slice(place, 1).collect().row(0, named=True)
    values = ", ".join(f"{role} {'nothing' if value is None else repr(value)}" for role, value in row.items())
    return f"row {place + 1} has {values}"


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return (text[0] if text else type(error).__name__).rstrip(".") + "."
