"""Parses cells into ids, ratings and times, by polars expressions."""

from collections.abc import Iterable, Mapping
from numbers import Integral, Real

import polars as pl

from recfusion.core.errors import InputError
from recfusion.data.reading.columns import ROLES
from recfusion.data.reading.text_lines import EXTRA_FIELD

_ABSENT = ("", "NA", "N/A", "<NA>", "null", "NULL", "NaN", "nan", "None")
_INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"
# 15 digits are exact as floats. An exponent needs a sign or a fraction, as programs write it: 1e5 is a product code.
_NUMBER = r"^-?(0|[1-9][0-9]{0,14})(\.[0-9]+([eE][+-]?[0-9]+)?|[eE][+-][0-9]+)?$"
_NO_ID = "[\0\r\n\ufffd]"  # not UTF-8, or a line break
_EXACT = 2**53  # beyond it, floats skip whole numbers
_DATES = ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M")


def parse_rows(
    frame: pl.LazyFrame, *, decimal_comma: bool, lone_users: bool, seconds: pl.Expr | None = None
) -> pl.LazyFrame:
    """Add "{role} given" (not empty), "{role} value" (parsed), and the flags blank, missing, unparsable and good.

    `seconds` is the result of `time_form` on the first rows. The stages are separate so that no text is parsed twice.
    Columns that exist already (see `IdEncoder`) are kept.
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
    whole = pl.col(EXTRA_FIELD).is_null()
    roles = [role for role in ROLES if role in typed.collect_schema()]
    all_given = pl.all_horizontal(pl.col(f"{role} given").is_not_null() for role in roles)
    none_given = pl.all_horizontal(pl.col(f"{role} given").is_null() for role in roles)
    good = pl.all_horizontal(pl.col(f"{role} value").is_not_null() for role in roles)
    lone = pl.lit(lone_users) & pl.col("user value").is_not_null() & pl.col("item given").is_null()
    flags = {"blank": none_given, "missing": ~all_given & ~none_given & ~lone, "good": good | lone}
    flagged = typed.with_columns(**{name: flag & whole for name, flag in flags.items()})
    return flagged.with_columns(unparsable=~pl.any_horizontal("good", "missing", "blank"))


def time_form(frame: pl.LazyFrame) -> pl.Expr | None:
    """Return how the column `time`, if there is one, becomes seconds; the first rows decide for the whole table."""
    given, kinds = _with_given(frame)
    return _to_seconds(given, kinds["time"]) if "time" in kinds else None


def _with_given(frame: pl.LazyFrame) -> tuple[pl.LazyFrame, dict[str, pl.DataType]]:
    schema = frame.collect_schema()
    kinds = {role: dtype for role, dtype in schema.items() if role in ROLES and f"{role} given" not in schema}
    return frame.with_columns(given_cell(role, dtype).alias(f"{role} given") for role, dtype in kinds.items()), kinds


def is_typed(role: str, dtype: pl.DataType) -> bool:
    """Return whether a column can be used as it is; all others are read as text."""
    if role == "rating":
        return dtype.is_numeric() or dtype == pl.Boolean
    if role == "time":
        return dtype.is_numeric() or dtype.is_temporal()
    return dtype.is_float() or (dtype.is_integer() and dtype not in (pl.UInt64, pl.Int128, pl.UInt128))


def given_cell(role: str, dtype: pl.DataType) -> pl.Expr:
    """Return the column with null for everything that means "no value"."""
    if is_typed(role, dtype):
        return pl.col(role).fill_nan(None) if dtype.is_float() else pl.col(role)
    text = pl.col(role).cast(pl.String).str.strip_chars()
    return pl.when(~text.is_in(_ABSENT)).then(text)


def _identifier(role: str, dtype: pl.DataType) -> pl.Expr:
    """Return the ids: whole numbers as integers, texts unchanged if they are UTF-8."""
    given = pl.col(f"{role} given")
    if dtype.is_float():
        return pl.when((given == given.round()) & (given.abs() < _EXACT)).then(given).cast(pl.Int64)
    if is_typed(role, dtype):
        return given.cast(pl.Int64)
    return pl.when(~given.str.contains(_NO_ID)).then(given)


def parse_texts(texts: pl.Series) -> pl.DataFrame:
    """Return of each text its id (`ids`, null for none), whether it is not empty (`given`), and if it was `trimmed`."""
    given, kinds = _with_given(texts.alias("item").to_frame().lazy())
    found = given.with_columns(_identifier("item", kinds["item"]).alias("ids"))
    trimmed = (pl.col("ids") != pl.col("item")).fill_null(False)
    return found.select("ids", pl.col("item given").is_not_null().alias("given"), trimmed.alias("trimmed")).collect()


def whole_numbers(ids: pl.Series) -> pl.Series:
    """Return ids as integers if all are whole numbers in canonical form; else unchanged."""
    return ids.cast(pl.Int64) if ids.str.contains(_INTEGER).all() else ids


def parse_ids(values: pl.Series | Iterable[object], like: pl.DataType) -> pl.Series:
    """Return values as ids of type `like`, parsed as the reader of files parses the same cells; null for no id.

    If ids are whole numbers, the text "318.0" means 318, as the number 318.0 does: programs write such texts if a
    column has gaps.
    """
    if not isinstance(values, pl.Series):
        values = pl.Series([_id_text(value) for value in values], dtype=pl.String)
    kind = values.dtype
    if kind.is_nested() or kind in (pl.Boolean, pl.Binary, pl.Object, pl.Time, pl.Duration):
        raise _not_an_id(kind)
    given, kinds = _with_given(values.alias("item").to_frame().lazy())
    ids = given.select(_identifier("item", kinds["item"])).collect().to_series()
    if like.is_integer() and ids.dtype == pl.String:
        texts = ids.str.replace(r"\.0+$", "")
        ids = texts.set(~texts.str.contains(_INTEGER), None)
    return ids.cast(like, strict=False).alias(values.name)


def _id_text(value: object) -> str | None:
    """Return an id as it would stand in a text file."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, Integral | Real):
        raise _not_an_id(type(value).__name__)
    if isinstance(value, Integral):
        return str(int(value))
    number = float(value)
    return str(int(number)) if number.is_integer() and abs(number) < _EXACT else None


