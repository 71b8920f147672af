"""Ids: one id function for the cells of files and frames, and for the values of requests, events and deletions."""

import re
from collections.abc import Iterable
from numbers import Integral, Real

import polars as pl

from recfusion.core.errors import InputError
from recfusion.data.reading.cells import is_typed, with_given

INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"
_WHOLE_FLOAT = r"^(0|-?[1-9][0-9]*)\.0+$"  # as programs write whole numbers if a column has gaps
_LARGE_FLOAT = r"^-?[0-9]+(\.[0-9]+)?[eE]\+[0-9]+$"  # of more digits than a program shows; 1e5 is a product code
_NO_ID = "[\0\r\n\ufffd]"  # a line break, or bytes in another encoding
_EXACT = 2**53  # beyond it, floats skip whole numbers, so several of them may have become one
_BLANKS = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"  # noqa: E501


def id_text(value: object) -> str | None:
    """Return the one text of an id, equal for 318, 318.0 and " 318 "; None for no id."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | Integral | Real):
        raise _not_an_id(type(value).__name__)
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real) and not isinstance(value, str):
        number = float(value)
        return str(int(number)) if number.is_integer() and abs(number) < _EXACT else None
    text = str(value).strip(_BLANKS)
    if found := re.match(_WHOLE_FLOAT, text):
        return found[1] if abs(int(found[1])) < _EXACT else None
    return None if not text or re.match(_LARGE_FLOAT, text) or re.search(_NO_ID, text) else text


def identifier(role: str, dtype: pl.DataType) -> pl.Expr:
    """Return the ids of the column "{role} given": whole numbers as integers, or the texts of `id_text`."""
    given = pl.col(f"{role} given")
    if dtype.is_float():
        return pl.when((given == given.round()) & (given.abs() < _EXACT)).then(given).cast(pl.Int64)
    if is_typed(role, dtype):
        return given.cast(pl.Int64)
    whole = given.str.extract(_WHOLE_FLOAT)
    exact = pl.when(whole.cast(pl.Int64, strict=False).abs() < _EXACT).then(whole)
    plain = pl.when(~given.str.contains(_NO_ID) & ~given.str.contains(_LARGE_FLOAT)).then(given)
    return pl.when(whole.is_null()).then(plain).otherwise(exact)


def parse_texts(texts: pl.Series) -> pl.DataFrame:
    """Return of each text its id (`ids`, null for none), whether it is not empty (`given`), and if it was `trimmed`."""
    given, kinds = with_given(texts.alias("item").to_frame().lazy())
    found = given.with_columns(identifier("item", kinds["item"]).alias("ids"))
    trimmed = (pl.col("ids").is_not_null() & (pl.col("item given") != pl.col("item"))).fill_null(False)
    return found.select("ids", pl.col("item given").is_not_null().alias("given"), trimmed.alias("trimmed")).collect()


def whole_numbers(ids: pl.Series) -> pl.Series:
    """Return ids as integers if all are whole numbers in canonical form; else unchanged."""
    return ids.cast(pl.Int64) if ids.str.contains(INTEGER).all() else ids


def parse_ids(values: pl.Series | Iterable[object], like: pl.DataType) -> pl.Series:
    """Return values as ids of type `like`, parsed as the reader of files parses the same cells; null for no id."""
    if not isinstance(values, pl.Series):
        values = pl.Series([id_text(value) for value in values], dtype=pl.String)
    kind = values.dtype
    if kind.is_nested() or kind in (pl.Boolean, pl.Binary, pl.Object, pl.Time, pl.Duration):
        raise _not_an_id(kind)
    given, kinds = with_given(values.alias("item").to_frame().lazy())
    ids = given.select(identifier("item", kinds["item"])).collect().to_series()
    if like.is_integer() and ids.dtype == pl.String:
        ids = ids.set(~ids.str.contains(INTEGER), None)
    return ids.cast(like, strict=False).alias(values.name)


def parse_table_ids(ids: pl.Series) -> pl.Series:
    """Return a column of ids with null for what is no id: integers if it holds numbers, else texts."""
    return parse_ids(ids, pl.Int64() if is_typed("item", ids.dtype) else pl.String())


def _not_an_id(kind: object) -> InputError:
    return InputError(f"Expected ids that are whole numbers or texts, got {kind}: convert them first.")
