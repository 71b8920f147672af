"""How cells become ids, ratings and times: expressions that the rows of any engine can be put through."""

from collections.abc import Iterable, Mapping
from numbers import Integral, Real

import polars as pl

from recfusion.core.errors import InputError
from recfusion.data.reading.columns import ROLES
from recfusion.data.reading.text_lines import EXTRA

_ABSENT = ("", "NA", "N/A", "<NA>", "null", "NULL", "NaN", "nan", "None")
_INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"
# 15 digits are exact as floats. An exponent must have a sign or follow a fraction, as programs write it: 1e5 is a code.
_NUMBER = r"^-?(0|[1-9][0-9]{0,14})(\.[0-9]+([eE][+-]?[0-9]+)?|[eE][+-][0-9]+)?$"
_NO_ID = "[\0\r\n\ufffd]"  # what was no UTF-8, and what would make two lines of one
_EXACT = 2**53  # beyond it, floats skip whole numbers
_DATES = ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M")


def parse_rows(
    frame: pl.LazyFrame, *, decimal_comma: bool, lone_users: bool, seconds: pl.Expr | None = None
) -> pl.LazyFrame:
    """Add what each role's column gives and its value as typed, and the flags blank, missing, unparsable and good.

    `seconds` is what `time_form` found in the table's first rows. The stages are separate so that no text is parsed
    twice. Columns that are there already (see `Cells`) are taken as they are.
    """
    given, kinds = _with_given(frame)
    values: dict[str, pl.Expr] = {role: _identifier(role, kinds[role]) for role in kinds if role in ("user", "item")}
    if "rating" in kinds:
        number = pl.col("rating given")
        if decimal_comma:
            number = number.str.replace(",", ".", literal=True)
        number = number.cast(pl.Float32, strict=False)
        values["rating"] = pl.when(number.is_finite()).then(number)
    if seconds is not None:
        values["time"] = seconds
    typed = given.with_columns(value.alias(f"{role} value") for role, value in values.items())
    whole = pl.col(EXTRA).is_null()
    roles = [role for role in ROLES if role in typed.collect_schema()]
    all_given = pl.all_horizontal(pl.col(f"{role} given").is_not_null() for role in roles)
    none_given = pl.all_horizontal(pl.col(f"{role} given").is_null() for role in roles)
    good = pl.all_horizontal(pl.col(f"{role} value").is_not_null() for role in roles)
    lone = pl.lit(lone_users) & pl.col("user value").is_not_null() & pl.col("item given").is_null()
    flags = {"blank": none_given, "missing": ~all_given & ~none_given & ~lone, "good": good | lone}
    flagged = typed.with_columns(**{name: flag & whole for name, flag in flags.items()})
    return flagged.with_columns(unparsable=~pl.any_horizontal("good", "missing", "blank"))


def time_form(frame: pl.LazyFrame) -> pl.Expr | None:
    """Return how the column `time`, where there is one, becomes seconds: all of a table takes the form of its start."""
    given, kinds = _with_given(frame)
    return _seconds(given, kinds["time"]) if "time" in kinds else None


def _with_given(frame: pl.LazyFrame) -> tuple[pl.LazyFrame, dict[str, pl.DataType]]:
    schema = frame.collect_schema()
    kinds = {role: dtype for role, dtype in schema.items() if role in ROLES and f"{role} given" not in schema}
    return frame.with_columns(given_cell(role, dtype).alias(f"{role} given") for role, dtype in kinds.items()), kinds


def is_typed(role: str, dtype: pl.DataType) -> bool:
    """Say whether a column can be used as it is; all others are read as text."""
    if role == "rating":
        return dtype.is_numeric() or dtype == pl.Boolean
    if role == "time":
        return dtype.is_numeric() or dtype.is_temporal()
    return dtype.is_float() or (dtype.is_integer() and dtype not in (pl.UInt64, pl.Int128, pl.UInt128))


def given_cell(role: str, dtype: pl.DataType) -> pl.Expr:
    """Return the column with everything that means "no value" as null."""
    if is_typed(role, dtype):
        return pl.col(role).fill_nan(None) if dtype.is_float() else pl.col(role)
    text = pl.col(role).cast(pl.String).str.strip_chars()
    return pl.when(~text.is_in(_ABSENT)).then(text)


def _identifier(role: str, dtype: pl.DataType) -> pl.Expr:
    """Return the ids: whole numbers as integers, text as it stands if it was UTF-8."""
    given = pl.col(f"{role} given")
    if dtype.is_float():
        return pl.when((given == given.round()) & (given.abs() < _EXACT)).then(given).cast(pl.Int64)
    if is_typed(role, dtype):
        return given.cast(pl.Int64)
    return pl.when(~given.str.contains(_NO_ID)).then(given)


