"""The most similar items to an item, or to every item."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
from scipy.sparse import csr_array

from recfusion.core.arrays import FloatArray, IntArray
from recfusion.core.errors import InputError
from recfusion.evaluation.topk import batch_rows, by_popularity, popular_first, top_k
from recfusion.inference.bundle import COUNT, Bundle
from recfusion.inference.filters import AllowedItems, apply_filters, check_count, check_item_filters
from recfusion.inference.request import ItemFilters, errors_about, parse_history


def similar(bundle: Bundle, item: Any, k: int = 8, filters: ItemFilters | None = None) -> pl.DataFrame:
    """Return the K most similar items according to the model, corrected for popularity, most similar first."""
    columns, values = similar_columns(bundle, item, k, filters)
    table = bundle.items.drop(COUNT)
    found = pl.DataFrame({"rank": np.arange(1, len(columns) + 1), "item": table["item"][columns], "similarity": values})
    return found.hstack(table.drop("item")[columns].get_columns())


def similar_columns(
    bundle: Bundle, item: Any, k: int = 8, filters: ItemFilters | None = None
) -> tuple[IntArray, FloatArray]:
    """Return the columns of the K most similar items, and their similarity."""
    check_count("k", "similar item", k)
    with errors_about("item"):
        ids = [text for text in parse_history([item]) if isinstance(text, str)]
    column = int(bundle.columns_of(ids or [""])[0])
    if column < 0:
        raise InputError(
            f"The model knows no item '{item}': give the id of one of its {len(bundle.items):,} items.", "item"
        )
    allowed = apply_filters(check_item_filters(filters, "similar items"), bundle)
    columns, values = _similar_rows(bundle, np.array([column]), k, allowed)
    found = columns[0][columns[0] >= 0]
    return found, values[0][: len(found)]


def similar_batches(bundle: Bundle, k: int = 8, filters: ItemFilters | None = None) -> Iterator[pl.DataFrame]:
    """Yield the K most similar items of all items as rows `item`, `rank`, `similar` and `similarity`.

    Items with similarity 0 are left out, so an item that the model knows nothing about has no rows. A model with item
    features also knows items that nobody has bought.
    """
    check_count("k", "similar item", k)
    allowed, ids = apply_filters(check_item_filters(filters, "similar items"), bundle), bundle.items["item"]
    for start in range(0, len(ids), rows := batch_rows(len(ids))):
        items = np.arange(start, min(start + rows, len(ids)))
        columns, values = _similar_rows(bundle, items, k, allowed)
        row, rank = np.nonzero((columns >= 0) & (values > 0))
        found = {"item": ids[items[row]], "rank": rank + 1, "similar": ids[columns[row, rank]]}
        yield pl.DataFrame(found | {"similarity": values[row, rank]})


def _similar_rows(bundle: Bundle, items: IntArray, k: int, allowed: AllowedItems) -> tuple[IntArray, FloatArray]:
    """Return columns and similarity of the K most similar items of each item, (items, k)."""
    scores = bundle.similarity.rows(items)
    scores[np.arange(len(items)), items] = -np.inf
    if allowed.mask is not None:
        scores[:, ~allowed.mask] = -np.inf
    found = top_k(scores, csr_array(scores.shape, dtype=np.float32), k)
    if len(items) > 1:  # all items with similarity 0 are equal, and callers leave them out
        return by_popularity(*found, bundle.popularity)
    return popular_first(*found, scores, bundle.popularity)
