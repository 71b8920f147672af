"""Numbers in texts: with decimal points or commas, thousands separators and currency signs, one style per column."""

import logging
from typing import Literal

import polars as pl

from recfusion.data.reading.cells import given_text
from recfusion.data.reading.ids import INTEGER

# 15 digits are exact as floats. An exponent needs a sign or a fraction, as programs write it: 1e5 is a product code.
_PLAIN = r"^-?(0|[1-9][0-9]{0,14})(\.[0-9]+([eE][+-]?[0-9]+)?|[eE][+-][0-9]+)?$"
_CURRENCY = r"^(?:€|\$|£|EUR|USD|GBP|CHF)\s*|\s*(?:€|\$|£|EUR|USD|GBP|CHF|PLN|zł|kr)$"
_BLANKS = " '’\u00a0\u2009\u202f"
_GROUPED = {
    ",": rf"^-?(?:[0-9]{{1,3}}(?:[.{_BLANKS}][0-9]{{3}})+|0|[1-9][0-9]{{0,14}})(?:,[0-9]+)?$",
    ".": rf"^-?(?:[0-9]{{1,3}}(?:[,{_BLANKS}][0-9]{{3}})+|0|[1-9][0-9]{{0,14}})(?:\.[0-9]+)?$",
}
_NEARLY = 0.9  # a column with this share of numbers is probably meant to hold numbers
Mark = Literal[",", "."]
_log = logging.getLogger(__name__)


def number_column(column: pl.Series, *, semicolons: bool, where: str) -> pl.Series:
    """Return a column of texts as integers or floats if all cells are numbers, else unchanged."""
    cells = column.to_frame().select(given_text(pl.col(column.name))).to_series()
    if cells.null_count() == len(cells):
        return column
    for pattern, kind in ((INTEGER, pl.Int64), (_PLAIN, pl.Float64)):
        if cells.str.contains(pattern).all():
            return cells.cast(kind).alias(column.name)
    numbers = cells.to_frame().select(grouped_number(pl.col(column.name), decimal_mark(cells, semicolons=semicolons)))
    wrong = numbers.to_series().is_null() & cells.is_not_null()
    if not wrong.any():
        return numbers.to_series().alias(column.name)
    if wrong.sum() <= (1 - _NEARLY) * cells.count():
        first = str(cells.filter(wrong)[0])[:40]
        told = "The column '%s' of '%s' is read as texts, because %s of its %s cells are no numbers; the first is %r."
        _log.warning(told, column.name, where, int(wrong.sum()), cells.count(), first)
    return column


def are_numbers(cells: pl.Series, *, semicolons: bool) -> bool:
    """Return whether nearly all texts of a column are numbers."""
    pattern = _GROUPED[decimal_mark(cells, semicolons=semicolons)]
    found = cells.str.contains(_PLAIN) | cells.str.replace_all(_CURRENCY, "").str.contains(pattern)
    return bool(cells.count() and found.sum() >= _NEARLY * cells.count())


def number_form(cells: pl.Series, given: pl.Expr, kind: type[pl.DataType], *, semicolons: bool) -> pl.Expr:
    """Return how the column of texts `given`, which begins with `cells`, becomes numbers of a type."""
    mark = decimal_mark(cells, semicolons=semicolons)
    other = "." if mark == "," else ","
    if cells.str.contains(other, literal=True).any() and not cells.drop_nulls().str.contains(_PLAIN).all():
        return grouped_number(given, mark).cast(kind)  # it has thousands separators
    plain = given.str.replace(",", ".", literal=True) if semicolons else given
    plain = plain.cast(kind, strict=False)
    return pl.coalesce(plain, grouped_number(pl.when(plain.is_null()).then(given), mark).cast(kind))


def decimal_mark(cells: pl.Series, *, semicolons: bool) -> Mark:
    """Return the decimal mark of a column: the one by which more cells are numbers, else the file's."""
    own: Mark = "," if semicolons else "."
    bare = cells.str.replace_all(_CURRENCY, "")
    counts = {mark: bare.str.contains(pattern).sum() for mark, pattern in _GROUPED.items()}
    return own if counts[","] == counts["."] else "," if counts[","] > counts["."] else "."


def grouped_number(cells: pl.Expr, mark: Mark) -> pl.Expr:
    """Return texts such as 1.208,06 or 1,208.06 as numbers; null for others."""
    text = cells.str.replace_all(_CURRENCY, "")
    digits = text.str.replace_all(rf"[{_BLANKS}{'.' if mark == ',' else ','}]", "").str.replace(mark, ".", literal=True)
    return pl.when(text.str.contains(_GROUPED[mark])).then(digits).cast(pl.Float64, strict=False)
