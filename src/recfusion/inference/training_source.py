"""How to read a table like the orders of a model: the same columns, condition on rows, encoding and dates."""

import logging
from pathlib import Path

import polars as pl

from recfusion.data.conditions import named_columns
from recfusion.data.options import Source
from recfusion.data.reading.formats import open_table
from recfusion.inference.bundle import Bundle

log = logging.getLogger(__name__)
_CHOICES = ("user", "item", "rating", "time", "rows", "separator", "encoding", "date_format")


def source_as_trained(bundle: Bundle, table: Path | pl.DataFrame, asked: Source) -> Source:
    """Return how to read a table: as `asked`, and in all else like the orders of the model.

    A table without the model's columns of users and items is of another form: its columns are guessed.
    """
    own, columns = bundle.protocol.source, bundle.protocol.read.columns
    layout = {name: getattr(asked, name) or getattr(own, name) for name in ("separator", "encoding")}
    there = {*open_table(table, layout["separator"], "frame", layout["encoding"]).columns}
    chosen = {name: value for name in _CHOICES if (value := getattr(asked, name)) is not None}
    like_training: dict[str, str | None] = {"date_format": own.date_format}
    same_form = {columns.get(role, role) for role in ("user", "item") if role not in chosen} <= there
    if same_form:
        like_training |= layout | {role: name for role, name in columns.items() if name in there}
        like_training |= {"rating": "none"} if own.rating == "none" else {}
    if own.rows is not None and "rows" not in chosen:
        if same_form and {*named_columns(own.rows)} <= there:
            like_training["rows"] = own.rows
        else:
            name = table.name if isinstance(table, Path) else "frame"
            log.warning("%s has other columns than the orders of the model: all its rows count.", name)
    return asked.model_copy(update=like_training | chosen)
