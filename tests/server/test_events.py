"""Recorded events and item columns: they are on disk, change the next list, and can be exported and deleted."""

import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.server.event_reports import all_rows, purchases_and_returns
from recfusion.server.event_store import Event, Store
from recfusion.server.outcomes import compare_outcomes
from running import Client, running, settings_for
from shop import shop

ANN = "ann@example.org"


@pytest.fixture(scope="module")
def folder(groups: Interactions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shop(groups).save(tmp_path_factory.mktemp("served") / "shop")


@pytest.fixture
def client(folder: Path) -> Iterator[Client]:
    settings = settings_for(folder)
    for file in folder.parent.glob("*.sqlite*"):
        file.unlink()
    with running(settings) as client:
        yield client


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "events.sqlite")
    yield store
    store.close()


def add(store: Store, *events: Event) -> None:
    with store.writing():
        store.add(events)


def list_of(client: Client, user: str, k: int = 40) -> list[str]:
    return [place["item"] for place in client.post("/recommend", {"user": user, "k": k}).json["items"]]


def test_the_next_list_knows_an_event_a_return_takes_it_back_and_a_click_changes_nothing(client: Client) -> None:
    plain = list_of(client, ANN)
    assert client.post("/events", {"user": ANN, "item": "i01", "kind": "click"}).status == 201
    assert list_of(client, ANN) == plain
    client.post("/events", {"user": ANN, "item": "i01"})
    after = list_of(client, ANN)
    assert "i01" not in after
    assert all(item.startswith("i0") for item in after[:5])
    assert list_of(client, "bob") == plain
    client.post("/events", {"user": ANN, "item": "i01", "kind": "return"})
    assert list_of(client, ANN)[:20] == [item for item in plain if item != "i01"][:20]  # a returned item stays away


