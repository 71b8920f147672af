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
        store.add_shown({(1, "shop", 7): 4, (1, "new", 9): 2})
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
    assert pl.read_csv(tmp_path / "new.csv").rows() == [("ann@example.org", "tea", 1), ("bob", "cup", 2)]
    capsys.readouterr()
    assert run(monkeypatch, "report", str(file), "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert {one["model"]: (one["lists"], one["clicked"]) for one in report["models"]} == {"shop": (4, 1), "new": (2, 0)}
    assert run(monkeypatch, "report", str(file)) == 0
    assert "shop against new: +25.00 points" in capsys.readouterr().out
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
