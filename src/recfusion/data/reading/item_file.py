"""Reads tables about items or users, one row each; unlike interactions, quoted texts may go over several lines."""

import csv
import io
import logging
from pathlib import Path

import polars as pl
import polars.selectors as cs

from recfusion.core.errors import InputError
from recfusion.core.memory import require_memory
from recfusion.data.options import Source
from recfusion.data.reading.cells import given_text
from recfusion.data.reading.columns import guess_columns, list_names
from recfusion.data.reading.formats import open_table, table_errors
from recfusion.data.reading.ids import parse_ids, parse_table_ids
from recfusion.data.reading.numbers import number_column
from recfusion.data.reading.table import Table
from recfusion.data.reading.text_lines import BROKEN, EXTRA_FIELD, TextLayout, line_blocks
from recfusion.data.reading.times import date_column

_log = logging.getLogger(__name__)


def read_items(
    table: Path | pl.DataFrame,
    item: str | None,
    separator: str | None = None,
    *,
    role: str = "item",
    source: Source | None = None,
    known: pl.Series | None = None,
) -> pl.DataFrame:
    """Return a table of items, one row each, with its id column named `item`; or of users, for the role "user".

    `item` is the name of the ids in the interactions. If the table has no such column and none that is named like one,
    it is the column with most of the ids `known`. `source` has the encoding and the form of dates, if they are given.
    """
    source = source or Source()
    found = open_table(table, separator, f"frame of {role}s", source.encoding)
    where = found.where
    if not found.has_names:
        raise InputError(f"Expected a header in the {role} file '{where}', got none: add one that names its columns.")
    with table_errors(where):
        rows = _item_rows(found)
        column = _id_column(rows, item, role, where, known)
        frame = rows.rename({role: f"{role}_2", column: role}, strict=False)
        items = frame.select(parse_table_ids(frame[role]), pl.exclude(role)).with_columns(
            (cs.float() - cs.by_name(role)).fill_nan(None)
        )
    if items.is_empty():
        raise InputError(f"Expected a row per {role} in '{where}', got none.")
    described = items.drop_nulls(role).unique(role, keep="first", maintain_order=True)
    if lost := items[role].null_count():
        _log.warning("Left out %s of %s rows in '%s', which lack the id of the %s.", lost, len(items), where, role)
    if repeated := len(items) - lost - len(described):
        first = items[role].filter(items[role].is_duplicated() & items[role].is_not_null())[0]
        example = f" (such as {str(first)[:40]})" * (role == "item")  # a user's id may be somebody's address
        told = "Left out %s of %s rows in '%s', which repeat the id of the %s%s: the first row of each counts."
        _log.warning(told, repeated, len(items), where, role, example)
    if found.layout is None:  # its columns have types
        return described
    return described.with_columns(_typed(column, found, source.date_format) for column in described.drop(role))


def _typed(column: pl.Series, table: Table, date_format: str | None) -> pl.Series:
    """Return a column of texts as numbers or dates if all its cells are."""
    numbers = number_column(column, semicolons=table.semicolons, where=table.where)
    if numbers.dtype != pl.String:
        return numbers
    given = column.to_frame().select(given_text(cs.by_name(column.name))).to_series()
    dates = date_column(given, date_format)
    return column if dates.dtype == pl.String else dates


def _id_column(rows: pl.DataFrame, item: str | None, role: str, where: str, known: pl.Series | None) -> str:
    """Return the column with the ids: by its name, or the one with most of the known ids."""
    plain = next((column for column in rows.columns if column.lower() == "id"), None)
    try:
        asked = {role: item if item in rows.columns else plain}
        return guess_columns(rows.columns, asked, where=f"'{where}'", by_position=False)[role]
    except InputError:
        shares = {} if known is None else {name: _share_known(rows[name], known) for name in rows.columns}
        best = max(shares, key=lambda name: shares[name], default=None)
        if best is not None and shares[best] > 0:
            _log.warning("The column '%s' of '%s' has the ids of the %ss.", best, where, role)
            return best
        raise InputError(
            f"Expected a column '{item or role}' with the ids in the {role} file '{where}', which has: "
            f"{list_names(rows.columns)}; rename the one that holds them.",
            role,
        ) from None


def _share_known(column: pl.Series, known: pl.Series) -> float:
    """Return the share of the distinct cells of a column that are known ids."""
    try:
        ids = parse_ids(column, known.dtype).drop_nulls().unique()
    except InputError:  # lists or bytes
        return 0.0
    return float(ids.is_in(known.implode()).mean() or 0.0) if len(ids) else 0.0  # type: ignore[arg-type]


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
    text = b"".join(line_blocks(path, layout.skip_lines, encoding=layout.encoding)).decode("utf-8", errors="replace")
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
