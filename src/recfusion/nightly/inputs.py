"""Reads the orders of a shop with the events of its service, without the customers to forget."""

from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from recfusion.data.catalog import CATALOG
from recfusion.data.interactions import RawData
from recfusion.data.load import is_prepared, load, read
from recfusion.data.merge import decoded, merge_events, raw_rows
from recfusion.data.options import Source
from recfusion.data.reading.database import is_database, read_database
from recfusion.server.event_reports import purchases_and_returns
from recfusion.server.event_store import Store


@dataclass(frozen=True)
class Inputs:
    """The rows of a night, and the number of customers who asked to be forgotten."""

    raw: RawData
    events: int = 0  # purchases and returns
    forgotten: int = 0


def database_rows(source: Source) -> pl.DataFrame | None:
    """Return the rows of orders in a database; None for files."""
    return read_database(source.data, source.query) if is_database(source.data) else None


def read_inputs(
    source: Source, events: Path | None = None, forget: Collection[str] = (), orders: pl.DataFrame | None = None
) -> Inputs:
    """Read files of orders and the events of a service; `orders` stand for the files if they come from a database.

    Rows of the users `forget`, and of those that the event store has forgotten, are left out.
    """
    raw = _read(source, orders)
    if events is None:
        return Inputs(_without(raw, set(forget)), forgotten=len(set(forget)))
    with closing(Store(events, create=False)) as store:
        rows = purchases_and_returns(store)
        digests = {digest for (digest,) in store.rows("SELECT user FROM forgotten")} | {store.digest(u) for u in forget}
        merged = decoded(merge_events(raw, rows))
        users = merged.rows["user"].cast(pl.String).unique()
        gone = {user for user in users if store.digest(user) in digests} if digests else set()
    return Inputs(_without(merged, gone), len(rows), len(digests))


def _read(source: Source, orders: pl.DataFrame | None) -> RawData:
    if orders is not None:
        return read(source.model_copy(update={"data": source.label, "query": None}), orders)
    if source.data not in CATALOG and is_prepared(Path(source.data)):
        return raw_rows(load(source))
    return read(source)


def _without(raw: RawData, users: Collection[str]) -> RawData:
    """Return the rows of the other users, with a note about how many were left out."""
    if not users:
        return raw
    raw = decoded(raw)
    rows = raw.rows.filter(~pl.col("user").cast(pl.String).is_in(list(users)))
    if not (dropped := len(raw.rows) - len(rows)):
        return raw
    note = f"{dropped:,} rows of forgotten users left out"
    return replace(raw, rows=rows, report=replace(raw.report, notes=(*raw.report.notes, note)))