def parse_texts(texts: pl.Series) -> pl.DataFrame:
    """Return of each text the id that it means, null for none, whether it says anything, and whether it was trimmed."""
    given, kinds = _with_given(texts.alias("item").to_frame().lazy())
    value = given.with_columns(_identifier("item", kinds["item"]).alias("value"))
    trimmed = (pl.col("value") != pl.col("item")).fill_null(False)
    return value.select("value", pl.col("item given").is_not_null().alias("given"), trimmed.alias("trimmed")).collect()


def whole_numbers(ids: pl.Series) -> pl.Series:
    """Return ids as integers where all of them are whole numbers, each written in its one way; else as they are."""
    return ids.cast(pl.Int64) if ids.str.contains(_INTEGER).all() else ids


def parse_ids(values: pl.Series | Iterable[object], like: pl.DataType) -> pl.Series:
    """Return ids as the reader of a file makes them of the same cells, in the type `like`; null where none can be made.

    Among whole numbers the text "318.0" means 318, as the number 318.0 does: programs write numbers with gaps so.
    """
    if not isinstance(values, pl.Series):
        values = pl.Series([_id_text(value) for value in values], dtype=pl.String)
    kind = values.dtype
    if kind.is_nested() or kind in (pl.Boolean, pl.Binary, pl.Object, pl.Time, pl.Duration):
        raise _no_id(kind)
    given, kinds = _with_given(values.alias("item").to_frame().lazy())
    ids = given.select(_identifier("item", kinds["item"])).collect().to_series()
    if like.is_integer() and ids.dtype == pl.String:
        texts = ids.str.replace(r"\.0+$", "")
        ids = texts.set(~texts.str.contains(_INTEGER), None)
    return ids.cast(like, strict=False).alias(values.name)


def _id_text(value: object) -> str | None:
    """Return what a text file would hold of an id."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, Integral | Real):
        raise _no_id(type(value).__name__)
    if isinstance(value, Integral):
        return str(int(value))
    number = float(value)
    return str(int(number)) if number.is_integer() and abs(number) < _EXACT else None


def _no_id(kind: object) -> InputError:
    return InputError(f"Expected ids that are whole numbers or texts, got {kind}: convert them first.")


def number_column(column: pl.Series, *, decimal_comma: bool) -> pl.Series:
    """Return a column of texts as whole numbers or as numbers where all of them are, else as it is."""
    cells = column.alias("item").to_frame().select(given_cell("item", column.dtype)).to_series()
    if decimal_comma:
        cells = cells.str.replace(",", ".", literal=True)
    if cells.null_count() == len(cells):
        return column
    for pattern, kind in ((_INTEGER, pl.Int64), (_NUMBER, pl.Float64)):
        if cells.str.contains(pattern).all():
            return cells.cast(kind).alias(column.name)
    return column


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
        *(_moment(given, form) for form in _DATES),
        given.str.to_date("%Y-%m-%d", strict=False).cast(pl.Datetime("us")).dt.epoch("s"),
    ]
    # To try every form on every row is slow; most files use one.
    head = frame.select("time given").head(1000).collect()
    fits = [form for form in forms if head.select(form.is_not_null().all()).item()]
    return fits[0] if fits else pl.coalesce(forms)


def _moment(given: pl.Expr, form: str) -> pl.Expr:
    """Return seconds from date texts; where the form ends in seconds, they may have a fraction."""
    plain = given.str.to_datetime(form, strict=False).dt.epoch("s")
    if not form.endswith("%S"):
        return plain
    # Fractions make the parsing several times slower, so it is tried where the plain form does not fit.
    rest = pl.when(plain.is_null()).then(given).str.to_datetime(f"{form}%.f", strict=False).dt.epoch("s")
    return pl.coalesce(plain, rest)


def row_flags(parsed: pl.LazyFrame) -> dict[str, pl.Expr]:
    """Return what must be counted over all rows before they can be taken."""
    schema = parsed.collect_schema()
    flags = {flag: pl.col(flag) for flag in ("blank", "missing", "unparsable")}
    flags["rows"] = ~pl.col("blank")
    for role in ("user", "item"):
        if schema[f"{role} value"] == pl.String:
            value = pl.col(f"{role} value")
            flags[f"{role} text"] = pl.col("good") & ~value.str.contains(_INTEGER)
            flags[f"{role} trimmed"] = value != pl.col(role).cast(pl.String)
    return flags


def remarks(facts: Mapping[str, int]) -> list[str]:
    """Return what a reader of the protocol card should know of the rows."""
    trimmed = {role: facts.get(f"{role} trimmed") for role in ("user", "item")}
    found = [f"blanks around {count:,} {role} ids were removed" for role, count in trimmed.items() if count]
    return found + [f"{facts['blank']:,} empty rows were skipped"] * bool(facts["blank"])
