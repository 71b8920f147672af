"""Tables in memory: whatever speaks Arrow's PyCapsule interface (polars, pandas, pyarrow, DuckDB) as a polars frame."""

import re
from typing import Any, Protocol, runtime_checkable

import polars as pl

from recfusion.core.errors import InputError

_INDEX = re.compile(r"__index_level_\d+__")  # what pandas calls an index without a name
_REFUSALS = (
    ValueError,
    TypeError,
    NotImplementedError,
    pl.exceptions.PolarsError,
)  # pyarrow's errors are the first three


@runtime_checkable
class ArrowStream(Protocol):
    """A table that can be handed over without a copy."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


def as_frame(table: object) -> pl.DataFrame:
    """Return any table that exports an Arrow stream; unnamed indexes of pandas are left out, named ones are columns."""
    if isinstance(table, pl.DataFrame):
        return table
    if not isinstance(table, ArrowStream):
        raise InputError(
            "Expected a table in memory such as those of polars, pandas, pyarrow or DuckDB (with __arrow_c_stream__), "
            f"got {type(table).__name__}."
        )
    try:
        try:
            found = pl.from_arrow(table)
        except _REFUSALS:
            found = pl.from_arrow(_without_mixtures(table))
    except _REFUSALS as error:
        brief = ", ".join(map(str, error.args)).partition("\n")[0].rstrip(".")
        raise InputError(f"Cannot take the {type(table).__name__} as a table: {brief}; convert it first.") from None
    if isinstance(found, pl.Series):
        if not isinstance(found.dtype, pl.Struct):
            raise InputError(f"Expected a table with named columns, got one column of {found.dtype}.")
        found = found.struct.unnest()
    return found.drop(name for name in found.columns if _INDEX.fullmatch(name))


def _without_mixtures(table: Any) -> Any:
    """Return a frame of pandas with text instead of columns of numbers and texts, as Excel sheets give them.

    Arrow refuses such columns; in a text file they are texts.
    """
    mixed = []
    for name, kind in table.dtypes.items() if hasattr(table, "astype") else ():
        try:
            pl.from_arrow(table[[name]] if kind == "object" else pl.DataFrame())
        except _REFUSALS:
            mixed.append(name)
    return table.astype(dict.fromkeys(mixed, str)) if mixed else table