def test_known_users_come_from_a_file_and_are_strangers_once_forgotten(folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "histories.csv"
    table.write_text("user,item\n" + "".join(f"{ANN},i0{n}\n" for n in range(1, 4)) + "7,i11\n", encoding="utf-8")
    events = tmp_path / "events.sqlite"
    settings = settings_for(folder).model_copy(update={"histories": (table,), "events": events})
    with running(settings) as client:
        assert not {"i01", "i02", "i03"} & set(list_of(client, ANN))
        assert "i11" not in list_of(client, "7")
        client.post("/events", {"user": ANN, "item": "i04"})
        client.post("/events", {"user": ANN, "item": "i02", "kind": "return"})
        assert not {"i01", "i02", "i03", "i04"} & set(list_of(client, ANN))
        assert "i02" in list_of(client, "7")
        assert client.post("/events/forget", {"user": ANN}).json == {"deleted": 2, "erased": True}
        assert {"i01", "i02", "i03", "i04"} <= set(list_of(client, ANN))
    assert ANN.encode() not in b"".join(file.read_bytes() for file in tmp_path.glob("events.sqlite*"))


def test_changed_columns_are_filtered_by_and_outlive_the_service(folder: Path, client: Client) -> None:
    changes = [{"item": f"i{n:02d}", "columns": {"stock": 50 + n, "price": None}} for n in range(10, 15)]
    reply = client.ask("PUT", "/items", {"items": [*changes, {"item": "brand new", "columns": {"stock": 99}}]})
    assert reply.json | {"note": None} == {"changed": 6, "added": [], "unknown": ["brand new"], "note": None}
    assert reply.json["note"].startswith("The model reads no features of items")
    asked = {"history": ["i01"], "k": 40, "where": "stock >= 50"}
    found = client.post("/recommend", asked).json["items"]
    assert {one["item"] for one in found} == {f"i{n:02d}" for n in range(10, 15)}
    assert {one["columns"]["price"] for one in found} == {None}
    client.ask("PUT", "/items", {"items": [{"item": "i10", "columns": {"stock": 0, "title": "A golden pot"}}]})
    assert client.get("/items?query=goldn").json["items"][0]["item"] == "i10"
    with running(settings_for(folder)) as again:
        found = again.post("/recommend", asked).json["items"]
        assert {one["item"] for one in found} == {f"i{n:02d}" for n in range(11, 15)}
        assert again.get("/items?query=goldn").json["items"][0]["item"] == "i10"


@pytest.mark.parametrize(
    ("columns", "field"),
    [({"colour": 1}, "colour"), ({"stock": "many"}, "stock"), ({"new": 1}, "new"), ({"train_count": 5}, "train_count")],
)
def test_a_column_that_cannot_take_a_value_is_refused_and_nothing_is_changed(
    client: Client, columns: dict[str, object], field: str
) -> None:
    reply = client.ask(
        "PUT", "/items", {"items": [{"item": "i01", "columns": {"stock": 77}}, {"item": "i02", "columns": columns}]}
    )
    assert (reply.status, reply.json["field"]) == (422, f"items.1.columns.{field}")
    assert client.post("/recommend", {"history": ["i05"], "where": "stock == 77"}).status == 422


def test_the_file_is_its_owners_alone_also_when_it_was_there(tmp_path: Path) -> None:
    path = tmp_path / "events.sqlite"
    Store(path).close()
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    Store(path).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_commit_waits_for_the_disk(store: Store) -> None:
    full = 2
    assert store.rows("PRAGMA synchronous") == [(full,)]
    assert store.rows("PRAGMA journal_mode") == [("wal",)]


def test_of_a_batch_all_events_are_recorded_or_none(store: Store) -> None:
    add(store, Event("ann", "i00"))
    with pytest.raises(sqlite3.Error), store.writing():
        store.add([Event("ann", "i01"), Event("ann", None)])  # type: ignore[arg-type]
    assert list(store.user_items("ann").have) == ["i00"]


def test_a_second_connection_leaves_the_locks_of_the_first_alone(store: Store) -> None:
    """Closing a file releases the locks of its process: SQLite then took a file in use for an unused one."""
    Store(store.path).close()
    code = f"import sqlite3; c = sqlite3.connect({str(store.path)!r}); c.execute('SELECT * FROM state'); c.close()"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert store.path.with_name("events.sqlite-wal").exists()
    add(store, Event("u", "i"))
    assert sqlite3.connect(store.path).execute("SELECT user FROM events").fetchall() == [("u",)]


def test_a_file_that_cannot_be_written_or_is_no_event_store_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("This is a text and no database, and a long one at that.\n" * 9, encoding="utf-8")
    with pytest.raises(InputError, match="--events"):
        Store(tmp_path / "text")
    with pytest.raises(InputError, match="Expected a file of events"):
        Store(tmp_path / "missing", create=False)


def test_the_export_holds_what_users_have_and_with_all_every_event(store: Store) -> None:
    add(
        store,
        Event("a", "x", time=5),
        Event("a", "y", time=1),
        Event("b", "x", "click"),
        Event("a", "y", "return", time=2),
    )
    add(
        store,
        Event("b", "z", time=7),
        Event("b", "z", "return", time=8),
        Event("b", "z", time=9),
        Event("b", "z", "click"),
    )
    assert purchases_and_returns(store).rows() == [
        *(("a", "x", 1.0, 5), ("a", "y", 1.0, 1), ("a", "y", -1.0, 2)),
        *(("b", "z", 1.0, 7), ("b", "z", -1.0, 8), ("b", "z", 1.0, 9)),
    ]
    assert all_rows(store)["kind"].to_list() == ["have", "have", "click", "return", "have", "return", "have", "click"]


def test_old_events_expire_by_the_time_they_were_received(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1000 * 86400.0)
    add(store, Event("a", "old", time=0))
    monkeypatch.setattr(time, "time", lambda: 1003 * 86400.0)
    add(store, Event("a", "new", time=0))
    with store.writing():
        assert store.expire(2) == 1
    assert (list(store.user_items("a").have), store.user_items("a").returned) == (["new"], {})


def test_lists_of_the_service_are_counted_for_click_through(folder: Path, client: Client) -> None:
    for user in ("a", "b", "c"):
        list_id = client.post("/recommend", {"user": user}).json["recommendation_id"]
    client.post("/events", {"user": "c", "item": "i01", "recommendation_id": list_id})
    until = time.monotonic() + 10
    store = Store(settings_for(folder).events)
    while not (rates := compare_outcomes(store)[0]) or rates[0].lists < 3:
        assert time.monotonic() < until, "the lists were not counted"
        time.sleep(0.05)
    store.close()
    found = [(one.measure, one.name, one.lists, one.total) for one in rates]
    assert found == [("click-through", "shop", 3, 1), ("conversion", "shop", 3, 1)]


@pytest.mark.parametrize("stored", [1000, 1000.0, "1000", " 1000 ", "1000.0"])
@pytest.mark.parametrize("asked", [1000, " 1000 ", "1000.0"])
def test_any_spelling_of_an_id_is_forgotten(client: Client, stored: object, asked: object) -> None:
    assert client.post("/events", {"user": stored, "item": " i01 "}).status == 201
    assert "i01" not in list_of(client, "1000")
    assert client.post("/events/forget", {"user": asked}).json == {"deleted": 1, "erased": True}


def test_an_id_of_blanks_is_refused(client: Client) -> None:
    assert client.post("/events", {"user": " ", "item": "i01"}).status == 422


@pytest.mark.parametrize("column", ["user", "item", "time", "quantity"])
def test_damaged_rows_are_one_sentence(store: Store, column: str) -> None:
    add(store, Event("a", "x", time=5, quantity=2))
    store._db.execute(f"UPDATE events SET {column} = X'00FF'")
    for read in (purchases_and_returns, all_rows):
        with pytest.raises(InputError, match="has damaged rows"):
            read(store)
