"""The OpenAPI document describes every request, response and error, and real responses agree with it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recfusion.data.interactions import Interactions
from recfusion.inference.request import ListRequest, Reranking
from running import Client, running, settings_for
from shop import shop

HISTORY = ["i01", "i02"]
EVENT = {"user": "u", "item": "i01"}
# A request for each route, with as many different values in the answer as possible.
REQUESTS: list[tuple[str, str, Any]] = [
    ("POST", "/recommend", {"history": [*HISTORY, "?"], "why": 2, "reranking": {"wish": {"kind": {"Tea": 1}}}}),
    ("POST", "/recommend", {"user": "nobody"}),
    ("POST", "/recommend/batch", {"requests": [{"history": HISTORY}, {"history": []}]}),
    ("POST", "/similar", {"item": "i01", "k": 3}),
    ("POST", "/complete", {"history": [*HISTORY, "?"], "n": 2, "alternatives": 2}),
    ("POST", "/steps", {"history": ["i01", "i02", "i03", "i04"], "steps": 3}),
    ("GET", "/items?query=item", None),
    ("PUT", "/items", {"items": [{"item": "i01", "columns": {"stock": 1}}, {"item": "new", "columns": {"stock": 2}}]}),
    ("GET", "/popular?k=3", None),
    ("GET", "/model", None),
    ("POST", "/events", EVENT),
    ("POST", "/events/batch", {"events": [EVENT | {"kind": "click"}]}),
    ("POST", "/events/forget", {"user": "u"}),
    ("POST", "/admin/reload", {}),
    ("GET", "/live", None),
    ("GET", "/ready", None),
    ("GET", "/metrics", None),
]
ERRORS: list[tuple[str, str, Any, int]] = [
    ("POST", "/recommend", {"history": "i01"}, 422),
    ("POST", "/recommend", {"history": HISTORY, "where": "colour == 1"}, 422),
    ("POST", "/recommend", b"{", 400),
    ("POST", "/similar", {"item": "?"}, 404),
    ("POST", "/complete", {"history": ["?"]}, 422),
    ("POST", "/steps", {"history": ["?"]}, 422),
    ("POST", "/events", {}, 422),
    ("PUT", "/items", {"items": [{"item": "i01", "columns": {"colour": 1}}]}, 422),
    ("GET", "/popular?k=0", None, 422),
]


@pytest.fixture(scope="module")
def client(groups: Interactions, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder: Path = shop(groups).save(tmp_path_factory.mktemp("served") / "shop")
    with running(settings_for(folder)) as client:
        yield client


@pytest.fixture(scope="module")
def document(client: Client) -> Any:
    return client.get("/openapi.json").json


def problems(value: Any, schema: Any, root: Any, place: str = "") -> list[str]:
    """Return where a value violates a JSON schema, for the keywords that the document uses."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/components/schemas/")
        return problems(value, root["components"]["schemas"][name], root, place)
    if "anyOf" in schema:
        every = [problems(value, one, root, place) for one in schema["anyOf"]]
        return [] if not all(every) else [f"{place}: {value!r} is none of the alternatives"]
    kinds: dict[str, Any] = {
        "string": str,
        "boolean": bool,
        "null": type(None),
        "object": dict,
        "array": list,
        "integer": int,
        "number": (int, float),
    }
    kind = schema.get("type")
    if kind is not None and (
        not isinstance(value, kinds[kind]) or (isinstance(value, bool) and kind in ("integer", "number"))
    ):
        return [f"{place}: {value!r} is no {kind}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{place}: {value!r} is none of {schema['enum']}"]
    if isinstance(value, list):
        items = schema.get("items", {})
        return [one for n, part in enumerate(value) for one in problems(part, items, root, f"{place}.{n}")]
    if not isinstance(value, dict):
        return []
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    found = [f"{place}: no {name}" for name in schema.get("required", ()) if name not in value]
    for name, part in value.items():
        if name in known:
            found += problems(part, known[name], root, f"{place}.{name}")
        elif others is False:
            found.append(f"{place}: {name} is not declared")
        elif isinstance(others, dict):
            found += problems(part, others, root, f"{place}.{name}")
    return found


def schema_of(document: Any, method: str, path: str, status: int) -> Any:
    answers = document["paths"][path.partition("?")[0]][method.lower()]["responses"]
    answer = answers.get(str(status)) or answers[f"{status // 100}XX"]
    return answer["content"].get("application/json", {}).get("schema")


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


def test_requests_have_the_bounds_and_help_of_the_records(document: Any) -> None:
    schemas = document["components"]["schemas"]
    fields = schemas["Recommend"]["properties"]
    assert set(fields) == {*ListRequest.model_fields, "user", "model"}
    for name, field in ListRequest.model_fields.items():
        assert fields[name]["description"] == field.description
    assert set(schemas["Reranking"]["properties"]) == set(Reranking.model_fields)
    assert (schemas["Reranking"]["properties"]["popularity"]["minimum"], fields["k"]["maximum"]) == (-1, 1000)
    assert set(schemas["Similar"]["properties"]) == {"where", "allow", "deny", "item", "k", "model"}
    assert schemas["Recommend"]["additionalProperties"] is False


def test_controls_of_the_model_are_those_of_the_record(client: Client) -> None:
    controls = client.get("/model").json["controls"]
    assert [control["name"] for control in controls] == list(Reranking.model_fields)
    assert {tuple(control) for control in controls} == {
        ("name", "kind", "title", "low", "high", "help", "min", "max", "default")
    }
