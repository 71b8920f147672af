"""From raw rows to a binary matrix, by reported steps: duplicates, rating threshold, rare users, rare items."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recfusion.core.arrays import IntArray, binary_csr
from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions, PreparationStep
from recfusion.data.notes import Scale, preparation_notes
from recfusion.data.parsing import parse_ids
from recfusion.data.raw import RawData, ReadReport
from recfusion.data.settings import Preparation

Codes: TypeAlias = NDArray[np.int32]  # places among the sorted ids


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

    def step(self, name: str) -> PreparationStep:
        return PreparationStep(name, _distinct(self.user), _distinct(self.item), len(self.user))


def prepare(raw: RawData, preparation: Preparation | None = None) -> Interactions:
    """Return the binary matrix of `raw` after the steps of `preparation`, each of them counted."""
    choices = preparation or Preparation()
    if raw.rows.is_empty():
        raise InputError(f"Expected interactions in '{raw.name}', got no usable row: check the file and its columns.")
    user, user_ids = id_codes(raw.rows["user"])
    item, item_ids = id_codes(raw.rows["item"])
    rows = _Rows(user, item, _numbers(raw, "rating", np.float32), _numbers(raw, "time", np.int64))
    steps = [PreparationStep("rows as read", len(user_ids), len(item_ids), len(user))]

    _drop_duplicates(rows, len(item_ids))
    steps.append(rows.step("one row per user and item (the latest, then the highest rating)"))
    threshold, scale = resolve_min_rating(choices.min_rating, rows.rating), Scale.of(rows.rating)
    if threshold is not None:
        if rows.rating is None:
            raise InputError(f"A rating of at least {threshold:g} is asked for, but '{raw.name}' has no ratings.")
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
    items = item_ids[item_kept].alias("item")
    return Interactions(
        name=raw.name,
        matrix=binary_csr(indptr, item_column, len(item_kept)),
        users=user_ids[user_kept].alias("user"),
        items=items,
        item_table=_item_table(items, raw.items),
        times=rows.time,
        grades=rows.rating,
        source=raw.source,
        preparation=choices.model_copy(update={"min_rating": threshold}),
        steps=tuple(steps),
        report=_report(raw, items, preparation_notes(choices, threshold, scale, steps)),
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


def resolve_min_rating(asked: float | Literal["auto"] | None, rating: NDArray[np.float32] | None) -> float | None:
    """Return the threshold that holds: for "auto" 4 on stars (ratings up to 5, above 1 among them), none elsewhere.

    Other scales (play counts, 0/1 flags) keep every rating above zero.
    """
    if asked != "auto":
        return asked
    if rating is None or not len(rating):
        return None
    low, high = float(rating.min()), float(rating.max())
    if low >= 0 and 1 < high <= 5:
        return 4.0
    return float(rating[rating > 0].min()) if low <= 0 < high else None


def _numbers(raw: RawData, column: str, kind: type) -> Any:
    return raw.rows[column].to_numpy().astype(kind, copy=False) if column in raw.rows.columns else None


def _drop_duplicates(rows: _Rows, n_items: int) -> None:
    """Keep one row per user and item: the latest, among equals the one with the highest rating."""
    key = _pair_key(rows, n_items)
    ordered = np.sort(key)
    if not np.any(ordered[1:] == ordered[:-1]):
        return
    tie_breakers = [column for column in (rows.rating, rows.time) if column is not None]
    order = np.lexsort((*tie_breakers, key))
    ordered = key[order]
    rows.keep(order[np.append(ordered[1:] != ordered[:-1], True)])


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


def _distinct(codes: Codes) -> int:
    return int(np.count_nonzero(np.bincount(codes))) if len(codes) else 0


def _item_table(items: pl.Series, described: pl.DataFrame | None) -> pl.DataFrame:
    """Return one row per item, in order, with what the item file says of it (null where it says nothing)."""
    table = items.to_frame()
    if described is None:
        return table
    known = described.with_columns(parse_ids(described["item"], items.dtype)).unique("item", keep="first")
    return table.join(known, on="item", how="left", maintain_order="left")


def _report(raw: RawData, items: pl.Series, notes: Iterable[str]) -> ReadReport:
    """Return the reader's report with `notes`, and how many items an item file describes where it is not all."""
    found = [*raw.report.notes, *notes]
    if raw.items is not None:
        known = items.is_in(parse_ids(raw.items["item"], items.dtype).implode()).sum()
        if known < len(items):
            found.append(f"the item file describes {known:,} of {len(items):,} items")
    return replace(raw.report, notes=tuple(found))
