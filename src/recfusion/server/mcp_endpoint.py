"""The MCP endpoint: tools for assistants that call the service's own routes, with schemas from its OpenAPI document."""

import json
import logging
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any
from urllib.parse import urlencode

from fastapi import FastAPI
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool
from starlette.routing import Route
from starlette.types import Message, Scope

from recfusion.core.errors import choices
from recfusion.server.client_code import named_schemas

PATH = "/mcp"
TOOLS = {  # the routes that assistants may call
    "recommend": ("post", "/recommend"),
    "similar": ("post", "/similar"),
    "explain": ("post", "/explain"),
    "search": ("get", "/items"),
}
_REF = "#/components/schemas/"


def add_mcp(app: FastAPI) -> AbstractAsyncContextManager[None]:
    """Add the endpoint and return the context in which it works.

    Every request stands alone, so that any worker process can answer it.
    """
    logging.getLogger("mcp").setLevel(logging.CRITICAL)  # its warnings repeat what a client sent
    tools = [_tool(name, app.openapi()) for name in TOOLS]

    async def list_tools(*_: Any) -> ListToolsResult:
        return ListToolsResult(tools=tools)

    async def call_tool(context: Any, asked: CallToolRequestParams) -> CallToolResult:
        if asked.name not in TOOLS:
            return _failed(str(choices("tool", asked.name, TOOLS)))
        # The scope has the key's limits, which the guard has checked for this request.
        status, body = await _call(app, context.request.scope, *TOOLS[asked.name], asked.arguments or {})
        found = json.loads(body)
        if status != 200:
            return _failed(found["error"])
        return CallToolResult(content=[TextContent(text=body.decode())], structured_content=found)

    server: Server[Any] = Server(
        app.title,
        version=app.version,
        instructions="Find ids with search, then ask for recommendations, similar items and explanations by ids.",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    manager = StreamableHTTPSessionManager(server, json_response=True, stateless=True)
    app.router.routes.append(Route(PATH, StreamableHTTPASGIApp(manager), methods=["POST"]))
    return manager.run()


def _tool(name: str, document: Mapping[str, Any]) -> Tool:
    """Return the description of a tool, from that of its route."""
    method, path = TOOLS[name]
    route = document["paths"][path][method]
    if "requestBody" in route:
        asked = route["requestBody"]["content"]["application/json"]["schema"]
    else:
        asked = {"type": "object", "properties": {one["name"]: one["schema"] for one in route["parameters"]}}
    answer = route["responses"]["200"]["content"]["application/json"]["schema"]
    return Tool(
        name=name,
        description=f"{route['summary']}.",
        input_schema=self_contained(asked, document),
        output_schema=self_contained(answer, document),
    )


def self_contained(schema: dict[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema of an OpenAPI document with the definitions that it needs."""
    root = document["components"]["schemas"][schema["$ref"].removeprefix(_REF)] if "$ref" in schema else schema
    needed = named_schemas(root, document)
    whole = {**root, "$defs": needed} if needed else root
    found: dict[str, Any] = json.loads(json.dumps(whole).replace(_REF, "#/$defs/"))
    return found


def _failed(sentence: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=sentence)], is_error=True)


async def _call(app: FastAPI, scope: Scope, method: str, path: str, sent: Mapping[str, Any]) -> tuple[int, bytes]:
    """Return status and body of the answer of a route."""
    query, body = (urlencode(sent), b"") if method == "get" else ("", json.dumps(sent).encode())
    own = {"method": method.upper(), "path": path, "raw_path": path.encode(), "query_string": query.encode()}
    status, answer = 500, b""

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status, answer
        status, answer = message.get("status", status), answer + message.get("body", b"")

    await app({**scope, **own, "headers": [(b"content-type", b"application/json")]}, receive, send)
    return status, answer
