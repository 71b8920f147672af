"""From the messy export of a shop to served lists, with two commands and the default model."""

import csv
from pathlib import Path

import pytest
from messy_shop import CANCELLED, ENCODING, write_shop

from recfusion.cli import main as cli
from recfusion.inference.bundle import Bundle
from recfusion.server.config import Settings
from running import running

SHOP = f"""folder = "shop"
orders = "orders.csv"
products = "products.csv"
events = "shop.events.sqlite"
[source]
rows = "Status != '{CANCELLED}'"
[serve]
histories = "orders.csv"
"""


def command(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr("sys.argv", ["recfusion", *words])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert not stop.value.code


def test_two_commands_serve_the_default_model_of_a_messy_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = write_shop(tmp_path, seed=2, lines=450)
    (tmp_path / "shop.toml").write_text(SHOP, encoding="utf-8")
    command(monkeypatch, "nightly", str(tmp_path / "shop.toml"))
    started = list[Settings]()
    monkeypatch.setattr("recfusion.cli.serve._start", started.append)
    command(monkeypatch, "serve", "--config", str(tmp_path / "shop.toml"))
    bundle = Bundle.load(tmp_path / "shop")
    assert bundle.name == "thinning"
    assert len(bundle.items) == true.products  # also those that nobody bought yet
    assert bundle.roles == {"title": "Bezeichnung", "price": "Preis", "stock": "Bestand", "date": "Neu seit"}
    with (tmp_path / "orders.csv").open(encoding=ENCODING, newline="") as file:
        rows = [row for row in csv.reader(file, delimiter=";") if len(row) == 8 and row[1] == "kunde3@beispiel.de"]
    cancelled = {row[2] for row in rows if row[7] == CANCELLED and int(row[4]) > 0}
    bought = {
        row[2] for row in rows if row[7] == "bezahlt" and row[4].lstrip("-").isdecimal() and "31.02" not in row[6]
    }
    with running(started[0]) as client:
        asked = {"user": "kunde3@beispiel.de", "k": true.products, "why": 1}
        found = client.post("/recommend", asked).json
        listed = [one["item"] for one in found["items"]]
        assert found["basis"] == "history"
        assert not {*listed} & bought
        assert cancelled - bought <= {*listed}
        in_stock = client.post("/recommend", asked | {"where": "Bestand > 0"}).json["items"]
        assert len(in_stock) < len(listed)
        assert all(one["columns"]["Bestand"] > 0 for one in in_stock)
        assert "ü" in "".join(one["name"] for one in found["items"])
