"""Changed item columns: only values that a column can hold are stored, and the newer source wins."""

import json
import logging
import math
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from recfusion.cli import main as cli
from recfusion.data.interactions import Interactions
from recfusion.data.load import load
from recfusion.experiments.train import train
from recfusion.inference.bundle import Bundle
from recfusion.inference.bundle_files import sealed
from recfusion.server.column_values import changed_column, fits
from recfusion.server.event_store import Store
from running import Client, running, settings_for
from shop import shop

BIG = 10**401
KINDS: dict[str, tuple[pl.DataType, Any, list[Any], list[Any]]] = {
    # column: type, value in the table, JSON values that fit, JSON values that do not
    "i8": (pl.Int8(), 1, [-128, 127, 127.0, 2.5, None], [-129, 128, 127.5, -129.0, BIG, "1", True, 1e300]),
    "i64": (pl.Int64(), 1, [-(2**63), 2**63 - 1, 0.5], [-(2**63) - 1, 2**63, BIG, False]),
    "u8": (pl.UInt8(), 1, [0, 255, 255.0, 0.5], [-1, 256, -1.0, -0.5, 255.5, 300.0, BIG]),
    "u64": (pl.UInt64(), 1, [0, 2**64 - 1], [-1, 2**64, BIG, "0"]),
    "f32": (pl.Float32(), 1.0, [3.4e38, -3.4e38, 7], [BIG, -BIG]),  # a model holds it in 64 bits
    "f64": (pl.Float64(), 1.0, [1.7e308, 2**1000, 5e-324], [BIG, -BIG, "1.0", True]),
    "text": (pl.String(), "x", ["", "a\x00b", "🫖" * 1000], [1, True, 1.5]),
    "flag": (pl.Boolean(), True, [True, False, None], [0, 1, "true"]),
    "day": (pl.Date(), date(2026, 1, 1), ["2026-02-28", "0001-01-01", "9999-12-31"], ["2026-02-30", "now", 5, True]),
    "when": (pl.Datetime("us"), datetime(2026, 1, 1), ["2026-02-28T12:30:00"], ["2026-02-28T25:00:00", "", 1]),
    "many": (pl.List(pl.Int64()), [1], [None], [1, "1", True]),
}


@pytest.fixture(scope="module")
def bundle(groups: Interactions) -> Bundle:
    made = shop(groups)
    columns = [pl.Series(name, [value] * len(made.items), dtype=kind) for name, (kind, value, _, _) in KINDS.items()]
    return replace(made, items=made.items.with_columns(columns))


@pytest.fixture
def folder(bundle: Bundle, tmp_path: Path) -> Path:
    return bundle.save(tmp_path / "shop")


@pytest.fixture
def client(folder: Path) -> Iterator[Client]:
    with running(settings_for(folder)) as client:
        yield client


def put(client: Client, columns: dict[str, Any], item: str = "i01") -> Any:
    return client.ask("PUT", "/items", {"items": [{"item": item, "columns": columns}]})


def works(client: Client) -> bool:
    """Return whether lists and `/ready` work."""
    asked = client.post("/recommend", {"history": [], "k": 40})
    return asked.status == 200 and len(asked.json["items"]) == 40 and client.get("/ready").status == 200


def column(client: Client, name: str, item: str = "i01") -> Any:
    found = client.post("/recommend", {"history": [], "k": 40}).json["items"]
    return next(one["columns"][name] for one in found if one["item"] == item)


def test_values_at_and_beyond_the_bounds_of_each_column_type_never_break_the_service(folder: Path) -> None:
    with running(settings_for(folder)) as client:
        for name, (_, _, good, bad) in KINDS.items():
            for value in good:
                assert put(client, {name: value}).status == 200, (name, value)
                assert works(client), (name, value)
            for value in bad:
                reply = put(client, {name: value})
                assert (reply.status, reply.json["field"]) == (422, f"items.0.columns.{name}"), (name, value)
                assert works(client), (name, value)
    with running(settings_for(folder)) as client:
        assert works(client)
        assert client.get("/ready").json["ignored_columns"] == []
        assert column(client, "u64") == 2**64 - 1
        assert column(client, "day") == "9999-12-31"
        assert column(client, "i8") is None