def _not_an_id(kind: object) -> InputError:
    return InputError(f"Expected ids that are whole numbers or texts, got {kind}: convert them first.")


def number_column(column: pl.Series, *, decimal_comma: bool) -> pl.Series:
    """Return a column of texts as integers or floats if all cells are numbers, else unchanged."""
    cells = column.alias("item").to_frame().select(given_cell("item", column.dtype)).to_series()
    if decimal_comma:
        cells = cells.str.replace(",", ".", literal=True)
    if cells.null_count() == len(cells):
        return column
    for pattern, kind in ((_INTEGER, pl.Int64), (_NUMBER, pl.Float64)):
        if cells.str.contains(pattern).all():
            return cells.cast(kind).alias(column.name)
    return column


def _to_seconds(frame: pl.LazyFrame, dtype: pl.DataType) -> pl.Expr:
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
        *(_parse_datetime(given, form) for form in _DATES),
        given.str.to_date("%Y-%m-%d", strict=False).cast(pl.Datetime("us")).dt.epoch("s"),
    ]
    # Trying every form on every row is slow, and most files use one.
    head = frame.select("time given").head(1000).collect()
    fits = [form for form in forms if head.select(form.is_not_null().all()).item()]
    return fits[0] if fits else pl.coalesce(forms)


def _parse_datetime(given: pl.Expr, form: str) -> pl.Expr:
    """Return seconds from date texts; seconds may have a fraction."""
    plain = given.str.to_datetime(form, strict=False).dt.epoch("s")
    if not form.endswith("%S"):
        return plain
    # Parsing fractions is several times slower, so it is tried only on rows that do not fit the plain form.
    rest = pl.when(plain.is_null()).then(given).str.to_datetime(f"{form}%.f", strict=False).dt.epoch("s")
    return pl.coalesce(plain, rest)


def row_notes(facts: Mapping[str, int]) -> list[str]:
    """Return notes for the protocol card about trimmed ids and empty rows."""
    trimmed = {role: facts.get(f"{role} trimmed") for role in ("user", "item")}
    found = [f"blanks around {count:,} {role} ids were removed" for role, count in trimmed.items() if count]
    return found + [f"{facts['blank']:,} empty rows were skipped"] * bool(facts["blank"])
