"""Cells of a table: which columns are used with their types, and which cells mean "no value"."""

import polars as pl

from recfusion.data.reading.columns import ROLES

_ABSENT = ("", "NA", "N/A", "<NA>", "null", "NULL", "NaN", "nan", "None")


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
    return given_text(pl.col(role).cast(pl.String))


def given_text(cells: pl.Expr) -> pl.Expr:
    """Return stripped texts; texts that mean "no value" become null."""
    text = cells.str.strip_chars()
    return pl.when(~text.is_in(_ABSENT)).then(text)


def with_given(frame: pl.LazyFrame) -> tuple[pl.LazyFrame, dict[str, pl.DataType]]:
    """Add "{role} given" for each role that lacks it; return the frame and the types of these roles."""
    schema = frame.collect_schema()
    kinds = {role: dtype for role, dtype in schema.items() if role in ROLES and f"{role} given" not in schema}
    return frame.with_columns(given_cell(role, dtype).alias(f"{role} given") for role, dtype in kinds.items()), kinds
