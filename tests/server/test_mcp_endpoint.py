"""The MCP endpoint: the official client lists the tools and calls them, and they answer like the routes."""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recfusion.core.errors import InputError
from recfusion.core.extras import is_installed
from recfusion.data.interactions import Interactions
from recfusion.server.app import make_app
from running import Client, running, settings_for
from shop import shop

pytestmark = pytest.mark.skipif(not is_installed("mcp"), reason="the extra mcp is not installed")

KEY, PLACED = "a key for reading", "a key for one placement"
HISTORY = ["i01", "i02", "i03"]


@pytest.fixture(scope="module")
def folder(groups: Interactions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shop(groups).save(tmp_path_factory.mktemp("served") / "shop")


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Client]:
    keys = folder.with_name("keys.toml")
    tables = {"reader": (KEY, ""), "page": (PLACED, 'placements = ["home"]\n')}
    keys.write_text(
        "".join(
            f'[{name}]\nsha256 = "{hashlib.sha256(key.encode()).hexdigest()}"\nscopes = ["read"]\n{more}'
            for name, (key, more) in tables.items()
        )
    )
    placements = {"home": {"kind": "recommend", "k": 2}}
    with running(settings_for(folder, mcp=True, key_file=keys, placements=placements)) as client:
        yield client


def with_session(client: Client, job: Callable[[Any], Awaitable[Any]], mode: str = "auto") -> Any:
    """Return what a job gets from the SDK's client, with the key for reading."""
    import httpx2
    from mcp.client import Client as McpClient
    from mcp.client.streamable_http import streamable_http_client

    async def session() -> Any:
        async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {KEY}"}) as http:
            transport = streamable_http_client(f"http://127.0.0.1:{client.port}/mcp", http_client=http)
            async with McpClient(transport, mode=mode) as found:
                return await job(found)

    return asyncio.run(session())


def call(client: Client, name: str, arguments: dict[str, Any], mode: str = "auto") -> Any:
    return with_session(client, lambda session: session.call_tool(name, arguments), mode)


def test_the_tools_have_the_schemas_of_the_routes(client: Client) -> None:
    tools = {one.name: one for one in with_session(client, lambda session: session.list_tools()).tools}
    assert sorted(tools) == ["explain", "recommend", "search", "similar"]
    documented = client.get("/openapi.json", {"Authorization": f"Bearer {KEY}"}).json["components"]["schemas"]
    for name, schema in {"recommend": "Recommend", "similar": "Similar", "explain": "Explain"}.items():
        own = tools[name].input_schema
        assert own["type"] == "object"
        assert set(own["properties"]) == set(documented[schema]["properties"])
        assert own.get("required") == documented[schema].get("required")
    assert set(tools["search"].input_schema["properties"]) == {"query", "limit"}
    text = json.dumps([one.input_schema for one in tools.values()])
    assert "#/components" not in text
    assert tools["recommend"].description
    assert "items" in tools["recommend"].output_schema["properties"]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_tool_answers_like_its_route_in_both_forms_of_the_protocol(client: Client, mode: str) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    asked: dict[str, dict[str, Any]] = {
        "recommend": {"history": HISTORY, "k": 3, "where": "stock > 0", "why": 2},
        "similar": {"item": "i01", "k": 3},
        "explain": {"history": HISTORY, "item": "i09"},
    }
    for name, arguments in asked.items():
        found = call(client, name, arguments, mode)
        wanted = client.post(f"/{name}", arguments, headers).json
        drawn = {"recommendation_id"}
        assert not found.is_error
        assert {key: value for key, value in found.structured_content.items() if key not in drawn} == {
            key: value for key, value in wanted.items() if key not in drawn
        }
        assert json.loads(found.content[0].text) == found.structured_content
    found = call(client, "search", {"query": "tea & more", "limit": 2}, mode)
    assert found.structured_content == client.get("/items?query=tea%20%26%20more&limit=2", headers).json


def test_a_wrong_call_is_an_error_of_one_sentence_about_its_field(client: Client) -> None:
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("recommend", {"history": HISTORY, "k": 0}, "k"),
        ("recommend", {"history": HISTORY, "colour": 1}, "colour"),
        ("similar", {"item": "nothing like it"}, "no such item"),
        ("search", {"limit": "many"}, "limit"),
    ]
    for name, arguments, field in wrong:
        found = call(client, name, arguments)
        assert found.is_error
        assert field in found.content[0].text
        assert len(found.content) == 1
    found = call(client, "admin/reload", {})
    assert found.is_error
    assert "recommend" in found.content[0].text


def test_keys_are_checked_as_for_the_other_routes(client: Client) -> None:
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    accept = {"Accept": "application/json, text/event-stream"}
    assert client.post("/mcp", asked, accept).status == 401
    assert client.post("/mcp", asked, accept | {"Authorization": f"Bearer {PLACED}"}).status == 403
    assert client.post("/mcp", asked, accept | {"Authorization": f"Bearer {KEY}"}).status == 200
    assert client.get("/mcp", accept | {"Authorization": f"Bearer {KEY}"}).status == 405
    wrong = client.post("/mcp", b"{}", accept | {"Authorization": f"Bearer {KEY}", "Origin": "https://other.example"})
    assert wrong.status == 403


def test_the_route_exists_on_request_only_and_names_the_extra(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(settings_for(folder)) as client:
        assert client.post("/mcp", {}).status == 404
    monkeypatch.setattr("recfusion.core.extras.find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"recfusion\[mcp\]"):
        make_app(settings_for(folder, mcp=True))


def test_a_schema_brings_its_definitions_and_no_others() -> None:
    from recfusion.server.mcp_endpoint import self_contained

    parts = {
        "A": {"type": "object", "properties": {"b": {"$ref": "#/components/schemas/B"}}},
        "B": {"type": "array", "items": {"$ref": "#/components/schemas/A"}},
        "C": {"type": "string"},
    }
    found = self_contained({"$ref": "#/components/schemas/A"}, {"components": {"schemas": parts}})
    assert found["properties"] == {"b": {"$ref": "#/$defs/B"}}
    assert sorted(found["$defs"]) == ["A", "B"]
