"""Values that columns of the item table can hold, and columns with some of their values changed."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

_EXACT = 2**53  # larger whole numbers lose digits in a column of floats


def fits(kind: pl.DataType, value: Any) -> bool:
    """Return whether a column of this type can hold a JSON value; whole numbers may become floats."""
    if value is None:
        return True
    if isinstance(value, bool):
        return kind == pl.Boolean
    if isinstance(value, str):
        return kind == pl.String or (kind.is_temporal() and _converts(kind, value))
    if isinstance(value, float) and kind.is_integer():
        return abs(value) < _EXACT and _converts(kind, math.floor(value)) and _converts(kind, math.ceil(value))
    return isinstance(value, int | float) and kind.is_numeric() and _converts(kind, value)


def _converts(kind: pl.DataType, value: str | float) -> bool:
    """Return whether polars converts a value to a type without loss of its range."""
    try:
        found = pl.Series([value], dtype=kind, strict=True)
    except (OverflowError, TypeError, ValueError, pl.exceptions.PolarsError):
        return False
    return not found.has_nulls() and (not kind.is_float() or bool(found.is_finite().all()))


def expected_value(kind: pl.DataType) -> str:
    """Return what a column of this type can hold, in words."""
    if kind.is_integer():
        low, high = pl.select(pl.lit(0, kind).lower_bound(), pl.lit(0, kind).upper_bound().alias("high")).row(0)
        return f"a number from {low} to {high}"
    if kind.is_numeric():
        return "a number in the range of the column's type"
    if kind.is_temporal():
        return f"an ISO text of a {kind.base_type().__name__.lower()}"
    words = {pl.String: "a text", pl.Boolean: "true or false"}
    return words.get(kind.base_type(), f"nothing else ({kind} cannot be changed)")


def changed_column(series: pl.Series, changed: Mapping[int, Any]) -> pl.Series:
    """Return a column with new values at some places; a price of 3 may become one of 2.5."""
    kind, values = series.dtype, list(changed.values())
    if kind.is_integer():
        values = [int(one) if isinstance(one, float) and one.is_integer() else one for one in values]
        if any(isinstance(one, float) for one in values):
            series, kind = series.cast(pl.Float64), pl.Float64()
    new = pl.Series(series.name, values, dtype=kind, strict=True)
    places = np.arange(len(series))
    places[list(changed)] = len(series) + np.arange(len(changed))
    return pl.concat([series, new]).gather(places)
