"""Lists over HTTP are the library's lists, and what is wrong with a request is said with the field's name."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from recfusion.data.interactions import Interactions
from recfusion.inference.baskets import complete
from recfusion.inference.bundle import Bundle
from recfusion.inference.recommending import recommend
from recfusion.inference.request import Filters, ItemFilters, Reranking
from recfusion.inference.similar import similar
from recfusion.server.model_info import column
from running import Client, running, settings_for
from shop import shop

HISTORY = ["i01", "i02", "i03"]


@pytest.fixture(scope="module")
def bundle(groups: Interactions) -> Bundle:
    return shop(groups)


@pytest.fixture(scope="module")
def client(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder: Path = bundle.save(tmp_path_factory.mktemp("served") / "shop")
    with running(settings_for(folder)) as client:
        yield client


def ids(reply: Any) -> list[str]:
    return [place["item"] for place in reply["items"]]


def test_a_list_is_the_one_of_the_library_with_names_columns_and_reasons(client: Client, bundle: Bundle) -> None:
    reranking: dict[str, Any] = {"popularity": -0.5, "wish": {"kind": {"Tea": 1}}, "diversity": 0.2}
    asked = {"history": HISTORY, "k": 5, "where": "stock > 0", "deny": ["i05"], "reranking": reranking, "why": 2}
    found = client.post("/recommend", asked).json
    wanted = recommend(
        bundle,
        HISTORY,
        5,
        filters=Filters(where="stock > 0", deny=["i05"]),
        reranking=Reranking(**reranking),
        why=2,
    ).to_frame()
    assert ids(found) == wanted["item"].to_list()
    assert [one["score"] for one in found["items"]] == pytest.approx(wanted["score"].to_list())
    assert [one["because"] for one in found["items"]] == wanted["because"].to_list()
    assert found["items"][0]["columns"]["price"] == wanted["price"][0]
    assert found["items"][0]["name"] == wanted["title"][0]
    assert (found["model"], found["basis"], found["unknown"]) == ("shop", "history", [])
    assert len(found["recommendation_id"]) == 32


def test_a_stranger_gets_popular_items_and_is_told_which_ids_are_unknown(client: Client, bundle: Bundle) -> None:
    found = client.post("/recommend", {"history": ["nonsense"], "k": 3}).json
    assert (found["basis"], found["unknown"]) == ("popularity", ["nonsense"])
    assert ids(found) == ids(client.get("/popular?k=3").json)


def test_popular_items_take_the_filters_of_lists(client: Client, bundle: Bundle) -> None:
    plain = ids(client.get("/popular?k=40").json)
    stock = dict(bundle.items.select("item", "stock").iter_rows())
    first = plain[0]
    found = ids(client.get(f"/popular?k=40&where=stock%20%3E%200&deny={first}").json)
    assert found == [item for item in plain if stock[item] > 0 and item != first]
    assert ids(client.get("/popular?allow=i07&allow=i09").json) == [item for item in plain if item in ("i07", "i09")]
    reply = client.get("/popular?where=stock%20%3E%20100")
    assert (reply.status, reply.json["field"]) == (422, "where")
    assert client.get("/popular?were=stock").status == 422


def test_a_batch_holds_the_answers_of_single_requests_in_their_order(client: Client) -> None:
    asked = [{"history": [f"i{n:02d}"], "k": 3, "where": f"price > {n / 4}"} for n in range(20)]
    answers = client.post("/recommend/batch", {"requests": asked}).json["answers"]
    assert [ids(answer) for answer in answers] == [ids(client.post("/recommend", one).json) for one in asked]
    assert len({answer["recommendation_id"] for answer in answers}) == 20


def test_similar_and_complete_are_those_of_the_library(client: Client, bundle: Bundle) -> None:
    found = client.post("/similar", {"item": "i07", "k": 4, "where": "stock > 0"}).json
    assert ids(found) == similar(bundle, "i07", 4, ItemFilters(where="stock > 0"))["item"].to_list()
    found = client.post("/complete", {"history": HISTORY, "n": 3, "alternatives": 2}).json
    wanted = complete(bundle, HISTORY, 3, alternatives=2)
    assert [item for one in found["alternatives"] for item in ids(one)] == wanted["item"].to_list()


def test_items_are_found_by_name_and_the_model_describes_itself(client: Client) -> None:
    assert client.get("/items?query=itme+17&limit=3").json["items"][0]["item"] == "i17"
    told = client.get("/model").json
    kinds = {column["name"]: column for column in told["columns"]}
    assert {name: column["kind"] for name, column in kinds.items()} == {
        "title": "text",
        "stock": "number",
        "price": "number",
        "kind": "categories",
        "new": "boolean",
    }
    assert set(kinds["kind"]["values"]) == {"Tea", "Coffee", "Gift", "Cups", "Books"}
    assert kinds["kind"]["values"][0] == "Gift"  # the most frequent comes first
    assert (kinds["price"]["min"], kinds["price"]["max"]) == (0.5, 19.5)
    assert told["models"][0]["metrics"][0]["words"]
    assert told["items"] == 40


def test_dates_and_pictures_are_no_categories_to_choose(bundle: Bundle) -> None:
    days = [date(2026, 1, 1 + place % 3) for place in range(len(bundle.items))]
    words = [("red", "blue", "green")[place % 3] for place in range(len(bundle.items))]
    columns = [
        pl.Series("listed", days),
        pl.Series("colour", words),
        pl.Series("image", [f"{word}.png" for word in words]),
    ]
    made = replace(bundle, items=bundle.items.with_columns(columns))
    kinds = [column(made, name)["kind"] for name in ("listed", "colour", "image")]
    assert kinds == ["text", "categories", "text"]


def test_the_reverse_process_begins_with_survivors_and_ends_with_as_many_items_as_the_history(client: Client) -> None:
    steps = client.post("/steps", {"history": [*HISTORY, "i04", "i05"], "steps": 4}).json["steps"]
    assert [step["share"] for step in steps] == [0.2, 0.4, 0.6, 0.8, 1.0]
    assert all(item["known"] and item["in_history"] for item in steps[0]["items"])
    assert len(steps[-1]["items"]) == 5
    assert any(not item["known"] for item in steps[-1]["items"])


BAD = [
    ("/recommend", {"history": ["i01"], "k": 0}, "k"),
    ("/recommend", {"history": ["i01"], "k": 10**9}, "k"),
    ("/recommend", {"history": ["i01"], "k": "x"}, "k"),
    ("/recommend", {"history": ["i01"], "k": True}, "k"),
    ("/recommend", {"history": "i01"}, "history"),
    ("/recommend", {"history": [["i01"]]}, "history.0"),
    ("/recommend", {"history": ["i01"], "colour": 1}, "colour"),
    ("/recommend", {}, "body"),
    ("/recommend", [], "body"),
    ("/recommend", {"history": ["i01"], "where": "stock >"}, "where"),
    ("/recommend", {"history": ["i01"], "where": "<b>1</b>"}, "where"),
    ("/recommend", {"history": ["i01"], "where": "stock > 100"}, "where"),
    ("/recommend", {"history": ["i01"], "allow": ["nothing"]}, "allow"),
    ("/recommend", {"history": ["i01"], "at_most": {"<i>": 2}}, "at_most.<i>"),
    ("/recommend", {"history": ["i01"], "reranking": {"wish": {"kind": {"Rum": 1}}}}, "reranking.wish.kind"),
    (
        "/recommend",
        {"history": ["i01"], "reranking": {"shares": {"kind": {"Tea": 0.7, "Cups": 0.7}}}},
        "reranking.shares",
    ),
    ("/recommend", {"history": ["i01"], "reranking": {"shares": {"colour": {"Tea": 0.7}}}}, "reranking.shares.colour"),
    ("/recommend", {"history": ["i01"], "reranking": {"diversity": 2}}, "reranking.diversity"),
    ("/recommend", {"history": ["i01"], "allow": ["i02"], "deny": ["i02"]}, "allow"),
    ("/similar", {"item": "i01", "where": "colour == 1"}, "where"),
    ("/similar", {"item": "i01", "at_most": {"kind": 1}}, "at_most"),
    ("/complete", {"history": ["i01"], "deny": [None]}, "deny.0"),
    ("/recommend", {"history": ["i01"], "knobs": {"diversity": 2}}, "knobs"),
    ("/recommend", {"history": ["i01"], "model": "other"}, "model"),
    ("/recommend/batch", {"requests": [{"history": []}, {"history": [], "where": "x"}]}, "requests.1.where"),
    ("/similar", {"item": "<script>"}, "item"),
    ("/complete", {"history": ["nothing"]}, "history"),
    ("/steps", {"history": ["nothing"]}, "history"),
    ("/events", {"user": "u", "item": "i", "recommendation_id": "x"}, "recommendation_id"),
    ("/events", {"user": "", "item": "i"}, "user"),
]


@pytest.mark.parametrize(("path", "document", "field"), BAD)
def test_a_wrong_field_is_named(client: Client, path: str, document: Any, field: str) -> None:
    reply = client.post(path, document)
    assert 400 <= reply.status < 500
    assert reply.json["field"] == field
    assert reply.headers["content-type"] == "application/json"
    assert reply.json["error"].endswith(".")


def test_queries_and_paths_that_are_wrong_are_refused_with_a_field(client: Client) -> None:
    assert client.get("/items?limit=x").json["field"] == "limit"
    assert client.get("/nowhere").json["field"] == "path"
    assert client.ask("DELETE", "/recommend").json["field"] == "method"
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static/"):
        assert client.get(path).status == 404
