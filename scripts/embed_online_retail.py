"""Convert the invoice lines of the Online Retail data to the Parquet files that the package ships.

Usage: python scripts/embed_online_retail.py CSV_FILE [TARGET_FOLDER]

The CSV (gzip or plain) is that of the CRAN package `onlineretail`. Lines without a customer are left out, and so are
lines without a product (postage, discounts, manual entries), whose codes do not begin with five digits. All other
lines, also returns, are kept with customer, product, quantity and minute.
"""

import sys
from pathlib import Path

import polars as pl
from embed_ml_latest_small import TARGET, write

NAME = "online-retail"


def embed(source: Path, target: Path) -> None:
    """Write the invoice lines and products of `source` to `target`, and print how many lines were left out."""
    lines = pl.read_csv(source, infer_schema_length=0)
    lines = lines.with_columns(
        pl.col("StockCode").str.strip_chars().str.to_uppercase().alias("item"),
        pl.col("CustomerID").cast(pl.Float64).cast(pl.Int32).alias("user"),
        pl.col("Quantity").cast(pl.Float64).cast(pl.Int32).alias("rating"),
        pl.col("InvoiceDate").str.to_datetime("%Y-%m-%d %H:%M:%S").dt.epoch("s").cast(pl.Int32).alias("time"),
        pl.col("UnitPrice").cast(pl.Float64).alias("price"),
        pl.col("Description").str.strip_chars().str.replace_all(r"\s+", " ").alias("title"),
    )
    anybody = lines["user"].is_null()
    no_product = ~anybody & ~lines["item"].str.contains(r"^\d{5}")
    kept = lines.filter(~anybody & ~no_product)
    print(f"{lines.height:,} lines: {anybody.sum():,} without a customer, {no_product.sum():,} without a product, ")
    print(f"{kept.height:,} kept of {kept['user'].n_unique():,} customers and {kept['item'].n_unique():,} products")
    # The title of a product is the most frequent one, its price the median.
    products = (
        kept.group_by("item")
        .agg(pl.col("title").drop_nulls().mode().sort().first(), pl.col("price").filter(pl.col("price") > 0).median())
        .sort("item")
        .with_columns(pl.col("price").round(2).cast(pl.Float32))
    )
    target.mkdir(parents=True, exist_ok=True)
    write(
        kept.select("user", "item", "rating", "time").sort("user", "time", "item", "rating"),
        target / f"{NAME}-ratings.parquet",
    )
    write(products, target / f"{NAME}-items.parquet")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    embed(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) == 3 else TARGET)