def test_stored_values_that_do_not_fit_are_ignored_and_reported(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They come from an older version, or from a model whose columns had other types."""
    store = Store(settings_for(folder).events)
    with store.writing():
        store.change({"i01": {"u8": -1, "f64": BIG, "stock": 3}, "i02": {"text": 7}})
        store._db.execute("UPDATE changes SET value = 'no JSON' WHERE name = 'text'")
    store.close()
    service_log = logging.getLogger("recfusion.server.service")
    service_log.addHandler(caplog.handler)
    with running(settings_for(folder)) as client:
        assert works(client)
        assert client.get("/ready").json["ignored_columns"] == ["f64", "text", "u8"]
        assert column(client, "stock") == 3
        assert column(client, "u8") == 1
        assert put(client, {"u8": 9}).status == 200
        assert column(client, "u8") == 9
    service_log.removeHandler(caplog.handler)
    assert '"columns": ["f64", "text", "u8"]' in caplog.text


def test_the_checked_values_are_those_that_a_column_can_be_made_of() -> None:
    for kind, value, good, bad in KINDS.values():
        series = pl.Series("c", [value, None], dtype=kind)
        for one in good:
            assert fits(kind, one)
            assert len(changed_column(series, {1: one})) == 2
        assert not any(fits(kind, one) for one in [*bad, math.nan, math.inf, [], {}])
    assert changed_column(pl.Series("price", [3, 4]), {0: 2.5}).to_list() == [2.5, 4.0]
    assert changed_column(pl.Series("stock", [3, 2**60 + 1]), {0: 7.0}).to_list() == [7, 2**60 + 1]


def test_a_newer_item_table_wins_over_older_changes_and_newer_changes_win_over_it(
    bundle: Bundle, tmp_path: Path
) -> None:
    now = time.time()
    folder = replace(bundle, items_time=now - 100).save(tmp_path / "shop")
    with running(settings_for(folder)) as client:
        put(client, {"stock": 0})
        put(client, {"stock": 50}, "i02")
        assert (column(client, "stock"), column(client, "stock", "i02")) == (0, 50)
        restocked = bundle.items.with_columns(stock=pl.lit(9))
        replace(bundle, items=restocked, items_time=now + 100).save(folder)
        assert client.post("/admin/reload", {}).status == 200
        assert (column(client, "stock"), column(client, "stock", "i02")) == (9, 9)
        # A table that was read before the change and trained for long is the older source.
        replace(bundle, items=restocked, items_time=now - 50).save(folder)
        assert client.post("/admin/reload", {}).status == 200
        assert (column(client, "stock"), column(client, "stock", "i02")) == (0, 50)


def test_cleared_changes_give_way_to_the_item_table_also_after_a_restart(folder: Path) -> None:
    with running(settings_for(folder)) as client:
        before = {item: column(client, "stock", item) for item in ("i01", "i02")}
        for item in before:
            put(client, {"stock": 77, "price": 1.5}, item)
        assert client.ask("DELETE", "/items?item=i01&column=stock").json == {"cleared": 1}
        assert (column(client, "stock"), column(client, "price")) == (before["i01"], 1.5)
        assert column(client, "stock", "i02") == 77
        put(client, {"stock": 78})
        assert column(client, "stock") == 78
        assert client.ask("DELETE", "/items").json == {"cleared": 4}
        assert client.ask("DELETE", "/items?itme=i01").status == 422
    with running(settings_for(folder)) as client:
        assert {item: column(client, "stock", item) for item in before} == before


def test_the_command_clears_changes_of_a_running_service(
    folder: Path, client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = column(client, "stock")
    put(client, {"stock": 77})
    events = str(settings_for(folder).events)
    monkeypatch.setattr("sys.argv", ["recfusion", "events", "clear", events, "--item", "i01", "--column", "stock"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert not stop.value.code
    assert "1 changed value cleared" in capsys.readouterr().err
    assert column(client, "stock") == before


def test_a_model_folder_knows_when_its_item_file_was_written(tmp_path: Path) -> None:
    rows = [(f"u{n % 20}", f"i{n % 7}") for n in range(140)]
    (tmp_path / "orders.csv").write_text("user,item\n" + "".join(f"{u},{i}\n" for u, i in rows), encoding="utf-8")
    (tmp_path / "items.csv").write_text("item,stock\n" + "".join(f"i{n},1\n" for n in range(7)), encoding="utf-8")
    os.utime(tmp_path / "items.csv", (1_700_000_000, 1_700_000_000))
    data = load(tmp_path / "orders.csv", items=tmp_path / "items.csv")
    folder = train("popularity", data, all_users=True).save(tmp_path / "model")
    assert Bundle.load(folder).items_time == 1_700_000_000
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config.pop("items_time") == 1_700_000_000
    (folder / "config.json").write_text(json.dumps(sealed(config)), encoding="utf-8")
    assert Bundle.load(folder).items_time is None


def test_only_the_admin_key_clears_changes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("READ", "a key that may read")
    monkeypatch.setenv("ADMIN", "a key that may write")
    with running(settings_for(folder, api_key_env="READ", admin_key_env="ADMIN")) as client:
        for key, status in (("a key that may read", 403), ("a key that may write", 200)):
            assert client.ask("DELETE", "/items", headers={"Authorization": f"Bearer {key}"}).status == status
