"""Items like an item."""

from typing import Any

import numpy as np
import polars as pl
from scipy.sparse import csr_array

from recfusion.core.arrays import FloatArray, IntArray
from recfusion.core.errors import InputError
from recfusion.evaluation.topk import top_k
from recfusion.inference.bundle import COUNT, Bundle
from recfusion.inference.filters import Rules, allowed_items, check_count
from recfusion.inference.ids import id_texts


def similar(bundle: Bundle, item: Any, k: int = 8, rules: Rules | None = None) -> pl.DataFrame:
    """Return the K items most like an item, by the model's own weights and corrected for popularity, best first."""
    taken, values = similar_columns(bundle, item, k, rules)
    shown = bundle.items.drop(COUNT)
    found = pl.DataFrame({"rank": np.arange(1, len(taken) + 1), "item": shown["item"][taken], "similarity": values})
    return found.hstack(shown.drop("item")[taken].get_columns())


def similar_columns(bundle: Bundle, item: Any, k: int = 8, rules: Rules | None = None) -> tuple[IntArray, FloatArray]:
    """Return the columns of the K items most like an item, and how alike they are."""
    check_count("similar item", k)
    column = int(bundle.columns_of([text or "" for text in id_texts([item])])[0])
    if column < 0:
        raise InputError(f"The model knows no item '{item}': give the id of one of its {len(bundle.items):,} items.")
    rules = rules or Rules()
    if rules.at_most:
        raise InputError("Expected rules without at_most for similar items: leave it out.")
    scores = bundle.similarity.rows(np.array([column]))
    allowed = allowed_items(rules, bundle)
    scores[0, column] = -np.inf
    if allowed.mask is not None:
        scores[0, ~allowed.mask] = -np.inf
    columns, values = top_k(scores, csr_array(scores.shape, dtype=np.float32), k)
    taken = columns[0][columns[0] >= 0]
    return taken, values[0][: len(taken)]
