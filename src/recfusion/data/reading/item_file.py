"""Reads tables about items or users, one row each; unlike interactions, quoted texts may go over several lines."""

import csv
import io
import logging
from pathlib import Path

import polars as pl
import polars.selectors as cs

from recfusion.core.errors import InputError
from recfusion.core.memory import require_memory
from recfusion.data.reading.columns import guess_columns, list_names
from recfusion.data.reading.formats import Table, open_table, table_errors
from recfusion.data.reading.text_lines import BROKEN, EXTRA_FIELD, TextLayout, line_blocks
from recfusion.data.reading.values import given_cell, number_column

_log = logging.getLogger(__name__)


def read_items(
    table: Path | pl.DataFrame, item: str | None, separator: str | None = None, *, role: str = "item"
) -> pl.DataFrame:
    """Return a table of items, one row each, with its id column named `item`; or of users, for the role "user"."""
    found = open_table(table, separator, f"frame of {role}s")
    where = found.where
    if not found.has_names:
        raise InputError(f"Expected a header in the {role} file '{where}', got none: add one that names its columns.")
    plain = next((column for column in found.columns if column.lower() == "id"), None)
    try:
        asked = {role: item if item in found.columns else plain}
        column = guess_columns(found.columns, asked, where=f"'{where}'", by_position=False)[role]
    except InputError:
        raise InputError(
            f"Expected a column '{item or role}' with the ids in the {role} file '{where}', which has: "
            f"{list_names(found.columns)}; rename the one that holds them.",
            role,
        ) from None
    with table_errors(where):
        frame = _item_rows(found).rename({role: f"{role}_2", column: role}, strict=False)
        ids = given_cell(role, frame.schema[role])
        items = frame.select(role, pl.exclude(role)).with_columns(ids, (cs.float() - cs.by_name(role)).fill_nan(None))
    if items.is_empty():
        raise InputError(f"Expected a row per {role} in '{where}', got none.")
    described = items.drop_nulls(role).unique(role, keep="first", maintain_order=True)
    if len(described) < len(items):
        counts = len(items) - len(described), len(items)
        _log.warning("Left out %s of %s rows in '%s', which repeat or lack the id of the %s.", *counts, where, role)
    if found.layout is None:  # its columns have types
        return described
    return described.with_columns(
        number_column(column, decimal_comma=found.decimal_comma) for column in described.drop(role)
    )


def _item_rows(table: Table) -> pl.DataFrame:
    nothing = pl.DataFrame(schema=dict.fromkeys((*table.columns, EXTRA_FIELD), pl.String))
    rows = pl.concat(list(table.batches(table.columns)) or [nothing])
    if isinstance(table.source, Path) and table.layout is not None:
        broken = rows[EXTRA_FIELD].str.starts_with(BROKEN).fill_null(False)
        over_lines = _multi_line_rows(table.source, table.layout) if broken.any() else None
        if over_lines is not None:
            return over_lines
        if broken.any():
            line = table.layout.skip_lines + (broken.arg_max() or 0) + 1
            _log.warning(
                "Left out %s lines of '%s' with double quotes that are not closed or stand inside a quoted field; the "
                "first is line %s.",
                *(broken.sum(), table.where, line),
            )
            rows = rows.filter(~broken)
        longer = rows[EXTRA_FIELD].count()
        if longer:
            _log.warning("Left out the surplus fields of %s rows of '%s', beyond its header.", longer, table.where)
    return rows.drop(EXTRA_FIELD)


def _multi_line_rows(path: Path, layout: TextLayout) -> pl.DataFrame | None:
    """Return the rows of a text with quoted fields over several lines; None if its quotes do not pair."""
    text = b"".join(line_blocks(path, layout.skip_lines)).decode("utf-8", errors="replace")
    if len(layout.separator) > 1:
        return None
    require_memory(20 * len(text), f"Reading texts over several lines in '{path}'", "convert it to Parquet first.")
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
