"""Stored events as tables: rows for retraining, or everything."""

import polars as pl

from recfusion.server.event_kinds import Standing
from recfusion.server.event_store import Store


def purchases_and_returns(store: Store) -> pl.DataFrame:
    """Return user, item, quantity (below 0 for a return) and time of the events that change what users have.

    A return without a quantity takes back all units that the events brought, or one.
    """
    found: dict[tuple[str, str], Standing] = {}
    rows = []
    query = "SELECT user, item, kind, time, quantity FROM events ORDER BY id"
    schema = {"user": pl.String, "item": pl.String, "quantity": pl.Float64, "time": pl.Int64}
    with store.undamaged():
        for user, item, kind, when, quantity in store.rows(query):
            own = found.setdefault((user, item), Standing())
            before = own.quantity
            if own.add(store.weights.get(kind, 0.0), when, quantity):
                taken = (before or 1.0) if quantity is None else quantity
                rows.append((user, item, own.quantity - before if own.quantity > before else -taken, int(when)))
        return pl.DataFrame(rows, schema=schema, orient="row")


def all_rows(store: Store) -> pl.DataFrame:
    """Return all events as they were recorded."""
    query = "SELECT user, item, time, kind, recommendation, quantity, price FROM events ORDER BY id"
    schema = {"user": pl.String, "item": pl.String, "time": pl.Float64, "kind": pl.String}
    schema |= {"recommendation_id": pl.String, "quantity": pl.Float64, "price": pl.Float64}
    with store.undamaged():
        rows = pl.DataFrame(store.rows(query), schema=schema, orient="row")
        return rows.with_columns(pl.col("time").cast(pl.Int64))
