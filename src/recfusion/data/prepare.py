"""Prepares raw rows into a binary matrix, in counted steps: duplicates, rating threshold, rare users, rare items."""

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, IntArray, binary_csr
from recfusion.core.errors import InputError
from recfusion.data import given
from recfusion.data.column_roles import column_roles, parse_roles
from recfusion.data.interactions import Interactions, PreparationStep, RawData
from recfusion.data.options import Preparation
from recfusion.data.purchases import earlier_purchases, repeated_rows
from recfusion.data.rating_scale import Scale, adds_up, changed_scale
from recfusion.data.reading.ids import parse_ids
from recfusion.data.rows import Rows, check_row_count, drop_duplicates, encode_rows

LATEST = "one row per user and item (the latest, then the highest rating)"
ADDED = "one row per user and item (numbers added up, returns taken off)"
FUTURE = "times in the future"  # the start of the note about such rows
_MUCH = 0.1  # larger shares are worth a note


def prepare(raw: RawData, preparation: Preparation | None = None) -> Interactions:
    """Return the interactions of `raw` after the steps of `preparation`."""
    choices = preparation or Preparation()
    if raw.rows.is_empty():
        raise InputError(f"Expected interactions in '{raw.name}', got no usable row: check the file and its columns.")
    check_row_count(raw.rows.height, raw.name)
    rows, user_ids, item_ids = encode_rows(raw.rows, raw.ids)
    raw = replace(raw, rows=raw.rows.clear())  # frees memory
    late = 0 if rows.time is None else int(np.count_nonzero(rows.time > time.time()))
    steps = [PreparationStep("rows as read", len(user_ids), len(item_ids), len(rows.user))]

    column = raw.report.columns.get("rating")
    lowest = 0.0 if rows.rating is None else float(rows.rating.min())
    added = adds_up(column, lowest) and rows.rating is not None
    returned = 0 if rows.rating is None or not added else int((rows.rating < 0).sum())
    rows.order()
    if rows.part is not None:
        choices = given.unfiltered(choices)
        given.check_disjoint(rows, user_ids, item_ids)
    # Several ratings of an item are no purchases.
    repeated = repeated_rows(rows) if rows.time is not None and (added or rows.rating is None) else None
    drop_duplicates(rows, added=added)
    steps.append(rows.step(ADDED if added else LATEST))
    scale = Scale.of(rows.rating, column, added=added)
    threshold = resolve_min_rating(choices.min_rating, scale, raw.name)
    changed = [] if added else changed_scale(rows.rating, rows.time)
    below = None
    if threshold is not None and rows.rating is not None:
        below = rows.subset(rows.rating < np.float32(threshold))
        rows.keep(rows.rating >= np.float32(threshold))
        steps.append(rows.step(f"rating at least {threshold:g}"))
    steps.extend(_filter_rare(rows, choices))
    if choices.even_items and np.count_nonzero(rows.per_item) % 2:
        rarest = np.flatnonzero(rows.per_item == rows.per_item[rows.per_item > 0].min())
        rows.keep(rows.item != rarest[-1])  # of several the one with the largest id
        steps.append(rows.step("even number of items (least popular one dropped)"))
    made = [*preparation_notes(choices, threshold, scale, steps, returned=returned, late=late), *changed]
    if not len(rows.user):
        raise nothing_left(raw.name, steps, made)

    user_kept, item_kept = np.flatnonzero(rows.per_user), np.flatnonzero(rows.per_item)
    indptr = np.concatenate([[0], np.cumsum(rows.per_user[user_kept])])
    has_rows = rows.per_item > 0
    item_column = rows.item if has_rows.all() else (np.cumsum(has_rows, dtype=np.int32) - np.int32(1))[rows.item]
    disliked, disliked_times = _disliked(below, user_kept, item_kept)
    items = item_ids[item_kept].alias("item")
    users = user_ids[user_kept].alias("user")
    item_table, item_notes = _described(items, raw.items)
    if raw.source.roles is not None:
        column_roles(item_table, parse_roles(raw.source.roles))  # raises for a wrong column
    user_table, user_notes = (None, []) if raw.users is None else _described(users, raw.users)
    matrix = binary_csr(indptr, item_column, len(item_kept))
    unknown = () if rows.part is None else given.unknown_notes(matrix, rows.part)
    notes = (*raw.report.notes, *made, *item_notes, *user_notes, *unknown)
    earlier = None if repeated is None else earlier_purchases(repeated, rows)
    return Interactions(
        name=raw.name,
        matrix=matrix,
        users=users,
        items=items,
        item_table=item_table,
        times=rows.time,
        grades=rows.rating,
        parts=rows.part,
        disliked=disliked,
        disliked_times=disliked_times,
        user_table=user_table,
        source=raw.source,
        preparation=choices.model_copy(update={"min_rating": threshold}),
        steps=tuple(steps),
        report=replace(raw.report, notes=notes),
        licence=raw.licence,
        citation=raw.citation,
        all_items=None if raw.source.items is None else raw.items,
        items_time=raw.items_time,
        earlier=earlier if earlier is not None and len(earlier[0]) else None,
    )


def resolve_min_rating(asked: float | Literal["auto"] | None, scale: Scale | None, name: str = "") -> float | None:
    """Return the like threshold, for "auto" that of the scale; raise if the data `name` has no ratings for it."""
    if asked == "auto":
        return None if scale is None else scale.liked
    if asked is not None and scale is None:
        raise InputError(f"A rating of at least {asked:g} is requested, but '{name}' has no ratings.", "min_rating")
    return asked


