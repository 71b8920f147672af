"""The history of a known user: the rows of the histories file, the events and the entries of the request."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recfusion.data.protocol import Protocol
from recfusion.data.rating_scale import adds_up
from recfusion.inference.bundle import Bundle
from recfusion.inference.histories import check_times, is_liked, lowest_liked
from recfusion.inference.request import Entry, parse_history
from recfusion.models.abilities import lowest_rating
from recfusion.server.event_store import Store
from recfusion.server.known_users import KnownUsers

Rows = list[dict[str, Any]]  # entries with item and, where they are known, rating and time


def merged_history(
    store: Store, user: str, given: Sequence[Entry], bundle: Bundle, users: KnownUsers
) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """Return a user's history, and returned items that no list may have.

    Each purchase is an entry; those of the request replace others of their items. A model that reads ratings gets
    returned items as dislikes.
    """
    graded, timed = "grades" in bundle.protocol.signals.used, bundle.reads_times
    if timed:
        check_times(given)
    events = store.user_items(user)
    merged: dict[str, Rows] = {}  # of each item, in the order of their last entries
    for entry in [] if store.is_forgotten(user) else users.of(user):
        if entry["item"] not in events.returned:
            merged[entry["item"]] = [*merged.pop(entry["item"], []), entry]
    returned = {item for item, own in merged.items() if not graded and not _is_kept(own, bundle.protocol)}
    merged = {item: own for item, own in merged.items() if item not in returned}
    if graded:
        lowest = lowest_rating(bundle.model)
        merged |= {item: [{"item": item, "rating": lowest, "time": t}] for item, t in events.returned.items()}
    for item, times in events.have.items():
        merged[item] = [*merged.pop(item, []), *({"item": item, "time": when} for when in times)]
    asked: Rows = [{"item": one} if isinstance(one, str) else one.model_dump() for one in given]
    named = {entry["item"] for entry in asked}
    known = [entry for item, own in merged.items() if item not in named for entry in own]
    if not graded:
        known = [entry for entry in known if entry.get("rating") is None or entry["rating"] > 0]
    keys = ["item"] + ["rating"] * graded + ["time"] * timed
    rows = [*({key: entry.get(key) for key in keys} for entry in known), *asked]
    if timed:
        _complete_times(rows)
    plain = not (graded or timed) and all(isinstance(one, str) for one in given)
    history = tuple(dict.fromkeys(row["item"] for row in rows)) if plain else parse_history(rows)
    returned = (returned | events.returned.keys()) - named - events.have.keys()
    return history, () if graded else tuple(returned)


def _is_kept(entries: Sequence[Mapping[str, Any]], protocol: Protocol) -> bool:
    """Return whether a user has an item by the rows of the histories file; counts are added up, minus returns."""
    ratings = [lowest_liked(protocol) if (one := entry.get("rating")) is None else one for entry in entries]
    total = sum(ratings) if adds_up(protocol.read.columns.get("rating"), 0.0) else max(ratings)
    return bool(is_liked(np.array(total, np.float32), protocol))


def _complete_times(rows: Rows) -> None:
    """Let a row without a time follow a second after the newest row before it, if any row has a time."""
    newest = -1
    for row in rows if any(row.get("time") is not None for row in rows) else ():
        row["time"] = newest + 1 if row.get("time") is None else int(row["time"])
        newest = max(newest, row["time"])
