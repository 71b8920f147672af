"""Repeat purchases over HTTP: purchases of the file, of events and of requests count; returned items stay away."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from running import Client, running, settings_for
from shop import DAY, orders, reorder_shop

ANN = "ann@example.org"
LAST = 1_500_000_000 + 119 * DAY  # the day of the newest order


@pytest.fixture(scope="module", params=["binary", "graded"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = "ease" if request.param == "binary" else "thinning-signals"
    return reorder_shop(model, request.param).save(tmp_path_factory.mktemp("orders") / "shop")


def listed(client: Client, user: str, **more: Any) -> dict[str, str]:
    """Return the items of a user's list with the text of their first reason."""
    reply = client.post("/recommend", {"user": user, "k": 40, "why": 1, **more})
    assert reply.status == 200, reply.json
    return {one["item"]: one["because"][0]["text"] if one["because"] else "" for one in reply.json["items"]}


def serve(folder: Path, tmp_path: Path, rows: pl.DataFrame) -> Any:
    rows.write_csv(tmp_path / "orders.csv")
    files = {"histories": (tmp_path / "orders.csv",), "events": tmp_path / "events.sqlite"}
    return running(settings_for(folder).model_copy(update=files))


def test_purchases_of_the_file_events_and_the_request_are_counted(folder: Path, tmp_path: Path) -> None:
    with serve(folder, tmp_path, orders().filter(pl.col("user").is_in(["u7", "u8"]))) as client:
        assert listed(client, "u7", again="only")["i7"] == "bought 12 times, usually every 10 days, last 2 days ago"
        client.post("/events", {"user": "u7", "item": "i7", "kind": "purchase", "time": LAST})
        client.post("/events", {"user": "u7", "item": "i7", "kind": "purchase", "time": LAST + 60})  # the same day
        assert listed(client, "u7", again="only")["i7"].startswith("bought 13 times, usually every 9 days, last today")
        new = {one["item"] for one in client.post("/recommend", {"user": "u7", "k": 40}).json["items"]}
        assert not new & set(listed(client, "u7", again="only"))
        history = [{"item": "i3", "time": LAST - 30 * DAY}, {"item": "i3", "time": LAST - 2 * DAY}]
        found = client.post("/recommend", {"history": history, "k": 1, "why": 1, "again": "allowed"}).json["items"][0]
        assert (found["item"], found["because"][0]["text"][:13]) == ("i3", "bought twice,")
        coffee = listed(client, "u7", again_by={"category": {"Coffee": "allowed"}})
        assert {"i7", "i8"} <= set(coffee)
        assert client.post("/recommend", {"user": "u7", "again": "sometimes"}).status == 422
        wrong = client.post("/recommend", {"user": "u7", "again_by": {"category": {"Wine": "only"}}})
        assert wrong.status in (400, 422)
        assert "Unknown value" in str(wrong.json)


def test_returned_items_are_in_no_list_of_the_service(folder: Path, tmp_path: Path) -> None:
    rows = orders().filter(pl.col("user") == "u7")
    back = pl.DataFrame({"user": ["u7"], "item": ["i8"], "quantity": [-12], "time": [LAST]})
    with serve(folder, tmp_path, pl.concat([rows, back])) as client:
        client.post("/events", {"user": "u7", "item": "i7", "kind": "return"})
        client.post("/events", {"user": ANN, "item": "i3", "kind": "purchase"})
        client.post("/events", {"user": ANN, "item": "i3", "kind": "return"})
        for again in ("never", "allowed", "only"):
            assert not {"i7", "i8"} & set(listed(client, "u7", again=again))
            assert "i3" not in listed(client, ANN, again=again)
        client.post("/events", {"user": ANN, "item": "i3", "kind": "purchase"})  # bought again after all
        assert listed(client, ANN, again="only")["i3"].startswith("bought once")
