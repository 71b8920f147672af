"""Which columns of an item table become features of a data set."""

import polars as pl
import pytest

import recfusion as rf
from recfusion.data.features import with_features


@pytest.mark.parametrize(("asked", "columns"), [(None, ("Kategorie",)), ("Lagerstand", ("Lagerstand",))])
def test_stock_images_and_links_are_features_only_if_they_are_named(
    asked: str | None, columns: tuple[str, ...]
) -> None:
    orders = pl.DataFrame({"user": [f"u{n}" for n in range(24)], "item": [n % 6 for n in range(24)]})
    items = pl.DataFrame(
        {
            "item": range(6),
            "Kategorie": ["a", "b"] * 3,
            "Lagerstand": [5, 0, 5, 0, 2, 2],
            "Bild": [f"https://shop.example/{n % 3}.jpg" for n in range(6)],
        }
    )
    kept = rf.Preparation(min_items_per_user=1, min_users_per_item=1)
    data = with_features(rf.load(orders, kept, items=items, feature_columns=asked), "features")
    assert data.item_features is not None
    assert data.item_features.recipe is not None
    assert tuple(column.name for column in data.item_features.recipe.columns) == columns