def nothing_left(name: str, steps: Sequence[PreparationStep], notes: Iterable[str]) -> InputError:
    """Return the error for a preparation that left no row, with the notes about it."""
    trail = "; ".join(f"{step.step}: {step.interactions:,}" for step in steps)
    why = "".join(f" {note[0].upper()}{note[1:]}." for note in notes)
    return InputError(
        f"No interactions of '{name}' are left after preparation ({trail}): lower the rating threshold, the minimum "
        f"items per user or the minimum users per item.{why}"
    )


def preparation_notes(
    asked: Preparation,
    threshold: float | None,
    scale: Scale | None,
    steps: Sequence[PreparationStep],
    *,
    returned: int,
    late: int,
) -> Iterator[str]:
    """Yield the notes about a preparation: its `steps`, rows with numbers below 0, and rows with future times."""
    rows = steps[0].interactions

    def lost(step: str, what: str = "interactions") -> int:
        return sum(getattr(a, what) - getattr(b, what) for a, b in itertools.pairwise(steps) if b.step.startswith(step))

    repeated, disliked = lost("one row per user and item") / rows, lost("rating at least") / rows
    if repeated > _MUCH:
        yield f"{_share(repeated)} of the rows repeat a user and an item; one of each counts"
    if asked.min_rating == "auto" and scale is not None:
        yield scale.sentence(threshold, _share(disliked))
        yield from scale.doubts()
    elif disliked > _MUCH:
        yield f"{_share(disliked)} of the rows are rated below {threshold:g} and dropped: --min-rating none keeps them"
    for kind, other, least in (
        ("users", "items", asked.min_items_per_user),
        ("items", "users", asked.min_users_per_item),
    ):
        before = next(getattr(a, kind) for a, b in itertools.pairwise(steps) if b.step.startswith(kind))
        rare, gone = lost(f"{kind} with", kind) / max(before, 1), lost(f"{kind} with") / rows
        if max(rare, gone) > _MUCH:
            yield (
                f"{_share(rare)} of the {kind} ({_share(gone)} of the rows) had fewer than {least} {other} and were "
                f"dropped: --min-{other}-per-{kind[:-1]} 1 keeps them"
            )
    if returned:
        yield (
            f"{returned:,} rows have a number below 0 and count as returns: they cancel purchases of the user and "
            "item, and never count as interactions"
        )
    if late:
        yield f"{FUTURE}, which come last in their histories: {late:,} of the rows; check the column"


def _share(part: float) -> str:
    return "under 1%" if 0 < part < 0.005 else f"{part:.0%}"


def _filter_rare(rows: Rows, choices: Preparation) -> list[PreparationStep]:
    """Drop rare users, then rare items; once, or until nothing changes."""
    steps: list[PreparationStep] = []
    for round_number in itertools.count(1):
        before = len(rows.user)
        again = f" (round {round_number})" if round_number > 1 else ""
        rows.keep_users(rows.per_user >= choices.min_items_per_user)
        users_step = rows.step(f"users with at least {choices.min_items_per_user} items{again}")
        rows.keep_items(rows.per_item >= choices.min_users_per_item)
        if round_number > 1 and len(rows.user) == before:
            break
        steps += [users_step, rows.step(f"items with at least {choices.min_users_per_item} users{again}")]
        if not choices.k_core:
            break
    return steps


def _disliked(rows: Rows | None, users: IntArray, items: IntArray) -> tuple[Csr | None, NDArray[np.int64] | None]:
    """Return the rows below the threshold over the remaining users and items, and their times."""
    if rows is None or rows.rating is None:
        return None, None
    row, column = np.full(rows.n_users, -1, np.int32), np.full(rows.n_items, -1, np.int32)
    row[users], column[items] = np.arange(len(users)), np.arange(len(items))
    rows.keep((row[rows.user] >= 0) & (column[rows.item] >= 0))
    indptr = np.concatenate([[0], np.cumsum(rows.per_user[users])]).astype(np.int32)
    parts = (rows.rating, column[rows.item], indptr)
    return (csr_array(parts, shape=(len(users), len(items))), rows.time) if len(rows.user) else (None, None)


def _described(ids: pl.Series, described: pl.DataFrame | None) -> tuple[pl.DataFrame, list[str]]:
    """Return one row per id, in order, joined with the table `described`, and a note if it lacks some ids."""
    table, kind = ids.to_frame(), ids.name
    if described is None:
        return table, []
    known = described.with_columns(parse_ids(described[kind], ids.dtype)).unique(kind, keep="first")
    count = ids.is_in(known[kind].implode()).sum()
    if kind == "user" and not count:
        raise InputError("Expected the same user ids in the user file, got others: correct the ids.", "users_file")
    if not count:
        raise InputError(
            f"Expected ids of items in the item file such as '{str(ids[0])[:40]}', got others such as "
            f"'{str(described[kind][0])[:40]}': correct them, or name the column of the interactions with the same ids "
            "with --item.",
            "items",
        )
    notes = [f"the {kind} file describes {count:,} of {len(ids):,} {kind}s"] if count < len(ids) else []
    return table.join(known, on=kind, how="left", maintain_order="left"), notes
