"""Reading what is known of the items: titles, genres and other columns, one row each; texts may go over lines."""

import csv
import io
import logging
from pathlib import Path

import polars as pl
import polars.selectors as cs

from recfusion.core.errors import InputError
from recfusion.core.memory import require_memory
from recfusion.data.lines import BROKEN, EXTRA, TextLayout, line_blocks
from recfusion.data.parsing import given_cell, number_column
from recfusion.data.sniff import guess_columns, listed
from recfusion.data.tables import Table, open_table, table_errors

_log = logging.getLogger(__name__)


def read_items(
    table: Path | pl.DataFrame, item: str | None, separator: str | None = None, *, name: str = "frame of items"
) -> pl.DataFrame:
    """Return a table of items (titles, genres, ...), one row each, with its id column renamed to `item`.

    A quoted text may hold line feeds here, as descriptions do; rows that cannot be used are counted in the log.
    """
    found = open_table(table, separator, name)
    where = found.where
    if not found.named:
        raise InputError(f"Expected a header in the item file '{where}', got none: add one that names its columns.")
    plain = next((column for column in found.columns if column.lower() == "id"), None)
    try:
        asked = {"item": item if item in found.columns else plain}
        column = guess_columns(found.columns, asked, where=f"'{where}'", by_position=False)["item"]
    except InputError:
        raise InputError(
            f"Expected a column '{item or 'item'}' with the ids in the item file '{where}', which has: "
            f"{listed(found.columns)}; rename the one that holds them."
        ) from None
    with table_errors(where):
        frame = _rows(found).rename({"item": "item_2", column: "item"}, strict=False)
        ids = given_cell("item", frame.schema["item"])
        items = frame.select("item", pl.exclude("item")).with_columns(
            ids, (cs.float() - cs.by_name("item")).fill_nan(None)
        )
    if items.is_empty():
        raise InputError(f"Expected a row per item in '{where}', got none.")
    described = items.drop_nulls("item").unique("item", keep="first", maintain_order=True)
    if len(described) < len(items):
        counts = (len(items) - len(described), len(items))
        _log.warning("%s of %s rows in '%s' repeat an item or lack its id and are left out.", *counts, where)
    if found.layout is None:  # its columns have types of their own
        return described
    return described.with_columns(
        number_column(column, decimal_comma=found.decimal_comma) for column in described.drop("item")
    )


def _rows(table: Table) -> pl.DataFrame:
    nothing = pl.DataFrame(schema=dict.fromkeys((*table.columns, EXTRA), pl.String))
    rows = pl.concat([batch.collect() for batch in table.batches(table.columns)] or [nothing])
    if isinstance(table.source, Path) and table.layout is not None:
        broken = rows[EXTRA].str.starts_with(BROKEN).fill_null(False)
        over_lines = _records(table.source, table.layout) if broken.any() else None
        if over_lines is not None:
            return over_lines
        if broken.any():
            line = table.layout.skip_lines + (broken.arg_max() or 0) + 1
            _log.warning(
                "%s lines of '%s' have double quotes that are not closed, or stand inside a quoted field, and are left "
                "out; the first is line %s.",
                *(broken.sum(), table.where, line),
            )
            rows = rows.filter(~broken)
        longer = rows[EXTRA].count()
        if longer:
            _log.warning("%s rows of '%s' have more fields than its header; those are left out.", longer, table.where)
    return rows.drop(EXTRA)


def _records(path: Path, layout: TextLayout) -> pl.DataFrame | None:
    """Return the rows of a text whose quoted fields go over several lines; None where its quotes do not pair."""
    text = b"".join(line_blocks(path, layout.skip_lines)).decode("utf-8", errors="replace")
    if len(layout.separator) > 1:
        return None
    require_memory(20 * len(text), f"Reading '{path}', whose texts go over lines,", "convert it to Parquet first.")
    lines = io.StringIO(text.replace("\r\n", "\n").replace("\r", " "), newline="")
    width = len(layout.columns)
    try:
        rows = [row for row in csv.reader(lines, delimiter=layout.separator, strict=True) if row]
    except csv.Error:
        return None
    if any(len(row) > width for row in rows):
        return None
    filled = ([cell or None for cell in row] + [None] * (width - len(row)) for row in rows)
    return pl.DataFrame(list(filled), schema=dict.fromkeys(layout.columns, pl.String), orient="row")
