"""The most similar items to an item."""

from typing import Any

import numpy as np
import polars as pl
from scipy.sparse import csr_array

from recfusion.core.arrays import FloatArray, IntArray
from recfusion.core.errors import InputError
from recfusion.evaluation.topk import top_k
from recfusion.inference.bundle import COUNT, Bundle
from recfusion.inference.filters import apply_filters, check_count, check_item_filters
from recfusion.inference.request import ItemFilters, accepts_old_keywords, errors_about, parse_history


@accepts_old_keywords(rules="filters")
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
    scores = bundle.similarity.rows(np.array([column]))
    scores[0, column] = -np.inf
    if allowed.mask is not None:
        scores[0, ~allowed.mask] = -np.inf
    columns, values = top_k(scores, csr_array(scores.shape, dtype=np.float32), k)
    found = columns[0][columns[0] >= 0]
    return found, values[0][: len(found)]
