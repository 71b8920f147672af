"""Merges the orders of a shop with the events of its service."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import polars as pl

from recfusion.data.interactions import Interactions, RawData
from recfusion.data.rating_scale import Scale, adds_up
from recfusion.data.reading.ids import parse_ids

_DAY = 86400
_PAIR = ["user", "item"]


def decoded(raw: RawData) -> RawData:
    """Return a table with ids instead of codes."""
    rows = raw.rows.with_columns(ids.gather(raw.rows[role]).alias(role) for role, ids in raw.ids.items())
    return replace(raw, rows=rows, ids={})


def entry_rows(data: Interactions, part: slice = slice(None)) -> pl.DataFrame:
    """Return the stored entries of prepared interactions with their ids, and ratings and times if there are any."""
    entries = np.arange(*part.indices(data.n_interactions))
    rows = np.searchsorted(data.matrix.indptr, entries, side="right") - 1
    columns = {"user": data.users.gather(rows.astype(np.uint32))}
    columns["item"] = data.items.gather(data.matrix.indices[part].astype(np.uint32))
    columns |= {} if data.grades is None else {"rating": pl.Series(data.grades[part])}
    columns |= {} if data.times is None else {"time": pl.Series(data.times[part])}
    return pl.DataFrame(columns)


def raw_rows(data: Interactions) -> RawData:
    """Return prepared interactions as a table that can be prepared again."""
    return RawData(data.name, entry_rows(data), data.item_table, data.report, data.licence, data.citation, data.source)


def merge_events(orders: RawData, events: pl.DataFrame) -> RawData:
    """Return the orders with the events of a service: user, item, quantity (below 0 for a return) and time.

    If the orders have quantities, those of the events are added. Without numbers, each order counts as one, and a user
    does not have an item that was returned as often as it was bought. Among ratings, a purchase has the lowest rating
    that counts as liked, and a return one that does not count. An event that the orders have, too (same user, item and
    day), counts once.
    """
    if events.is_empty():
        return orders
    orders = decoded(orders)
    rows, column = orders.rows, orders.report.columns.get("rating")
    rating = None if "rating" not in rows.columns else rows["rating"].to_numpy()
    counts = rating is not None and adds_up(column, float(rating.min()))
    given = events.with_columns(**{role: _ids(events[role], rows[role]) for role in _PAIR}, sign=pl.col("quantity") > 0)
    known = rows.with_columns(
        *(rows[role].cast(given[role].dtype) for role in _PAIR), sign=pl.col("rating") > 0 if counts else pl.lit(True)
    )
    new = _without_orders(given, known)
    if rating is None:
        both = pl.concat([known.with_columns(quantity=pl.lit(1.0)), new.cast({"quantity": pl.Float64})], how="diagonal")
        owned = pl.col("quantity").sum().over(_PAIR) > 0
        merged = replace(orders, rows=both.filter(owned & pl.col("sign")).select(rows.columns))
    else:
        values = pl.col("quantity")
        if not counts:
            scale = Scale.of(rating, column)
            assert scale is not None
            low = 1.0 if scale.kind in ("stars", "tenths") else 0.0
            values = pl.when("sign").then(pl.lit(scale.liked or scale.high)).otherwise(pl.lit(low))
        merged = _joined(orders, new.with_columns(rating=values.cast(pl.Float32)).select(rows.columns))
    return replace(merged, report=replace(orders.report, notes=(*orders.report.notes, *_notes(given, new))))


def _ids(given: pl.Series, like: pl.Series) -> pl.Series:
    """Return the ids of events as those of the orders, or as texts if some are no whole numbers."""
    found = parse_ids(given, like.dtype)
    return parse_ids(given, pl.String()) if found.null_count() else found


def _without_orders(events: pl.DataFrame, orders: pl.DataFrame) -> pl.DataFrame:
    """Return the events that are not also an order of the same user, item, sign and day."""
    numbered, keys = events.with_row_index("event"), [*_PAIR, "sign"]
    timed = "time" in orders.columns
    same = numbered.join(orders.select(*keys, *(["time"] * timed)), on=keys, suffix=" ordered")
    if timed:  # dates without a time of day may be of another time zone
        same = same.filter((pl.col("time") - pl.col("time ordered")).abs() <= _DAY)
    return numbered.filter(~pl.col("event").is_in(same["event"].implode())).drop("event")


def _joined(first: RawData, other: pl.DataFrame) -> RawData:
    """Return a table with more rows; ids are texts if those of one table are."""
    one, two = first.rows, other.select(first.rows.columns)
    for role in _PAIR:
        kinds = {one.schema[role], two.schema[role]}
        kind = pl.String() if pl.String() in kinds else pl.Int64()
        one, two = (table.with_columns(pl.col(role).cast(kind)) for table in (one, two))
    return replace(first, rows=pl.concat([one, two], how="vertical_relaxed"))


def _notes(events: pl.DataFrame, new: pl.DataFrame) -> Iterator[str]:
    returns, twice = len(new) - int(new["sign"].sum()), len(events) - len(new)
    users = new["user"].n_unique()
    yield f"events added to the orders: {len(new):,} of {users:,} users, returns among them: {returns:,}"
    if twice:
        yield f"events that are also in the orders (same user, item and day) and count once: {twice:,}"
