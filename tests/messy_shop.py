"""The export of a German shop with the usual faults: orders.csv and products.csv, the same for the same seed.

Both files have semicolons, Windows-1252 texts, dd.mm.yyyy dates and numbers such as 1.208,06. Orders have returns with
negative quantities, cancelled lines, e-mail addresses as customers and broken lines. Products have duplicate ids,
sold-out items and new items every week.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ENCODING = "cp1252"
FIRST_DAY, DAYS = date(2024, 1, 1), 140
CANCELLED = "storniert"
_KINDS = ("Tee", "Kaffee", "Müsli", "Käse", "Wein", "Möbel")
_GOODS = ("Grüner", "Süßer", "Feiner", "Großer", "Kräftiger", "Weißer", "Dänischer", "Köstlicher")
_ORDER_HEADER = "Bestellnr;Kunden-E-Mail;Artikelnummer;Bezeichnung;Menge;Einzelpreis;Bestelldatum;Status"
_PRODUCT_HEADER = "Artikelnummer;Bezeichnung;Warengruppe;Preis;Bestand;Neu seit"
_BROKEN = (
    "{order};{customer};{item}",  # cut off
    "{order};{customer};{item};{name};1;{price};31.02.2024;bezahlt",  # no such day
    '{order};{customer};{item};"{name};1;{price};{day};bezahlt',  # a quote that is not closed
    "{order};{customer};;{name};1;{price};{day};bezahlt",  # no product
    "{order};{customer};{item};{name};zwei;{price};{day};bezahlt",  # no number
    "{order};{customer};{item};{name};1;{price};{day};bezahlt;Notiz",  # too many fields
)


@dataclass(frozen=True)
class ShopCounts:
    """The true counts of the files that `write_shop` wrote."""

    lines: int  # of orders.csv, below the header
    broken: int
    cancelled: int  # whole lines with the status "storniert"
    returns: int  # whole lines with a negative quantity
    customers: int  # distinct customers of whole lines
    sold: int  # distinct products of whole lines
    products: int  # distinct ids in products.csv
    duplicates: int  # rows of products.csv that repeat an id
    sold_out: int  # products without stock


def write_shop(folder: Path, seed: int = 0, lines: int = 2_000, *, days: int = DAYS) -> ShopCounts:
    """Write orders.csv and products.csv and return their true counts.

    `lines` is the number of order lines of all DAYS days. Of these days the first `days` are written, so the files of
    a later day begin with those of an earlier one; products that are newer than the last written day are left out.
    """
    rng = np.random.default_rng(seed)
    n_items, n_customers = max(60, lines // 40), max(40, lines // 12)
    born = np.sort(np.where(rng.random(n_items) < 0.7, 0, 7 * rng.integers(1, DAYS // 7, n_items)))
    prices = np.round(np.exp(rng.normal(3, 1.4, n_items)), 2)
    prices[0] = 1208.06
    orders = _order_lines(rng, lines, n_customers, born, prices)
    written = [line for line in orders if line.day < days]
    n_products = int(np.count_nonzero(born < days))
    stock = np.where(rng.random(n_items) < 0.1, 0, rng.integers(1, 90, n_items))
    repeated = sorted(rng.choice(n_items, n_items // 25, replace=False).tolist())
    rows = [_product(n, born[n], prices[n], stock[n]) for n in (*range(n_items), *repeated) if n < n_products]
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "orders.csv", [_ORDER_HEADER, *(line.text for line in written)])
    _write(folder / "products.csv", [_PRODUCT_HEADER, *rows])
    whole = [line for line in written if not line.broken]
    return ShopCounts(
        lines=len(written),
        broken=len(written) - len(whole),
        cancelled=sum(line.cancelled for line in whole),
        returns=sum(line.quantity < 0 for line in whole),
        customers=len({line.customer for line in whole}),
        sold=len({line.item for line in whole}),
        products=n_products,
        duplicates=len(rows) - n_products,
        sold_out=int(np.count_nonzero(stock[:n_products] == 0)),
    )


@dataclass(frozen=True)
class _Line:
    text: str
    day: int
    customer: int
    item: int
    quantity: int
    cancelled: bool
    broken: bool


def _order_lines(
    rng: np.random.Generator, lines: int, n_customers: int, born: NDArray[Any], prices: NDArray[Any]
) -> list[_Line]:
    """Return order lines by day; a customer mostly buys one kind of product, and never one that is not there yet."""
    taste, found = rng.integers(0, len(_KINDS), n_customers), list[_Line]()
    bought: list[tuple[int, int]] = []
    for number, day in enumerate(np.sort(rng.integers(0, DAYS, lines)).tolist()):
        customer, item, quantity = int(rng.integers(n_customers)), 0, int(rng.integers(1, 4))
        if bought and rng.random() < 0.04:
            (customer, item), quantity = bought[int(rng.integers(len(bought)))], -1
        else:
            known = np.flatnonzero(born <= day)
            liked = known[known % len(_KINDS) == taste[customer]]
            pool = liked if rng.random() < 0.8 else known
            item = int(pool[int(len(pool) * rng.random() ** 2)])
            bought.append((customer, item))
        cancelled, broken = bool(rng.random() < 0.05), bool(rng.random() < 0.01)
        fields = {
            "order": str(100_000 + number),
            "customer": f"kunde{customer}@beispiel.de",
            "item": f"A-{item:05d}",
            "name": _name(item),
            "price": _german(float(prices[item])),
            "day": f"{FIRST_DAY + timedelta(days=day):%d.%m.%Y}",
        }
        whole = f"{{order}};{{customer}};{{item}};{{name}};{quantity};{{price}};{{day}};"
        form = whole + (CANCELLED if cancelled else "bezahlt")
        form = _BROKEN[int(rng.integers(len(_BROKEN)))] if broken else form
        found.append(_Line(form.format(**fields), day, customer, item, quantity, cancelled and not broken, broken))
    return found


def _product(number: int, born: int, price: float, stock: int) -> str:
    since = f"{FIRST_DAY + timedelta(days=int(born)):%d.%m.%Y}"
    kind = _KINDS[number % len(_KINDS)]
    return f"A-{number:05d};{_name(number)};{kind};{_german(float(price))};{stock};{since}"


def _name(number: int) -> str:
    return f"{_GOODS[number // len(_KINDS) % len(_GOODS)]} {_KINDS[number % len(_KINDS)]} Nr. {number}"


def _german(number: float) -> str:
    return f"{number:,.2f}".translate(str.maketrans(",.", ".,"))


def _write(path: Path, lines: Sequence[str]) -> None:
    path.write_bytes("".join(f"{line}\r\n" for line in lines).encode(ENCODING))
