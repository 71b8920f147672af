"""The OpenAPI document describes every request, response and error, and real responses agree with it."""

import http.client
import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from named_tests import ROOT
from openapi import problems, schema_of, wrong_answer
from recfusion.data.interactions import Interactions
from recfusion.inference.request import ListRequest, Reranking
from recfusion.server.rate_limit import RateLimit
from recfusion.server.service import Service
from running import Client, running, settings_for
from shop import shop

HISTORY = ["i01", "i02"]
EVENT = {"user": "u", "item": "i01"}
# A request for each route, with as many different values in the answer as possible.
REQUESTS: list[tuple[str, str, Any]] = [
    ("POST", "/recommend", {"history": [*HISTORY, "?"], "why": 2, "reranking": {"wish": {"kind": {"Tea": 1}}}}),
    ("POST", "/recommend", {"user": "nobody"}),
    ("POST", "/recommend", {"user": "nobody", "k": 3, "fade": 0.5, "not_again_days": 1}),
    ("POST", "/recommend/batch", {"requests": [{"history": HISTORY}, {"history": []}]}),
    ("POST", "/similar", {"item": "i01", "k": 3}),
    ("POST", "/complete", {"history": [*HISTORY, "?"], "n": 2, "alternatives": 2}),
    ("POST", "/steps", {"history": ["i01", "i02", "i03", "i04"], "steps": 3}),
    ("GET", "/items?query=item", None),
    ("PUT", "/items", {"items": [{"item": "i01", "columns": {"stock": 1}}, {"item": "new", "columns": {"stock": 2}}]}),
    ("GET", "/popular?k=3&where=stock%20%3E%200&deny=i01&deny=i02&model=shop", None),
    ("GET", "/examples?n=2&seed=7", None),
    ("GET", "/map", None),
    ("POST", "/explain", {"history": ["i01"], "item": "i30", "k": 3, "reranking": {"popularity": -1}}),
    ("GET", "/model", None),
    ("POST", "/events", EVENT),
    ("POST", "/events/batch", {"events": [EVENT | {"kind": "click"}]}),
    ("POST", "/events/forget", {"user": "u"}),
    ("DELETE", "/items?item=i01&column=stock", None),
    ("POST", "/admin/reload", {}),
    ("GET", "/placements", None),
    ("GET", "/admin/stats", None),
    ("POST", "/admin/count", {"where": "stock > 0"}),
    ("PUT", "/admin/placements", {"placements": {"home": {"k": 3}}, "version": 0}),
    ("PUT", "/admin/placements", {"placements": {}, "version": 1}),
    ("POST", "/admin/placements/undo", {"version": 2}),
    ("GET", "/admin/placements", None),
    ("GET", "/live", None),
    ("GET", "/ready", None),
    ("GET", "/metrics", None),
]
ERRORS: list[tuple[str, str, Any, int]] = [
    ("POST", "/recommend", {"history": "i01"}, 422),
    ("POST", "/recommend", {"history": HISTORY, "where": "colour == 1"}, 422),
    ("POST", "/recommend", b"{", 400),
    ("POST", "/recommend", {"history": HISTORY, "remember": True}, 422),
    ("POST", "/recommend", {"user": "u", "cursor": "next"}, 422),
    ("POST", "/similar", {"item": "?"}, 404),
    ("POST", "/complete", {"history": ["?"]}, 422),
    ("POST", "/steps", {"history": ["?"]}, 422),
    ("POST", "/events", {}, 422),
    ("PUT", "/items", {"items": [{"item": "i01", "columns": {"colour": 1}}]}, 422),
    ("GET", "/popular?k=0", None, 422),
    ("GET", "/popular?where=colour", None, 422),
    ("DELETE", "/items?itme=i01", None, 422),
    ("POST", "/events", {"user": "u", "item": "i", "kind": "juggle"}, 422),
    ("POST", "/recommend", b"x" * (1 << 21), 413),
    ("POST", "/recommend", {"history": [], "k": 1000, "why": 100}, 422),
    ("GET", "/examples?n=0", None, 422),
    ("POST", "/explain", {"history": ["i01"], "item": "nothing"}, 404),
]
KEY = "k" * 20
HOST = "Host: 127.0.0.1\r\n"
POST = f"POST /recommend HTTP/1.1\r\n{HOST}Authorization: Bearer {KEY}\r\n"
JSON = f"{POST}Content-Type: application/json\r\n"
REFUSED: dict[int, str] = {  # a request for each status that the service answers before a route is called, or after
    400: "no HTTP\r\n\r\n",
    401: f"POST /recommend HTTP/1.1\r\n{HOST}\r\n",
    403: f"PUT /items HTTP/1.1\r\n{HOST}Authorization: Bearer {KEY}\r\n\r\n",
    404: f"GET /nowhere HTTP/1.1\r\n{HOST}Authorization: Bearer {KEY}\r\n\r\n",
    405: f"GET /recommend HTTP/1.1\r\n{HOST}Authorization: Bearer {KEY}\r\n\r\n",
    408: f"{JSON}Content-Length: 9\r\n\r\n{{",
    413: f"{JSON}Content-Length: 90000000\r\n\r\n",
    415: f"{POST}Content-Length: 2\r\n\r\n{{}}",
    421: "POST /recommend HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    422: f"{JSON}Content-Length: 2\r\n\r\n{{}}",
    431: f"{POST}x: {'y' * 70_000}\r\n\r\n",
    503: f'{JSON}Content-Length: 15\r\n\r\n{{"history": []}}',
    429: f"{JSON}Content-Length: 2\r\n\r\n{{}}",  # the last one: nothing is allowed after it
}


