"""A generated shop: customers with tastes, products of several kinds, orders, returns, and new products every night.

    python examples/shop/generated_shop.py FOLDER

writes orders.csv, products.csv and shop.toml for `recfusion nightly FOLDER/shop.toml`.
"""

import sys
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import numpy as np

KINDS = ("tea", "coffee", "cups", "books", "games", "garden")
FIRST = date(2026, 3, 1)
_FIRST_PRODUCTS, _NEW_PRODUCTS = 150, 4  # in all, and each night
_CUSTOMERS, _ORDERS = 420, 2_400  # on the first day; a thirtieth more each night


@dataclass(frozen=True)
class Line:
    """An order line, or an event of the service."""

    customer: str
    product: str
    quantity: int
    day: date


def product_kind(number: int) -> str:
    return KINDS[number % len(KINDS)]


def lines_of(night: int, seed: int = 0) -> list[Line]:
    """Return what customers buy and return in one night; night 0 is the year before."""
    rng = np.random.default_rng([seed, night])
    products = _FIRST_PRODUCTS + _NEW_PRODUCTS * night
    found = []
    for _ in range(_ORDERS if night == 0 else _ORDERS // 30):
        customer = int(rng.integers(_CUSTOMERS + 10 * night))
        taste = customer % len(KINDS) if rng.random() < 0.85 else int(rng.integers(len(KINDS)))
        newest = (products - taste - 1) // len(KINDS)
        product = taste + len(KINDS) * int((newest + 1) * rng.random() ** 1.7)
        day = FIRST + timedelta(days=night) if night else FIRST - timedelta(days=int(rng.integers(1, 365)))
        bought = Line(f"customer{customer}@example.org", f"P{product:04d}", int(rng.integers(1, 3)), day)
        found.append(bought)
        if rng.random() < 0.05:
            found.append(Line(bought.customer, bought.product, -bought.quantity, day))
    return found


def write_orders(path: Path, lines: list[Line]) -> None:
    """Write order lines as a shop exports them: semicolons and ISO dates, returns with a quantity below 0."""
    rows = [f"{one.customer};{one.product};{one.quantity};{one.day.isoformat()}" for one in lines]
    path.write_text("\n".join(["customer;product;quantity;date", *rows, ""]), encoding="utf-8")


def write_products(path: Path, night: int, seed: int = 0) -> None:
    """Write the products of a night with kind, price and stock; a tenth is sold out."""
    rng = np.random.default_rng([seed, night, 1])
    rows = []
    for number in range(_FIRST_PRODUCTS + _NEW_PRODUCTS * night):
        stock = 0 if rng.random() < 0.1 else int(rng.integers(1, 60))
        rows.append(
            f"P{number:04d};{product_kind(number).title()} {number};{product_kind(number)};{5 + number % 40};{stock}"
        )
    path.write_text("\n".join(["product;name;kind;price;stock", *rows, ""]), encoding="utf-8")


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_orders(folder / "orders.csv", lines_of(0))
    write_products(folder / "products.csv", 0)
    keys = {"folder": "shop", "orders": "orders*.csv", "products": "products.csv", "events": "shop.events.sqlite"}
    lines = [f'{name} = "{value}"' for name, value in {**keys, "model": "thinning-features"}.items()]
    (folder / "shop.toml").write_text("\n".join([*lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]))
