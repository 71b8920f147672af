"""Rows as they were read, before any preparation: what every reader returns."""

from dataclasses import dataclass, field

import polars as pl

from recfusion.data.settings import Source


@dataclass(frozen=True)
class ReadReport:
    """What the reader saw: which columns it took, and how many rows it had to leave out."""

    rows: int
    columns: dict[str, str] = field(default_factory=dict)  # role (user, item, rating, time) -> column in the file
    missing: int = 0  # rows without a user, an item or (where the file has them) a rating or a time
    unparsable: int = (
        0  # rows whose rating or time is no number or date, or with too many fields, and lines whose quotes do not pair
    )
    notes: tuple[str, ...] = ()  # what else a reader of the protocol card should know
    blank: int = 0  # empty rows, which are not counted as rows; with them, every line of a text file is accounted for


@dataclass(frozen=True)
class RawData:
    """Interactions as read: one row each, in the file's order.

    `rows` has the columns `user` and `item` (integers, or strings exactly as they stand in the file) and, where the
    file has them, `rating` (Float32) and `time` (Int64, seconds since 1970). `items` has one row per item: the column
    `item` and any others (title, genres, ...).
    """

    name: str
    rows: pl.DataFrame
    items: pl.DataFrame | None
    report: ReadReport
    licence: str = ""
    citation: str = ""
    source: Source = field(default_factory=Source)