@pytest.fixture(scope="module")
def client(groups: Interactions, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder: Path = shop(groups).save(tmp_path_factory.mktemp("served") / "shop")
    with running(settings_for(folder)) as client:
        yield client


@pytest.fixture(scope="module")
def document(client: Client) -> Any:
    return client.get("/openapi.json").json


def test_each_route_is_tried(document: Any) -> None:
    routes = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert routes == {(method, path.partition("?")[0]) for method, path, _ in REQUESTS}


@pytest.mark.parametrize(("method", "path", "body"), REQUESTS)
def test_responses_agree_with_the_document(client: Client, document: Any, method: str, path: str, body: Any) -> None:
    reply = client.ask(method, path, body)
    assert reply.status in (200, 201), reply.body
    schema = schema_of(document, method, path, reply.status)
    if path == "/metrics":
        assert schema is None
        assert reply.headers["content-type"].startswith("text/plain")
        return
    assert schema
    assert problems(reply.json, schema, document) == []


@pytest.mark.parametrize(("method", "path", "body", "status"), ERRORS)
def test_errors_agree_with_the_document(
    client: Client, document: Any, method: str, path: str, body: Any, status: int
) -> None:
    reply = client.ask(method, path, body)
    assert reply.status == status
    assert problems(reply.json, schema_of(document, method, path, status), document) == []
    assert reply.json["field"]


def test_the_validator_of_this_test_finds_wrong_responses(client: Client, document: Any) -> None:
    schema = schema_of(document, "POST", "/similar", 200)
    good = client.post("/similar", {"item": "i01", "k": 1}).json
    assert problems(good, schema, document) == []
    for wrong in ({**good, "more": 1}, {"model": "shop"}, {**good, "items": [{**good["items"][0], "rank": "1"}]}):
        assert problems(wrong, schema, document)


def test_every_answer_to_a_test_is_compared_with_the_document(client: Client, document: Any) -> None:
    assert client.document == document
    live = ("GET", "/live", 200, b'{"live":true}')
    assert wrong_answer(document, *live) is None
    assert wrong_answer(document, "GET", "/shops/tea/live?x=1", 200, b'{"live":true}') is None
    for wrong in (
        ("GET", "/live", 200, b'{"live":1}'),
        ("GET", "/live", 204, b""),
        ("GET", "/nowhere", 404, b'{"error":"No."}'),
        ("POST", "/recommend", 500, b"oops"),
    ):
        assert wrong_answer(document, *wrong) is not None, wrong


def test_a_deletion_that_is_not_erased_yet_and_a_bug_agree_with_the_document(
    client: Client, document: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def not_yet(*_: object) -> bool:
        return False

    async def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Service, "erase", not_yet)
    late = client.post("/events/forget", {"user": "u"})
    assert (late.status, late.json["erased"]) == (202, False)
    assert problems(late.json, schema_of(document, "POST", "/events/forget", 202), document) == []
    monkeypatch.setattr(Service, "current", fail)
    bug = client.post("/recommend", {"history": []})
    assert (bug.status, bug.json["field"]) == (500, "")
    assert problems(bug.json, schema_of(document, "POST", "/recommend", 500), document) == []


def test_requests_have_the_bounds_and_help_of_the_records(document: Any) -> None:
    schemas = document["components"]["schemas"]
    fields = schemas["Recommend"]["properties"]
    own = {"user", "model", "placement", "remember", "cursor", "not_again_days", "fade"}
    assert set(fields) == {*ListRequest.model_fields, *own}
    for name, field in ListRequest.model_fields.items():
        assert fields[name]["description"] == field.description
    assert set(schemas["Reranking"]["properties"]) == set(Reranking.model_fields)
    assert (schemas["Reranking"]["properties"]["popularity"]["minimum"], fields["k"]["maximum"]) == (-1, 1000)
    assert set(schemas["Similar"]["properties"]) == {"where", "allow", "deny", "item", "k", "model", "placement"}
    assert schemas["Recommend"]["additionalProperties"] is False


def test_controls_of_the_model_are_those_of_the_record(client: Client) -> None:
    controls = client.get("/model").json["controls"]
    assert [control["name"] for control in controls] == list(Reranking.model_fields)
    assert {tuple(control) for control in controls} == {
        ("name", "kind", "title", "low", "high", "help", "min", "max", "default")
    }


def test_each_refusal_agrees_with_the_document_and_is_listed(
    groups: Interactions, tmp_path: Path, document: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("READ_KEY", KEY)
    monkeypatch.setattr(Service, "_score", lambda _, jobs: [time.sleep(1.5) for _ in jobs])  # type: ignore[func-returns-value]
    folder, tried = shop(groups).save(tmp_path / "shop"), 0
    monkeypatch.setattr(RateLimit, "wait", lambda *_: float(tried == 429))
    with running(settings_for(folder, api_key_env="READ_KEY", seconds=1.0, rate_limit=1.0)) as client:
        for tried, request in REFUSED.items():
            with socket.create_connection(("127.0.0.1", client.port), timeout=60) as connection:
                connection.sendall(request.encode())
                reply = http.client.HTTPResponse(connection)
                reply.begin()
                answer = json.loads(reply.read())
            assert reply.status == tried
            assert problems(answer, schema_of(document, "POST", "/recommend", tried), document) == []
            assert reply.headers["x-content-type-options"] == "nosniff"
    listed = (ROOT / "docs" / "how-to" / "service.md").read_text(encoding="utf-8")
    table = listed[listed.index("| status |") : listed.index("## Users, events and items")]
    assert {int(one) for one in re.findall(r"\b[45]\d\d\b", table)} >= REFUSED.keys() | {409}


def test_a_refused_reload_agrees_with_the_document(groups: Interactions, tmp_path: Path, document: Any) -> None:
    folder = shop(groups).save(tmp_path / "shop")
    with running(settings_for(folder)) as client:
        (folder / "config.json").write_text("{")
        reply = client.post("/admin/reload", {})
        assert reply.status == 409
        assert problems(reply.json, schema_of(document, "POST", "/admin/reload", 409), document) == []


def test_the_document_says_which_key_each_route_needs(
    groups: Interactions, tmp_path: Path, document: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("READ_KEY", KEY)
    monkeypatch.setenv("ADMIN_KEY", KEY[::-1] + "a")
    folder = shop(groups).save(tmp_path / "shop")
    with running(settings_for(folder, api_key_env="READ_KEY", admin_key_env="ADMIN_KEY")) as client:
        locked = client.get("/openapi.json", {"Authorization": f"Bearer {KEY}"}).json
        for method, path, body in REQUESTS:
            name = path.partition("?")[0]
            needed = locked["paths"][name][method.lower()]["security"]
            assert document["paths"][name][method.lower()]["security"][0] == {}  # without keys, each route is open
            status = client.ask(method, path, body).status
            assert (status == 401) == ({} not in needed), path
            allowed = client.ask(method, path, body, {"Authorization": f"Bearer {KEY}"}).status
            assert (allowed == 403) == (needed in ([{"key": ["events"]}], [{"key": ["admin"]}])), path
    assert locked["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
