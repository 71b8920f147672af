"""Adds new products to a trained model and recommends them at once, on the embedded shop.

    python examples/new_products.py

Invoices become interactions (returns cancel purchases), words of the descriptions and bins of the price become item
features, and a product that nobody has bought yet is recommended because of the words that it shares with others.
"""

# ruff: noqa: T201  (an example prints)

from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

import recfusion as rf
from recfusion.inference.new_items import add_items

NEW = pl.DataFrame(
    {
        "item": ["NEW-1", "NEW-2"],
        "title": ["REGENCY TEAPOT BLUE ROSES", "VINTAGE SPOTTY LUNCH BAG"],
        "price": [9.95, 1.65],
    }
)
BASKET = ["22423", "22697", "22698", "22699"]  # a cake stand, and teacups in three colours


def main(tune_trials: int = 0) -> pl.DataFrame:
    """Train on the shop, add two products, and return the recommendations for a basket of teacups."""
    data = rf.load("online-retail")
    print(*(f"- {note}" for note in data.report.notes), sep="\n")
    bundle = rf.train("thinning-features", data, {"tune_trials": tune_trials}, signals="features")
    with TemporaryDirectory() as folder:
        added = add_items(bundle.save(Path(folder) / "shop"), NEW, Path(folder) / "shop2")
        print(f"\n{added.added} products added; the model knows {added.known} of {added.given} of their features.\n")
        found = rf.recommend(rf.Bundle.load(Path(folder) / "shop2"), {"somebody": BASKET}, k=20, why=3).frame
    for row in found.iter_rows(named=True):
        because = "; ".join(reason["text"] for reason in row["because"])
        print(f"{row['rank']:>3} {'new' if row['item'].startswith('NEW') else '   '} {row['title']:<36} {because}")
    return found


if __name__ == "__main__":
    main()
