"""Forgetting a user: the id leaves the write-ahead log too, also while another program reads the file."""

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from recfusion.cli import main as cli
from recfusion.data.interactions import Interactions
from recfusion.server import app, event_store
from recfusion.server.event_store import Event, Store
from running import running, settings_for
from shop import shop

ANN = "ann@example.org"


@pytest.fixture(scope="module")
def folder(groups: Interactions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shop(groups).save(tmp_path_factory.mktemp("served") / "shop")


@contextmanager
def reading(events: Path) -> Iterator[None]:
    """Read an old state of the file, as a backup program does."""
    with closing(sqlite3.connect(events, isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM events").fetchone()
        yield


def held(events: Path) -> bool:
    """Return whether the files of the store hold the id."""
    return any(ANN.encode() in file.read_bytes() for file in events.parent.glob("events.sqlite*"))


def test_the_id_leaves_the_log_once_no_other_program_reads_and_the_answer_is_honest(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = tmp_path / "events.sqlite"
    monkeypatch.setattr(app, "ERASE_SECONDS", 0.3)
    with running(settings_for(folder).model_copy(update={"events": events})) as client:
        client.post("/events", {"user": ANN, "item": "i01"})
        with reading(events):
            reply = client.post("/events/forget", {"user": ANN})
            assert (reply.status, reply.json) == (202, {"deleted": 1, "erased": False})
            assert client.post("/events", {"user": "bob", "item": "i01"}).status == 201
            assert held(events)
        until = time.monotonic() + 60
        while held(events):
            assert time.monotonic() < until, "the id is still in the log"
            time.sleep(0.05)
        assert client.post("/events/forget", {"user": "bob"}).json == {"deleted": 1, "erased": True}


def test_other_requests_are_answered_while_a_deletion_waits(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = tmp_path / "events.sqlite"
    monkeypatch.setattr(app, "ERASE_SECONDS", 600.0)
    with running(settings_for(folder).model_copy(update={"events": events})) as client:
        client.post("/events", {"user": ANN, "item": "i01"})
        waiting = threading.Thread(target=client.post, args=("/events/forget", {"user": ANN}))
        with reading(events):
            waiting.start()
            with closing(Store(events)) as store:
                while store.is_erased():
                    time.sleep(0.01)
            assert client.get("/live").status == 200
            assert client.post("/recommend", {"user": ANN}).status == 200
            assert client.post("/events", {"user": "bob", "item": "i01"}).status == 201
            assert waiting.is_alive()
        waiting.join(60)
        assert not waiting.is_alive()
    assert not held(events)


def test_a_deletion_during_the_erasure_of_another_needs_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, real = Store(tmp_path / "events.sqlite"), event_store._checkpoint
    with store.writing():
        store.add([Event("bob", "i01"), Event(ANN, "i01")])
        store.forget("bob")

    def checkpoint_then_forget(db: sqlite3.Connection) -> bool:
        done = real(db)
        with store.writing():
            store.forget(ANN)
        return done

    monkeypatch.setattr(event_store, "_checkpoint", checkpoint_then_forget)
    assert store.erase(0)
    assert not store.is_erased()
    monkeypatch.setattr(event_store, "_checkpoint", real)
    assert store.erase(0)
    assert store.is_erased()
    assert not held(store.path)
    store.close()


def test_a_killed_service_erases_what_it_had_to_when_it_starts_again(folder: Path, tmp_path: Path) -> None:
    events = tmp_path / "events.sqlite"
    store = Store(events)
    with store.writing():
        store.add([Event(ANN, "i01")])
    with store.writing():
        store.forget(ANN)
    assert held(events)
    with running(settings_for(folder).model_copy(update={"events": events})):
        until = time.monotonic() + 60
        while held(events):
            assert time.monotonic() < until, "the id is still in the log"
            time.sleep(0.05)
    store.close()


def test_the_command_says_that_another_program_keeps_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    events = tmp_path / "events.sqlite"
    store = Store(events)
    with store.writing():
        store.add([Event(ANN, "i01")])
    monkeypatch.setattr("recfusion.server.event_store._ERASE_SECONDS", 0.2)
    monkeypatch.setattr("sys.argv", ["recfusion", "events", "forget", str(events), "--user", ANN])
    with reading(events), pytest.raises(SystemExit) as stop:
        cli.main()
    shown = capsys.readouterr().err
    assert stop.value.code == 2
    assert "The events are deleted (1)" in shown
    assert "another program reads the file" in shown
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert not stop.value.code
    assert not held(events)
    store.close()
