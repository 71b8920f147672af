"""From raw rows to a binary matrix, by reported steps: duplicates, rating threshold, rare users, rare items.

What a preparation assumed and dropped is said in notes that tell how to choose otherwise.
"""

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, IntArray, binary_csr
from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions, PreparationStep, RawData
from recfusion.data.parsing import parse_ids
from recfusion.data.scale import Scale, adds_up
from recfusion.data.settings import Preparation

Codes: TypeAlias = NDArray[np.int32]  # places among the sorted ids
LATEST = "one row per user and item (the latest, then the highest rating)"
ADDED = "one row per user and item (numbers added up, returns taken off)"
MOST_ROWS = 2**31  # places of entries in a matrix are numbers of 32 bits
FUTURE = "times in the future"  # how the note of such rows begins
_MUCH = 0.1  # a share that a user should know of


@dataclass
class _Rows:
    """The rows under preparation as parallel arrays."""

    user: Codes
    item: Codes
    rating: NDArray[np.float32] | None
    time: NDArray[np.int64] | None

    def keep(self, where: NDArray[np.bool_] | IntArray) -> None:
        self.user, self.item = self.user[where], self.item[where]
        self.rating = None if self.rating is None else self.rating[where]
        self.time = None if self.time is None else self.time[where]

    def part(self, where: NDArray[np.bool_]) -> "_Rows":
        """Return some of the rows, apart."""
        found = replace(self)
        found.keep(where)
        return found

    def step(self, name: str) -> PreparationStep:
        return PreparationStep(name, _distinct(self.user), _distinct(self.item), len(self.user))


def prepare(raw: RawData, preparation: Preparation | None = None) -> Interactions:
    """Return the binary matrix of `raw` after the steps of `preparation`, each of them counted."""
    choices = preparation or Preparation()
    if raw.rows.is_empty():
        raise InputError(f"Expected interactions in '{raw.name}', got no usable row: check the file and its columns.")
    if raw.rows.height >= MOST_ROWS:
        raise InputError(
            f"Expected fewer than {MOST_ROWS:,} rows on one machine, got {raw.rows.height:,} in '{raw.name}': prepare "
            "them with `recfusion spark prepare`."
        )
    user, user_ids = id_codes(raw.rows["user"])
    item, item_ids = id_codes(raw.rows["item"])
    rows = _Rows(user, item, _numbers(raw, "rating", np.float32), _numbers(raw, "time", np.int64))
    steps = [PreparationStep("rows as read", len(user_ids), len(item_ids), len(user))]

    column = raw.report.columns.get("rating")
    lowest = 0.0 if rows.rating is None else float(rows.rating.min())
    added = adds_up(column, lowest) and rows.rating is not None
    returned = 0 if rows.rating is None or not added else int((rows.rating < 0).sum())
    _drop_duplicates(rows, len(item_ids), added=added)
    steps.append(rows.step(ADDED if added else LATEST))
    scale = Scale.of(rows.rating, column, added=added)
    threshold = resolve_min_rating(choices.min_rating, scale)
    below = None
    if threshold is not None:
        if rows.rating is None:
            raise InputError(f"A rating of at least {threshold:g} is asked for, but '{raw.name}' has no ratings.")
        below = rows.part(rows.rating < np.float32(threshold))
        rows.keep(rows.rating >= np.float32(threshold))
        steps.append(rows.step(f"rating at least {threshold:g}"))
    steps.extend(_filter_rare(rows, choices))
    if choices.even_items and _distinct(rows.item) % 2:
        rows.keep(rows.item != _least_popular(rows.item))
        steps.append(rows.step("even number of items (least popular one dropped)"))
    if not len(rows.user):
        trail = "; ".join(f"{step.step}: {step.interactions:,}" for step in steps)
        raise InputError(
            f"No interactions of '{raw.name}' are left after preparation ({trail}): "
            "lower the rating threshold, the minimum items per user or the minimum users per item."
        )

    rows.keep(np.argsort(_pair_key(rows, len(item_ids))))
    user_kept, user_row = _compact(rows.user, len(user_ids))
    item_kept, item_column = _compact(rows.item, len(item_ids))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(user_row, minlength=len(user_kept)))])
    disliked, disliked_times = _disliked(below, user_kept, item_kept, len(user_ids), len(item_ids))
    items = item_ids[item_kept].alias("item")
    users = user_ids[user_kept].alias("user")
    item_table, item_notes = _described(items, raw.items)
    user_table, user_notes = (None, []) if raw.users is None else _described(users, raw.users)
    late = int((raw.rows["time"] > time.time()).sum()) if "time" in raw.rows.columns else 0
    doubts = (*return_notes(returned), *time_notes(late))
    notes = (*raw.report.notes, *preparation_notes(choices, threshold, scale, steps), *doubts, *item_notes, *user_notes)
    return Interactions(
        name=raw.name,
        matrix=binary_csr(indptr, item_column, len(item_kept)),
        users=users,
        items=items,
        item_table=item_table,
        times=rows.time,
        grades=rows.rating,
        disliked=disliked,
        disliked_times=disliked_times,
        user_table=user_table,
        source=raw.source,
        preparation=choices.model_copy(update={"min_rating": threshold}),
        steps=tuple(steps),
        report=replace(raw.report, notes=notes),
        licence=raw.licence,
        citation=raw.citation,
    )


