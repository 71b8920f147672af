"""The preset for shops: a recipe that keeps small customers, uses what the data has, and states each choice."""

from collections.abc import Collection
from dataclasses import replace
from typing import Literal

import numpy as np

from recfusion.core.arrays import column_counts
from recfusion.core.errors import InputError
from recfusion.data.features import with_features
from recfusion.data.interactions import Interactions, RawData
from recfusion.data.options import Preparation
from recfusion.data.signals import AUTO, BINARY
from recfusion.experiments.candidate import Candidate
from recfusion.experiments.fit import check_grades
from recfusion.experiments.recipes import Recipe
from recfusion.models.abilities import signals_read

Preset = Literal["shop", "none"]
SHOP = {"min_items_per_user": 1, "min_users_per_item": 2}


def shop_choices(given: Recipe, raw: RawData, kept: Collection[str]) -> tuple[Recipe, tuple[str, ...]]:
    """Return the recipe of a shop and a sentence about each choice; the choices of preparation in `kept` are kept."""
    default, model, reads = Preparation(), given.candidate.entry.name, sorted(signals_read(given.candidate.model))
    chosen = given.preparation.model_copy(update={name: value for name, value in SHOP.items() if name not in kept})
    data = replace(given, preparation=chosen, signals=BINARY).prepare(raw)
    signals = readable_signals(given.candidate, data) if given.signals in (AUTO, BINARY) else given.signals
    frequent = data.matrix[np.flatnonzero(np.diff(data.matrix.indptr) >= default.min_items_per_user)]
    items = int((column_counts(frequent) >= default.min_users_per_item).sum())
    returned = 0 if data.disliked is None else data.disliked.nnz
    return replace(given, preparation=chosen, signals=signals), (
        f"Minimum counts of {chosen.min_items_per_user} product per customer and {chosen.min_users_per_item} customers "
        f"per product keep {data.n_users:,} customers and {data.n_items:,} products; the defaults of "
        f"{default.min_items_per_user} would keep {frequent.shape[0]:,} and {items:,}.",
        f"Returns are masked: {returned:,} pairs of customer and product do not count as purchases, and the product is "
        "not recommended to the customer again.",
        f"Signals: {signals}; {model} reads {', '.join(reads) or 'none'}, and the data has "
        f"{', '.join(with_features(data, 'features').signals) or 'none'}.",
    )


def readable_signals(candidate: Candidate, data: Interactions) -> str:
    """Return the signals that the data has and the model reads; returns are always used, to mask returned items."""
    reads, has = signals_read(candidate.model), set(with_features(data, "features").signals)
    found = ["timed"] * ("times" in has & reads) + ["features"] * bool(has & reads & {"item_features", "user_features"})
    if data.disliked is not None or "grades" in has & reads:
        try:
            check_grades(candidate, data, ["grades"])
            found.append("graded")
        except InputError:  # numbers that the model does not support
            pass
    return ",".join(found) or BINARY
