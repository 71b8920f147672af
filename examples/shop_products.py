"""Makes an item table (title, category, price, stock) for a shop from its invoices.

    python examples/shop_products.py online-retail.csv.gz products.csv

Reads the invoice lines of the Online Retail data (InvoiceNo, StockCode, Description, Quantity, InvoiceDate, UnitPrice,
CustomerID) and writes one line per product: its usual description, its median price, its category (by the words of the
description) and its stock. The data has no stock, so we take the quantity sold in the last four weeks: products that no
longer sell have none. Then, for example:

    recfusion train thinning-linear --data online-retail.csv.gz --user CustomerID --item StockCode --rating none \\
        --items products.csv --max-bad-share .3 --min-items-per-user 2 --all-users --evaluate --out shop
    recfusion recommend shop --history 22423,85123A --where "stock > 0" --at-most category=2 --why 2
"""

# ruff: noqa: T201  (an example prints)

import argparse
from pathlib import Path

import polars as pl

CATEGORIES = {
    "Christmas": "christmas|xmas|advent|santa|reindeer|snow",
    "Kitchen": "mug|cup|tea|cake|bowl|plate|jar|tin|bottle|lunch|kitchen|baking|recipe|egg|spoon|jug|apron|dish|glass",
    "Bags": "bag|purse|shopper|rucksack|suitcase|luggage",
    "Light": "light|lamp|candle|lantern|t-light",
    "Paper": "card|wrap|paper|notebook|stationery|pencil|pen |sticker|tape|book|calendar|tissue",
    "Garden": "garden|flower|plant|bird|watering|herb|seed",
    "Children": "child|kids|toy|doll|game|puzzle|party|balloon|skipping",
    "Jewellery": "necklace|bracelet|earring|ring |brooch|bead|hair",
    "Home": "cushion|frame|clock|hook|sign|drawer|cabinet|chair|doormat|door|mirror|holder|heart|box|basket|storage",
}
OTHER = "Other"


def products(invoices: pl.DataFrame) -> pl.DataFrame:
    """Return one row per product: item, title, category, price, stock."""
    lines = invoices.select(
        item="StockCode",
        title=pl.col("Description").str.strip_chars(),
        price=pl.col("UnitPrice").cast(pl.Float64, strict=False),
        quantity=pl.col("Quantity").cast(pl.Float64, strict=False),
        day=pl.col("InvoiceDate").str.slice(0, 10).str.to_date(strict=False),
    ).filter(pl.col("item").is_not_null())
    recent = pl.col("day") > lines["day"].max() - pl.duration(weeks=4)
    title = pl.col("title")
    category = pl.lit(OTHER)
    for name, words in reversed(CATEGORIES.items()):  # the first match counts
        category = pl.when(title.str.to_lowercase().str.contains(words)).then(pl.lit(name)).otherwise(category)
    return (
        lines.group_by("item")
        .agg(
            title=title.drop_nulls().mode().sort().first(),
            price=pl.col("price").filter(pl.col("price") > 0).median(),
            stock=pl.col("quantity").filter(recent).sum().clip(lower_bound=0).cast(pl.Int64),
        )
        .select("item", "title", category.alias("category"), "price", "stock")
        .sort("item")
    )


def main() -> None:
    """Read the invoices, write the products."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("invoices", type=Path)
    parser.add_argument("products", type=Path)
    arguments = parser.parse_args()
    found = products(pl.read_csv(arguments.invoices, infer_schema_length=0))
    found.write_csv(arguments.products)
    print(f"{len(found):,} products written, {int((found['stock'] > 0).sum()):,} of them in stock")


if __name__ == "__main__":
    main()