def id_codes(ids: pl.Series) -> tuple[Codes, pl.Series]:
    """Return each id's place among the sorted distinct ids, and those ids.

    Sorted order does not depend on the order of the rows, so equal data gives equal matrices.
    """
    if ids.dtype.is_integer():
        numbers = ids.cast(pl.Int64).to_numpy()
        low, high = int(numbers.min()), int(numbers.max())
        if high - low < 4 * len(numbers) + 1024:  # a table of the range is far cheaper than a sort
            present = np.zeros(high - low + 1, bool)
            present[numbers - low] = True
            codes = np.cumsum(present, dtype=np.int32) - np.int32(1)
            return codes[numbers - low], pl.Series(np.flatnonzero(present) + low)
        distinct, codes = np.unique(numbers, return_inverse=True)
        return codes.astype(np.int32), pl.Series(distinct)
    texts = ids.unique().cast(pl.String).sort()
    return ids.cast(pl.Enum(texts)).to_physical().to_numpy().astype(np.int32), texts


def resolve_min_rating(asked: float | Literal["auto"] | None, scale: Scale | None) -> float | None:
    """Return the threshold that holds; for "auto" what the scale says."""
    if asked != "auto":
        return asked
    return None if scale is None else scale.liked


def preparation_notes(
    asked: Preparation, threshold: float | None, scale: Scale | None, steps: Sequence[PreparationStep]
) -> Iterator[str]:
    """Yield what a reader of the protocol card should know of the preparation, from its `steps`."""
    rows = steps[0].interactions

    def lost(step: str, what: str = "interactions") -> int:
        return sum(getattr(a, what) - getattr(b, what) for a, b in itertools.pairwise(steps) if b.step.startswith(step))

    repeated, disliked = lost("one row per user and item") / rows, lost("rating at least") / rows
    if repeated > _MUCH:
        yield f"{_share(repeated)} of the rows repeat a user and an item, and one of them counts"
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


def return_notes(returned: int) -> Iterator[str]:
    """Yield a note where rows have numbers below 0, which are returns."""
    if returned:
        yield (
            f"{returned:,} rows have a number below 0 and are taken for returns: they cancel what the user had of the "
            "item, and never count as one"
        )


def time_notes(late: int) -> Iterator[str]:
    """Yield a note where rows are of the future."""
    if late:
        yield f"{FUTURE}, which stand last in their order: {late:,} of the rows; check the column"


def _share(part: float) -> str:
    return "under 1%" if 0 < part < 0.005 else f"{part:.0%}"


def _numbers(raw: RawData, column: str, kind: type) -> Any:
    return raw.rows[column].to_numpy().astype(kind, copy=False) if column in raw.rows.columns else None


