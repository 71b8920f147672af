"""Add new items to a fitted model by their features, without a new fit."""

import logging
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from recfusion.core.arrays import Csr
from recfusion.core.errors import InputError
from recfusion.data.interactions import to_columns
from recfusion.data.reading.ids import parse_ids
from recfusion.inference.bundle import COUNT, Bundle, name_among
from recfusion.models.abilities import adding_part, with_part
from recfusion.models.base import Recommender

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Added:
    """Counts of an addition of items."""

    added: int
    existing: int  # rows with an id that the model has already; these items do not change
    known: int  # values of the feature columns that the model knows
    given: int  # all values of the feature columns
    without: int  # added items without a known feature, which are never recommended on merit
    absent: tuple[str, ...]  # feature columns that the table lacks
    items: int  # number of items of the new model
    columns: tuple[str, ...] = ()  # of the table that the model's items did not have
    unfit: Mapping[str, int] = field(default_factory=dict)  # column -> values of another type, which are missing now


def add_items(folder: str | Path, table: pl.DataFrame, out: str | Path) -> Added:
    """Write the model of `folder` with the items of a table added to it, as the folder `out`."""
    bundle = Bundle.load(folder)
    recipe, items = bundle.recipes.items, bundle.items
    if recipe is None or not can_add(bundle):
        raise InputError(
            f"The model {bundle.name} in '{folder}' knows no features of items: train thinning with a table of items "
            "(--items)."
        )
    fresh, existing = _fresh(items, table)
    if fresh.is_empty():
        raise InputError(
            f"Expected new items, got {existing:,} that the model in '{folder}' has already: nothing to add."
        )
    encoded = recipe.encode(fresh)
    for sentence in recipe.unseen(fresh):
        log.warning(sentence)
    if not encoded.known:
        columns = ", ".join(column.name for column in recipe.columns)
        raise InputError(
            f"Of the new items no feature is known to the model (its features are made of {columns}): describe them in "
            "the same columns."
        )
    more = tuple(name for name in table.columns if name_among(items.columns, name) not in items.columns)
    model = _with_added(bundle.model, encoded.matrix, len(items))
    items = _with_columns(items, table.select("item", *more))
    notes = (*bundle.notes, f"{len(fresh):,} items joined after the training, by their features alone.")
    replace(bundle, model=model, items=_joined(items, fresh), notes=notes).save(out)
    counts = (encoded.known, encoded.given, encoded.without, encoded.absent)
    own = {name: name_among(items.columns, name) for name in fresh.columns}
    shared = {name: pl.col(name).cast(items.schema[own[name]], strict=False) for name in own}
    lost = fresh.select((cell.is_null() & pl.col(name).is_not_null()).sum() for name, cell in shared.items())
    unfit = {name: count for name, count in zip(shared, lost.row(0), strict=True) if count}
    return Added(len(fresh), existing, *counts, len(items) + len(fresh), more, unfit)


def can_add(bundle: Bundle) -> bool:
    """Return whether a model can add items by their features."""
    return bundle.recipes.items is not None and adding_part(bundle.model) is not None


def placement_notes(bundle: Bundle) -> tuple[str, ...]:
    """Return a sentence about the items without training users, if the model places them by their features."""
    count = int(np.count_nonzero(bundle.counts == 0)) if can_add(bundle) else 0
    return (f"{count:,} items with too few users are placed by their features.",) if count else ()


def with_new(bundle: Bundle, table: pl.DataFrame) -> Bundle:
    """Return a model with the new items of a table that have a known feature.

    Unlike that of `add_items`, the table has the columns of the bundle's item table.
    """
    recipe = bundle.recipes.items
    if recipe is None or not can_add(bundle) or table.is_empty():
        return bundle
    ids = parse_ids(table["item"], bundle.items["item"].dtype)
    fresh = _fresh(bundle.items, table.with_columns(ids.alias("item")).drop_nulls("item"))[0]
    own = {name_among(bundle.items.columns, column.name): column.name for column in recipe.columns}
    encoded = recipe.encode(fresh.rename(own, strict=False)).matrix
    known = np.diff(encoded.indptr) > 0
    if not known.any():
        return bundle
    model = _with_added(bundle.model, encoded[known], len(bundle.items))
    return replace(bundle, model=model, items=_joined(bundle.items, fresh.filter(pl.Series(known))))


def without_new(bundle: Bundle) -> Bundle:
    """Return the model with the items of its fit alone, without those that were added by features."""
    adds = adding_part(bundle.model)
    n_items = len(bundle.items) if adds is None else len(getattr(adds[1], "new_"))  # noqa: B009
    if len(bundle.items) <= n_items:
        return bundle
    return replace(bundle, model=_with_added(bundle.model, None, n_items), items=bundle.items.head(n_items))


def with_new_of(bundle: Bundle, old: Bundle) -> Bundle:
    """Return the model with those items of an older one that it lacks: they were added there by their features."""
    adds, missing = adding_part(old.model), to_columns(bundle.items["item"], old.items["item"]) < 0
    if adds is None or not missing.any():
        return bundle
    features: Csr = getattr(adds[1], "features_")[missing]  # noqa: B009
    model = _with_added(bundle.model, features, len(bundle.items))
    return replace(bundle, model=model, items=pl.concat([bundle.items, old.items.filter(pl.Series(missing))]))


def _with_added(model: Recommender, features: Csr | None, n_items: int) -> Recommender:
    """Return the model with its first `n_items` items, and more items with these features."""
    adds = adding_part(model)
    assert adds is not None
    label, part = adds[0], copy(adds[1])
    kept: Csr = getattr(part, "features_")[:n_items]  # noqa: B009
    changed = part.with_added(partial(getattr, part), kept[:0] if features is None else features, kept)
    for name, array in changed.items():
        setattr(part, name, array)
    return with_part(model, label, part)


def _fresh(items: pl.DataFrame, table: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return the rows of new items, with ids of the model's type, and the number of the others."""
    ids = items["item"]
    new = to_columns(ids, table["item"]) < 0
    fresh = table.filter(pl.Series(new))
    if ids.dtype.is_integer():
        numbers = parse_ids(fresh["item"], ids.dtype)
        if numbers.null_count():
            wrong = fresh["item"].filter(numbers.is_null())[0]
            raise InputError(f"Expected whole numbers as ids, as the model's items have, got '{wrong}': name them so.")
        fresh = fresh.with_columns(numbers.alias("item"))
    return fresh.unique("item", keep="first", maintain_order=True), int((~new).sum())


def _with_columns(items: pl.DataFrame, more: pl.DataFrame) -> pl.DataFrame:
    """Return the item table with further columns, with the values of the items that `more` has rows of."""
    own = more.with_columns(parse_ids(more["item"], items["item"].dtype).alias("item")).drop_nulls("item")
    named = own.unique("item", keep="first").rename({name: name_among(items.columns, name) for name in own.columns})
    return items.join(named, on="item", how="left", maintain_order="left")


def _joined(items: pl.DataFrame, fresh: pl.DataFrame) -> pl.DataFrame:
    """Return the item table with the new rows at its end; values that do not fit a column's type are missing."""
    names = {name: name_among(items.columns, name) for name in fresh.columns}
    rows = fresh.rename(names).with_columns(pl.lit(0).alias(COUNT))
    cells = [
        (pl.col(name).cast(kind, strict=False) if name in rows.columns else pl.lit(None, kind).alias(name))
        for name, kind in items.schema.items()
    ]
    return pl.concat([items, rows.select(cells)])
