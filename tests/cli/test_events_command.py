"""`recfusion events` on the command line."""

import io
import json
from pathlib import Path

import polars as pl
import pytest

from recfusion.cli import main as cli
from recfusion.server.event_store import Event, Store
from recfusion.server.loaded_models import model_tag


@pytest.fixture
def file(tmp_path: Path) -> Path:
    store = Store(tmp_path / "shop.events.sqlite")
    with store.writing():
        store.add([Event("ann@example.org", "tea", time=1), Event("bob", "cup", time=2), Event("bob", "tea", "return")])
        store.add([Event("bob", "cup", "click", recommendation=f"{model_tag('shop')}07{'0' * 24}")])
        store.add_shown({(1, "shop", "", 7): 4, (1, "new", "home", 9): 2}, {(1, "tea"): 3})
    store.close()
    return tmp_path / "shop.events.sqlite"


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["recfusion", "events", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return int(str(stop.value.code or 0))


def test_export_report_and_forget(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "export", str(file), "--out", str(tmp_path / "new.csv")) == 0
    rows = pl.read_csv(tmp_path / "new.csv").rows()
    assert rows[:2] == [("ann@example.org", "tea", 1.0, 1), ("bob", "cup", 1.0, 2)]
    assert rows[2][:3] == ("bob", "tea", -1.0)
    capsys.readouterr()
    assert run(monkeypatch, "report", str(file), "--json") == 0
    report = json.loads(capsys.readouterr().out)
    clicked = {one["name"]: (one["lists"], one["total"]) for one in report["outcomes"][:2]}
    assert clicked == {"shop": (4, 1), "new": (2, 0)}
    assert run(monkeypatch, "report", str(file)) == 0
    assert "click-through, shop against new: +25.00 %" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.StringIO("bob\n"))
    assert run(monkeypatch, "forget", str(file)) == 0
    assert "3 events of 1 user deleted" in capsys.readouterr().err
    assert run(monkeypatch, "forget", str(file), "--user", "ann@example.org") == 0
    assert b"ann@example.org" not in file.read_bytes()


def test_a_file_that_is_not_there_is_one_sentence_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "report", str(tmp_path / "none.sqlite")) == 2
    assert "Expected a file of events" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_ids_to_forget_may_be_written_as_in_any_file(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(file)
    with store.writing():
        store.add([Event("1000", "tea"), Event("318", "tea")])
    store.close()
    monkeypatch.setattr("sys.stdin", io.StringIO(" 1000 \n318.0\r\n"))
    assert run(monkeypatch, "forget", str(file)) == 0
    assert "2 events of 2 users deleted" in capsys.readouterr().err


def test_training_adds_events_to_orders_with_quantities_and_iso_dates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Eight customers bought the first six products; in the events one returned tea, one was forgotten, one is new."""
    lines = [f"c{user};{item};1;2026-01-0{user + 1}" for user in range(8) for item in ("tea", *"abcde")]
    (tmp_path / "orders.csv").write_text("\n".join(["customer;product;quantity;date", *lines, ""]), encoding="utf-8")
    store = Store(tmp_path / "events.sqlite")
    with store.writing():
        store.add([Event("c0", "tea", "return"), *(Event("new", item) for item in "abcde")])
        store.forget("c1")
    store.close()
    orders, events = str(tmp_path / "orders.csv"), str(tmp_path / "events.sqlite")
    options = ["--data", orders, "--events", events, "--all-users", "--out", str(tmp_path / "m"), "--json"]
    monkeypatch.setattr("sys.argv", ["recfusion", "train", "popularity", *options])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 0
    found = json.loads(capsys.readouterr().out)
    counts = dict(pl.read_parquet(tmp_path / "m" / "items.parquet").select("item", "train_count").rows())
    assert counts == {"tea": 6, **dict.fromkeys("abcde", 8)}
    assert found["train_users"] == 8
    notes = " ".join(found["protocol"]["read"]["notes"])
    assert "events added to the orders: 6 of 2 users, returns among them: 1" in notes
    assert "6 rows of forgotten users left out" in notes
