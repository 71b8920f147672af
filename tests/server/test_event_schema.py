"""What an event can say: its time, kind, quantity, price and idempotency key."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.server.event_kinds import Standing, parse_weights
from recfusion.server.event_reports import all_rows, purchases_and_returns
from recfusion.server.event_store import Event, Store
from running import Client, running, settings_for
from shop import shop


@pytest.fixture(scope="module")
def folder(groups: Interactions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shop(groups).save(tmp_path_factory.mktemp("served") / "shop")


@pytest.fixture
def client(folder: Path, tmp_path: Path) -> Iterator[Client]:
    more = {"events": tmp_path / "events.sqlite", "event_weight": ("wish=0.5", "view=0.25")}
    with running(settings_for(folder).model_copy(update=more)) as client:
        yield client


def stored(tmp_path: Path, columns: str) -> list[tuple[Any, ...]]:
    store = Store(tmp_path / "events.sqlite")
    try:
        return store.rows(f"SELECT {columns} FROM events ORDER BY id")
    finally:
        store.close()


def test_times_may_be_seconds_or_iso_texts(client: Client, tmp_path: Path) -> None:
    times = [0, 1.5, "1970-01-01T00:00:02Z", "1970-01-01T01:00:03+01:00", "1970-01-01 00:00:04", "1970-01-02"]
    for when in times:
        assert client.post("/events", {"user": "u", "item": "i01", "time": when}).status == 201
    assert [when for (when,) in stored(tmp_path, "time")] == [0, 1.5, 2, 3, 4, 86400]
    for when in ("yesterday", "", "1969-01-01", "9999-01-01", "12.05.2026", -1, 1e12, True, "5" * 50):
        reply = client.post("/events", {"user": "u", "item": "i01", "time": when})
        assert (reply.status, reply.json["field"]) == (422, "time"), when
    assert "ISO 8601" in client.post("/events", {"user": "u", "item": "i", "time": "12.05.2026"}).json["error"]
    assert len(stored(tmp_path, "time")) == len(times)


def test_a_retried_event_is_stored_once_and_a_key_belongs_to_one_event(client: Client, tmp_path: Path) -> None:
    event = {"user": "u", "item": "i01", "quantity": 2, "price": 9.95, "idempotency_key": "order 7, line 1"}
    assert client.post("/events", event).json == {"recorded": 1, "repeated": 0}
    assert client.post("/events", event).json == {"recorded": 0, "repeated": 1}
    other = {"user": "u", "item": "i02", "idempotency_key": "order 7, line 2"}
    assert client.post("/events/batch", {"events": [event, other, other]}).json == {"recorded": 1, "repeated": 2}
    wrong = {"events": [{"user": "u", "item": "i03"}, event | {"item": "i04"}]}
    reply = client.post("/events/batch", wrong)
    assert (reply.status, reply.json["field"]) == (422, "idempotency_key")
    assert stored(tmp_path, "item, quantity, price") == [("i01", 2.0, 9.95), ("i02", None, None)]


def test_an_event_that_is_refused_does_not_undo_others_of_the_same_commit(tmp_path: Path) -> None:
    store = Store(tmp_path / "events.sqlite")
    with store.writing():
        first = store.attempt(lambda one: one.add([Event("u", "i01", key="k")]))
        second = store.attempt(lambda one: one.add([Event("u", "i02"), Event("u", "i03", key="k")]))
        third = store.attempt(lambda one: one.add([Event("u", "i04")]))
    assert (first, third) == (1, 1)
    assert isinstance(second, InputError)
    assert list(store.user_items("u").have) == ["i01", "i04"]
    store.close()


def test_weights_of_kinds_add_up_to_a_history(client: Client) -> None:
    def known() -> set[str]:
        found = client.post("/recommend", {"user": "u", "k": 40}).json["items"]
        return {f"i{n:02d}" for n in range(40)} - {one["item"] for one in found}

    def send(item: str, kind: str, **more: Any) -> None:
        assert client.post("/events", {"user": "u", "item": item, "kind": kind, **more}).status == 201

    for _ in range(3):
        send("i01", "view")
    assert known() == set()
    send("i01", "view")
    assert known() == {"i01"}
    send("i02", "wish")
    send("i02", "cart")
    send("i03", "skip")
    assert known() == {"i01", "i02"}
    send("i04", "purchase", quantity=3)
    send("i04", "return", quantity=1)
    assert known() == {"i01", "i02", "i04"}
    send("i04", "return", quantity=2)
    send("i01", "dislike")
    assert known() == {"i01", "i02", "i04"}  # the history is i02; returned and disliked items stay away
    reply = client.post("/events", {"user": "u", "item": "i01", "kind": "juggle"})
    assert (reply.status, reply.json["field"]) == (422, "kind")
    assert "wish" in reply.json["error"]
    batch = client.post("/events/batch", {"events": [{"user": "u", "item": "i1", "kind": "juggle"}]})
    assert batch.json["field"] == "events.0.kind"


def test_small_weights_decide_at_a_sum_of_one_and_begin_anew() -> None:
    one = Standing()
    assert [one.add(0.1, time, None) for time in range(10)] == [False] * 9 + [True]
    assert (one.has, one.time, one.evidence) == (True, 9, 0.0)
    assert one.add(-0.5, 10, None) is False
    assert one.has
    assert one.add(-0.5, 11, None)
    assert one.has is False
    assert one.add(1.0, 12, None)
    assert one.has


@pytest.mark.parametrize("text", ["view", "view=", "view=2", "view=-1.5", "view=nan", "View=1", "=1", f"{'a' * 41}=1"])
def test_a_weight_that_makes_no_sense_is_one_sentence(text: str) -> None:
    with pytest.raises(InputError, match="Expected KIND=WEIGHT"):
        parse_weights([text])


def test_the_weights_of_the_service_count_in_the_export(folder: Path, client: Client, tmp_path: Path) -> None:
    for item, kind in (("i01", "wish"), ("i01", "wish"), ("i02", "wish"), ("i03", "purchase")):
        client.post("/events", {"user": "u", "item": item, "kind": kind, "time": "1970-01-01T00:00:09Z", "price": 2})
    store = Store(tmp_path / "events.sqlite")
    assert purchases_and_returns(store).rows() == [("u", "i01", 1.0, 9), ("u", "i03", 1.0, 9)]
    assert all_rows(store)["price"].to_list() == [2.0] * 4
    store.close()


def test_a_store_of_another_version_is_refused_and_not_changed(tmp_path: Path) -> None:
    Store(tmp_path / "e.sqlite").close()
    db = sqlite3.connect(tmp_path / "e.sqlite")
    db.execute("UPDATE state SET value = '3' WHERE name = 'version'")
    db.commit()
    db.close()
    before = (tmp_path / "e.sqlite").read_bytes()
    with pytest.raises(InputError, match="another version"):
        Store(tmp_path / "e.sqlite")
    assert (tmp_path / "e.sqlite").read_bytes() == before
