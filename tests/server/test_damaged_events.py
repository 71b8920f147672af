"""A damaged file of events is refused in one sentence."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from recfusion.cli import main as cli
from recfusion.server.event_store import Event, Store


def test_a_damaged_file_of_events_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "events.db"
    with closing(Store(path)) as store, store.writing():
        store.add(Event(f"u{n}", "i1", time=1e9 + n) for n in range(3000))
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = DELETE")
    content = bytearray(path.read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 40_960] = bytes(range(256)) * 160
    path.write_bytes(content)
    monkeypatch.setattr("sys.argv", ["recfusion", "events", "export", str(path), "--out", str(tmp_path / "rows.csv")])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "has damaged rows (database disk image is malformed): use a backup of it." in capsys.readouterr().err
    assert not (tmp_path / "rows.csv").exists()
