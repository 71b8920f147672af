"""The roles of the columns of item tables: by names in several languages, by types and values, or as asked."""

from datetime import date
from typing import Any

import polars as pl
import pytest

from recfusion.core.errors import InputError
from recfusion.data.column_roles import column_roles, parse_roles

GERMAN: dict[str, list[Any]] = {
    "item": ["A-1", "A-2"],
    "Bezeichnung": ["Tee", "Käse"],
    "Warengruppe": ["Getränk", "Essen"],
    "Einkaufspreis": [1.0, 2.0],
    "Preis": [2.5, 1208.06],
    "Bestand": [0, 4],
    "Neu seit": [date(2024, 1, 1), date(2024, 2, 1)],
    "Bild": ["https://shop.example/a.jpg", None],
    "Produktlink": ["https://shop.example/a", "https://shop.example/b"],
    "Beschreibung": ["Ein feiner Tee aus dem Norden.", "Reif."],
    "Aktion": [True, False],
}
ROLES = {
    "title": "Bezeichnung",
    "price": "Preis",
    "stock": "Bestand",
    "image": "Bild",
    "link": "Produktlink",
    "date": "Neu seit",
    "flag": "Aktion",
    "text": "Beschreibung",
}


def test_the_roles_of_a_german_product_table() -> None:
    assert column_roles(pl.DataFrame(GERMAN)) == ROLES


@pytest.mark.parametrize(
    ("role", "name", "values"),
    [
        ("price", "Prix unitaire", [1.5, 2]),
        ("price", "price_eur", [1, 2]),
        ("price", "Precio de venta", [1, 2]),
        ("price", "Prezzo", [1, 2]),
        ("price", "Cena", [1, 2]),
        ("price", "VerkaufsPreis", [1, 2]),
        ("stock", "Lagerbestand", [0, 2]),
        ("stock", "Lagerstand", [0, 2]),
        ("stock", "stock_level", [0, 2]),
        ("stock", "in_stock", [True, False]),
        ("stock", "Voorraad", [0, 2]),
        ("stock", "giacenza", [0, 2]),
        ("image", "image_url", ["https://e.example/1", "https://e.example/2"]),
        ("image", "media", ["/img/a.PNG", "/img/b.webp?w=3"]),
        ("link", "page", ["https://e.example/1", "https://e.example/2"]),
        ("link", "URL", ["/shop/1", "/shop/2"]),
        ("text", "Descrizione", ["lungo", "corto"]),
        ("text", "notes", ["many words " * 9, "a few words " * 9]),
        ("flag", "bio", ["ja", "nein"]),
        ("flag", "is_new", [0, 1]),
        ("date", "released", [date(2024, 1, 1), None]),
        ("date", "year", [1994, 2001]),
    ],
)
def test_one_column_has_its_role(role: str, name: str, values: list[Any]) -> None:
    table = pl.DataFrame({"item": [1, 2], "title": ["a", "b"], name: values})
    assert column_roles(table) == {"title": "title", role: name}


def test_a_name_without_fitting_values_has_no_role() -> None:
    table = pl.DataFrame({"item": [1, 2], "price": ["cheap", "dear"], "image": ["two words", "x"], "stock": [[1], [2]]})
    assert column_roles(table) == {}


def test_the_plain_name_wins_over_longer_ones_and_a_description_is_no_title_beside_a_name() -> None:
    table = pl.DataFrame({"item": [1], "old price": [2.0], "price": [1.0], "descripcion": ["x"], "nombre": ["y"]})
    assert column_roles(table) == {"title": "nombre", "price": "price", "text": "descripcion"}


def test_a_column_is_asked_for_or_ruled_out() -> None:
    asked = parse_roles("price=Einkaufspreis, link=none")
    assert asked == {"price": "Einkaufspreis", "link": None}
    found = column_roles(pl.DataFrame(GERMAN), asked)
    assert found == {**{role: name for role, name in ROLES.items() if role != "link"}, "price": "Einkaufspreis"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("cost=Preis", "choose one of title, price, stock, image, link, date, flag, text"),
        ("price", "such as price=Preis"),
        ("price=Preise", "Expected a column 'Preise' of the item table for the role price, which has: item, Bez"),
        ("price=Preis,price=Bestand", "price twice"),
        ("price=Bezeichnung", "Expected numbers in the column 'Bezeichnung' for the role price"),
    ],
)
def test_wrong_roles_are_one_sentence(text: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        column_roles(pl.DataFrame(GERMAN), parse_roles(text))
