"""A small shop: four kinds of things, a stock, prices with gaps, and a model that knows them."""

from dataclasses import replace

import numpy as np
import polars as pl

from recfusion.data.interactions import Interactions
from recfusion.experiments.train import train
from recfusion.inference.bundle import Bundle

KINDS = ("Tea", "Coffee|Gift", "Cups", "Books|Gift")


def shop(groups: Interactions, model: str = "ease") -> Bundle:
    """Return a model of the groups whose item table has columns to filter by."""
    rng = np.random.default_rng(1)
    table = groups.item_table.with_columns(
        pl.Series("stock", rng.integers(0, 4, groups.n_items)),
        pl.Series("price", [None if n % 7 == 0 else n / 2 for n in range(groups.n_items)]),
        pl.Series("kind", [KINDS[n // 10] if n % 9 else None for n in range(groups.n_items)]),
        pl.Series("new", [n % 2 == 0 for n in range(groups.n_items)]),
    )
    bundle = train(model, groups)
    return replace(bundle, items=table.with_columns(bundle.items["train_count"]))
