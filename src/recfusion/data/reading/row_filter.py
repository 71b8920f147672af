"""The condition on the rows that are read, in the language of conditions on items."""

from dataclasses import dataclass

import polars as pl
import polars.selectors as cs

from recfusion.core.errors import InputError
from recfusion.data.conditions import parse_condition
from recfusion.data.reading.cells import given_text
from recfusion.data.reading.numbers import are_numbers, number_form
from recfusion.data.reading.table import Table
from recfusion.data.reading.times import find_dates
from recfusion.data.reading.values import KEPT


@dataclass(frozen=True)
class RowFilter:
    """A condition on the columns of a table; the first rows decide which texts are numbers or dates."""

    condition: pl.Expr
    cells: dict[str, pl.Expr]  # column -> its cells with their type

    @classmethod
    def of(cls, condition: str, head: pl.DataFrame, table: Table, date_format: str | None) -> "RowFilter":
        """Return the filter of a condition on a table that begins with the rows `head`."""
        cells: dict[str, pl.Expr] = {}
        schema: dict[str, pl.DataType] = {}
        for name in table.columns:
            cells[name], schema[name] = cs.by_name(name).as_expr(), head[name].dtype
            if head[name].dtype == pl.String and name in condition:
                cells[name], schema[name] = _typed(name, head[name], table, date_format)
        try:
            met = parse_condition(condition, pl.Schema(schema), f"table '{table.where}'")
        except InputError as error:
            raise InputError(f"--rows: {error}", "rows") from None
        used = set(met.meta.root_names())
        return cls(met, {name: cell for name, cell in cells.items() if name in used})

    def met(self, rows: pl.DataFrame) -> pl.Series:
        """Return which rows meet the condition; null for those that do not and lack one of its cells."""
        given = rows.select(cs.by_name(*self.cells)).with_columns(given_text(cs.string()))
        typed = given.select(cell.alias(name) for name, cell in self.cells.items())
        absent = pl.any_horizontal(pl.col(list(self.cells)).is_null())
        met = self.condition.fill_null(False)
        return typed.select(pl.when(met | ~absent).then(met).alias(KEPT)).to_series()


def _typed(name: str, head: pl.Series, table: Table, date_format: str | None) -> tuple[pl.Expr, pl.DataType]:
    """Return how a column of texts becomes numbers or dates, if nearly all first cells are, and the type of these."""
    texts, given = head.to_frame().select(given_text(cs.string())).to_series(), cs.by_name(name).as_expr()
    if are_numbers(texts, semicolons=table.semicolons):
        return number_form(texts, given, pl.Float64, semicolons=table.semicolons), pl.Float64()
    form = find_dates(name, texts, date_format)
    if form is not None:
        return pl.from_epoch(form.seconds).cast(pl.Datetime("us")), pl.Datetime("us")
    return given, pl.String()
