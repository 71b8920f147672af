"""A small shop: four kinds of things, a stock, prices with gaps, and a model that knows them."""

from dataclasses import replace

import numpy as np
import polars as pl

from recfusion.data.interactions import Interactions
from recfusion.data.load import load
from recfusion.data.options import Preparation
from recfusion.experiments.train import train
from recfusion.inference.bundle import Bundle
from recfusion.inference.reorders import Rates

DAY = 86400
KINDS = ("Tea", "Coffee|Gift", "Cups", "Books|Gift")


def with_rates(bundle: Bundle, until: float = 100 * 86400.0) -> Bundle:
    """Return the bundle with rates of re-orders: frequent and recent purchases come first, items every 20 days."""
    numbers = ((0, 0, 0, 0, 0), (-1.5, 1, 0, -0.3, 0.1, 0.2), (-1, -0.5, 0))
    means, again, new = (np.array(values, np.float32) for values in numbers)
    n_items = len(bundle.items)
    every = (np.full(n_items, 20, np.float32), np.linspace(0, 1, n_items, dtype=np.float32))
    return replace(bundle, rates=Rates(*every, means, again, new, until))


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


def orders(n_users: int = 60, n_days: int = 120) -> pl.DataFrame:
    """Return orders in which each user buys two own items every ten days, and another one now and then."""
    rng, rows = np.random.default_rng(0), list[tuple[str, str, int, int]]()
    for user in range(n_users):
        for day in range(user % 10, n_days, 10):
            basket = [user % 12, (user + 1) % 12, int(rng.integers(12, 40))]
            rows += [(f"u{user}", f"i{item}", 1, 1_500_000_000 + day * DAY) for item in basket]
    return pl.DataFrame(rows, schema=["user", "item", "quantity", "time"], orient="row")


def reorder_shop(model: str = "ease", signals: str = "binary") -> Bundle:
    """Return a model of these orders, with rates of re-orders."""
    table = pl.DataFrame({"item": [f"i{n}" for n in range(40)], "category": ["Coffee"] * 12 + ["Cups"] * 28})
    data = load(orders(), Preparation(min_items_per_user=2, min_users_per_item=1), name="orders")
    data = replace(data, item_table=data.item_table.join(table, on="item", how="left", maintain_order="left"))
    return train(model, data, {"l2": 50.0}, all_users=True, signals=signals)
