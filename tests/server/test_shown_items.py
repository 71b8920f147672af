"""What a user was shown: pages without repeats, repeats that fade, and items that are not shown again."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recfusion.data.interactions import Interactions
from recfusion.server.event_store import Store
from recfusion.server.schemas import Recommend
from recfusion.server.shown_items import fade_repeats, hidden_items
from running import Client, running, settings_for
from shop import shop


@pytest.fixture(scope="module")
def folder(groups: Interactions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shop(groups).save(tmp_path_factory.mktemp("served") / "shop")


@pytest.fixture
def events(tmp_path: Path) -> Path:
    return tmp_path / "events.sqlite"


@pytest.fixture
def client(folder: Path, events: Path) -> Iterator[Client]:
    with running(settings_for(folder).model_copy(update={"events": events})) as client:
        yield client


def ask(client: Client, **more: Any) -> Any:
    reply = client.post("/recommend", {"user": "ann", "history": ["i01"], **more})
    assert reply.status == 200, reply.body
    return reply.json


def ids(answer: Any) -> list[str]:
    return [one["item"] for one in answer["items"]]


def test_pages_are_the_whole_list_in_pieces_also_if_the_history_grows_meanwhile(client: Client) -> None:
    whole = ids(ask(client, k=40))
    page = ask(client, k=15, remember=True)
    seen = ids(page)
    assert seen == whole[:15]
    page = ask(client, k=15, cursor=page["cursor"])
    assert [one["rank"] for one in page["items"]] == list(range(1, 16))
    seen += ids(page)
    assert seen == whole[:30]
    client.post("/events", {"user": "ann", "item": whole[0]})  # which changes the order of the others
    page = ask(client, k=15, cursor=page["cursor"])
    seen += ids(page)
    assert sorted(seen) == sorted(whole)
    assert page["cursor"] is None
    first = ask(client, k=9, cursor=f"{0:x}")
    assert (first["items"], first["cursor"]) == ([], None)


def test_the_last_page_may_be_empty_and_wrong_filters_are_still_wrong(client: Client) -> None:
    allowed = {"allow": ["i05", "i06"], "k": 2}
    page = ask(client, remember=True, **allowed)
    assert sorted(ids(page)) == ["i05", "i06"]
    last = ask(client, cursor=page["cursor"], **allowed)
    assert (last["items"], last["cursor"]) == ([], None)
    wrong = {"user": "ann", "cursor": page["cursor"], "where": "stock > 1000"}
    assert client.post("/recommend", wrong).json["field"] == "where"


def test_an_item_is_not_shown_again_for_some_days(client: Client, events: Path) -> None:
    first = ids(ask(client, k=5, not_again_days=7))
    assert not set(first) & set(ids(ask(client, k=5, not_again_days=7)))
    assert ids(ask(client, k=5)) == first  # only requests that ask for it leave items out
    store = Store(events)
    with store.writing():
        store._db.execute("UPDATE shown_items SET time = time - 8 * 86400")
    store.close()
    assert ids(ask(client, k=5, not_again_days=7)) == first
    other = client.post("/recommend", {"user": "bob", "history": ["i01"], "k": 5, "not_again_days": 7})
    assert ids(other.json) == first


def test_repeats_fade_by_how_often_they_were_shown(client: Client) -> None:
    plain = ids(ask(client, k=6))
    assert ids(ask(client, k=3, fade=1)) == plain[:3]
    # Ranks 1, 2, 3 were shown once: they count as 2, 4, 6 beside the unseen 4 and 5, and ties keep their order.
    second = ask(client, k=5, fade=1)
    assert ids(second) == [plain[0], plain[1], plain[3], plain[4], plain[2]]
    assert [one["rank"] for one in second["items"]] == [1, 2, 3, 4, 5]


def test_fading_is_as_if_the_whole_list_were_known() -> None:
    items = [{"item": str(n), "rank": n} for n in range(1, 21)]
    shown = {"1": (0.0, 9), "3": (0.0, 1), "4": (0.0, 4)}
    whole = [one["item"] for one in fade_repeats(items, shown, 0.5, 20, {})]
    for k in range(1, 15):
        assert [one["item"] for one in fade_repeats(items[: k + len(shown)], shown, 0.5, k, {})] == whole[:k]


def test_hidden_items_are_those_of_the_pages_and_of_the_days() -> None:
    shown = {"old": (100.0, 1), "recent": (90_000.0, 1), "page": (190_000.0, 2)}

    def hidden(**more: Any) -> tuple[str, ...]:
        return hidden_items(Recommend(user="u", **more), shown, 200_000.0)

    assert hidden(remember=True) == ()
    assert hidden(cursor=f"{190_000_000:x}") == ("page",)
    assert hidden(not_again_days=2) == ("recent", "page")
    assert hidden(cursor=f"{190_000_000:x}", not_again_days=1000) == ("old", "recent", "page")


def test_what_was_shown_is_deleted_with_the_user_and_expires(client: Client, events: Path) -> None:
    ask(client, k=3, remember=True)
    store = Store(events)
    assert len(store.shown_to("ann")) == 3
    assert client.post("/events/forget", {"user": "ann"}).status == 200
    assert store.shown_to("ann") == {}
    with store.writing():
        store.remember_shown("bob", ["i01"], time.time() - 3 * 86400)
        store.remember_shown("bob", ["i02"], time.time())
        store.expire(2)
    assert list(store.shown_to("bob")) == ["i02"]
    store.close()
