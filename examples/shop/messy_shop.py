"""A generated German shop with the usual faults in its export: orders.csv and products.csv, the same for the same seed.

    python examples/shop/messy_shop.py FOLDER [MODEL]

writes both files and shop.toml for `recfusion nightly FOLDER/shop.toml` and `recfusion serve --config`.

Both files have semicolons, Windows-1252 texts, dd.mm.yyyy dates and numbers such as 1.208,06. Orders have returns with
negative quantities, cancelled lines, e-mail addresses as customers and broken lines. Products have duplicate ids,
sold-out items and new items every week.
"""

import sys
from collections.abc import Iterable
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


@dataclass(frozen=True)
class Line:
    """An order line, as it is written and as it is meant."""

    text: str
    day: date
    customer: str
    product: str
    quantity: int  # below 0 for a return
    cancelled: bool
    broken: bool

    @property
    def counts(self) -> bool:
        """Whether it is a purchase or a return that can be read."""
        return not (self.cancelled or self.broken)


@dataclass(frozen=True)
class MessyShop:
    """The order lines and products of DAYS days."""

    lines: list[Line]  # by day
    born: NDArray[Any]  # day on which each product is new
    prices: NDArray[Any]
    repeated: list[int]  # products with two rows
    seed: int

    @classmethod
    def of(cls, seed: int = 0, lines: int = 2_000) -> "MessyShop":
        rng = np.random.default_rng(seed)
        n_items, n_customers = max(60, lines // 40), max(40, lines // 12)
        born = np.sort(np.where(rng.random(n_items) < 0.7, 0, 7 * rng.integers(1, DAYS // 7, n_items)))
        prices = np.round(np.exp(rng.normal(3, 1.4, n_items)), 2)
        prices[0] = 1208.06
        orders = _order_lines(rng, lines, n_customers, born, prices)
        repeated = sorted(rng.choice(n_items, n_items // 25, replace=False).tolist())
        return cls(orders, born, prices, repeated, seed)

    def between(self, first: int, last: int) -> list[Line]:
        """Return the lines of the days from number `first` to before number `last`."""
        return [line for line in self.lines if first <= (line.day - FIRST_DAY).days < last]

    def stock(self, days: int) -> NDArray[Any]:
        """Return the stock of the products that are there after so many days; a tenth is sold out."""
        rng, n_items = np.random.default_rng([self.seed, days]), int(np.count_nonzero(self.born < days))
        return np.where(rng.random(n_items) < 0.1, 0, rng.integers(1, 90, n_items))

    def write_products(self, path: Path, days: int = DAYS) -> None:
        """Write the products that are there after so many days."""
        stock = self.stock(days)
        numbers = [n for n in (*range(len(stock)), *self.repeated) if n < len(stock)]
        rows = [_product(n, self.born[n], self.prices[n], stock[n]) for n in numbers]
        _write(path, [_PRODUCT_HEADER, *rows])


def write_orders(path: Path, lines: Iterable[Line]) -> None:
    """Write order lines as the shop exports them."""
    _write(path, [_ORDER_HEADER, *(line.text for line in lines)])


def write_shop(folder: Path, seed: int = 0, lines: int = 2_000) -> ShopCounts:
    """Write orders.csv and products.csv and return their true counts."""
    shop = MessyShop.of(seed, lines)
    folder.mkdir(parents=True, exist_ok=True)
    write_orders(folder / "orders.csv", shop.lines)
    shop.write_products(folder / "products.csv")
    whole, stock = [line for line in shop.lines if not line.broken], shop.stock(DAYS)
    return ShopCounts(
        lines=len(shop.lines),
        broken=len(shop.lines) - len(whole),
        cancelled=sum(line.cancelled for line in whole),
        returns=sum(line.quantity < 0 for line in whole),
        customers=len({line.customer for line in whole}),
        sold=len({line.product for line in whole}),
        products=len(stock),
        duplicates=len(shop.repeated),
        sold_out=int(np.count_nonzero(stock == 0)),
    )


def _order_lines(
    rng: np.random.Generator, lines: int, n_customers: int, born: NDArray[Any], prices: NDArray[Any]
) -> list[Line]:
    """Return order lines by day; a customer mostly buys one kind of product, and never one that is not there yet."""
    taste, found = rng.integers(0, len(_KINDS), n_customers), list[Line]()
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
        when = FIRST_DAY + timedelta(days=day)
        meant = (when, fields["customer"], fields["item"], quantity, cancelled and not broken, broken)
        found.append(Line(form.format(**fields), *meant))
    return found


def _product(number: int, born: int, price: float, stock: int) -> str:
    since = f"{FIRST_DAY + timedelta(days=int(born)):%d.%m.%Y}"
    kind = _KINDS[number % len(_KINDS)]
    return f"A-{number:05d};{_name(number)};{kind};{_german(float(price))};{stock};{since}"


def _name(number: int) -> str:
    return f"{_GOODS[number // len(_KINDS) % len(_GOODS)]} {_KINDS[number % len(_KINDS)]} Nr. {number}"


def _german(number: float) -> str:
    return f"{number:,.2f}".translate(str.maketrans(",.", ".,"))


def _write(path: Path, lines: Iterable[str]) -> None:
    path.write_bytes("".join(f"{line}\r\n" for line in lines).encode(ENCODING))


def main(folder: Path, lines: int = 6_000, model: str = "thinning") -> None:
    """Write the export and the file of the shop."""
    write_shop(folder, lines=lines)
    keys = {"folder": "shop", "orders": "orders*.csv", "products": "products.csv", "events": "shop.events.sqlite"}
    text = "".join(f'{name} = "{value}"\n' for name, value in (keys | {"model": model}).items())
    more = f'[source]\nrows = "Status != \'{CANCELLED}\'"\n\n[serve]\nhistories = "orders*.csv"\n'
    (folder / "shop.toml").write_text(f"{text}\n{more}", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]), model=[*sys.argv, "thinning"][2])