def _drop_duplicates(rows: _Rows, n_items: int, *, added: bool) -> None:
    """Keep one row per user and item: the latest, among equals the one with the highest rating.

    Where numbers are `added` up, it has their sum, returns taken off, and the time of the last that is no return.
    """
    key = _pair_key(rows, n_items)
    ordered = np.sort(key)
    if not np.any(ordered[1:] == ordered[:-1]):
        return
    tie_breakers: list[NDArray[Any]] = [column for column in (rows.rating, rows.time) if column is not None]
    if added and rows.rating is not None:  # a return does not make a purchase younger
        tie_breakers.append(rows.rating > 0)
    order = np.lexsort((*tie_breakers, key))
    ordered = key[order]
    last = np.append(ordered[1:] != ordered[:-1], True)
    total = None
    if added and rows.rating is not None:
        ends = np.cumsum(rows.rating[order].astype(np.float64))[last]
        total = np.diff(ends, prepend=0.0).astype(np.float32)
    rows.keep(order[last])
    rows.rating = rows.rating if total is None else total


def _pair_key(rows: _Rows, n_items: int) -> IntArray:
    return rows.user.astype(np.int64) * n_items + rows.item


def _filter_rare(rows: _Rows, choices: Preparation) -> list[PreparationStep]:
    """Drop rare users, then rare items; once, or until nothing changes."""
    steps: list[PreparationStep] = []
    for round_number in itertools.count(1):
        before = len(rows.user)
        again = f" (round {round_number})" if round_number > 1 else ""
        rows.keep(np.bincount(rows.user, minlength=1)[rows.user] >= choices.min_items_per_user)
        users_step = rows.step(f"users with at least {choices.min_items_per_user} items{again}")
        rows.keep(np.bincount(rows.item, minlength=1)[rows.item] >= choices.min_users_per_item)
        if round_number > 1 and len(rows.user) == before:
            break
        steps += [users_step, rows.step(f"items with at least {choices.min_users_per_item} users{again}")]
        if not choices.k_core:
            break
    return steps


def _least_popular(item: Codes) -> int:
    """Return the item with the fewest rows; among equals the one with the largest id."""
    counts = np.bincount(item)
    rare = np.flatnonzero(counts == counts[counts > 0].min())
    return int(rare[-1])


def _compact(codes: Codes, n_codes: int) -> tuple[IntArray, Codes]:
    """Return the codes that occur, and each row's place among them."""
    present = np.bincount(codes, minlength=n_codes) > 0
    return np.flatnonzero(present), (np.cumsum(present, dtype=np.int32) - np.int32(1))[codes]


def _disliked(
    rows: _Rows | None, users: IntArray, items: IntArray, n_users: int, n_items: int
) -> tuple[Csr | None, NDArray[np.int64] | None]:
    """Return the rows below the threshold over the users and items that stayed, and their times."""
    if rows is None or rows.rating is None:
        return None, None
    row, column = np.full(n_users, -1, np.int32), np.full(n_items, -1, np.int32)
    row[users], column[items] = np.arange(len(users)), np.arange(len(items))
    rows.keep((row[rows.user] >= 0) & (column[rows.item] >= 0))
    rows.keep(np.argsort(_pair_key(rows, n_items)))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row[rows.user], minlength=len(users)))]).astype(np.int32)
    parts = (rows.rating, column[rows.item], indptr)
    return (csr_array(parts, shape=(len(users), len(items))), rows.time) if len(rows.user) else (None, None)


def _distinct(codes: Codes) -> int:
    return int(np.count_nonzero(np.bincount(codes))) if len(codes) else 0


def _described(ids: pl.Series, described: pl.DataFrame | None) -> tuple[pl.DataFrame, list[str]]:
    """Return one row per item or user, in order, with what a file says of it, and a note where it leaves out some."""
    table, kind = ids.to_frame(), ids.name
    if described is None:
        return table, []
    known = described.with_columns(parse_ids(described[kind], ids.dtype)).unique(kind, keep="first")
    count = ids.is_in(known[kind].implode()).sum()
    if kind == "user" and not count:
        raise InputError("The user file knows none of the users: name their ids as the interactions do.")
    notes = [f"the {kind} file describes {count:,} of {len(ids):,} {kind}s"] if count < len(ids) else []
    return table.join(known, on=kind, how="left", maintain_order="left"), notes
