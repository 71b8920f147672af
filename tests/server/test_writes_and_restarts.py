"""Whatever a writing route, command or setting accepts, the service works afterwards and after a restart."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from recfusion.cli import main as cli
from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.inference.request import ListRequest
from recfusion.server.config import Options, Settings
from recfusion.server.event_store import Store
from recfusion.server.keys import scope_of
from recfusion.server.metrics import Metrics
from recfusion.server.service import Service
from recfusion.server.user_history import merged_history
from running import Client, running, settings_for
from shop import shop

EVENT = {"user": "u", "item": "i01"}
BODIES: dict[tuple[str, str], Any] = {
    ("POST", "/events"): EVENT,
    ("POST", "/events/batch"): {"events": [EVENT]},
    ("POST", "/events/forget"): {"user": "u"},
    ("PUT", "/items"): {"items": [{"item": "i01", "columns": {"stock": 1}}]},
    ("DELETE", "/items"): None,
    ("POST", "/admin/reload"): {},
    ("GET", "/admin/stats"): None,
    ("POST", "/admin/count"): {"where": "stock > 0", "model": "shop"},
    ("GET", "/admin/placements"): None,
    ("PUT", "/admin/placements"): {"placements": {"home": {"k": 3, "where": "stock > 0"}}, "version": 0},
    ("POST", "/admin/placements/undo"): {"version": 1},
}
ODD: list[Any] = [
    None,
    True,
    [],
    {},
    "",
    "\x00",
    "\ud800",
    "🫖" * 50,
    -1,
    0,
    1.5,
    -(2**63),
    2**64,
    10**401,
    1e308,
    -1e308,
]


@pytest.fixture(scope="module")
def folder(groups: Interactions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shop(groups).save(tmp_path_factory.mktemp("served") / "shop")


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Client]:
    with running(settings_for(folder)) as client:
        yield client


def at_and_beyond(schema: Any, root: Any) -> list[Any]:
    """Return values at and beyond the bounds of a JSON schema, and values of other types."""
    if "$ref" in schema:
        return at_and_beyond(root["components"]["schemas"][schema["$ref"].rpartition("/")[2]], root)
    found = list(ODD)
    for part in schema.get("anyOf", [schema]):
        for bound in ("minimum", "maximum", "exclusiveMinimum"):
            if bound in part:
                found += [part[bound], part[bound] - 1, part[bound] + 1, part[bound] * (1 + 1e-9)]
        for bound in ("minLength", "maxLength"):
            if bound in part:
                found += ["x" * max(0, part[bound] + more) for more in (-1, 0, 1)]
        if part.get("type") == "array" and "maxItems" in part:
            found += [["x"] * part["maxItems"], ["x"] * (part["maxItems"] + 1)]
    return found


def with_value(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return the body with another value at a path."""
    if not path:
        return value
    copy = dict(body) if isinstance(body, dict) else list(body)
    copy[path[0]] = with_value(body[path[0]] if path[0] in body or isinstance(body, list) else None, path[1:], value)
    return copy


def works_after_restart(settings: Settings) -> None:
    """Start another service on the same files and make a list for a known user."""
    service = Service(settings, Metrics())

    async def ask() -> Any:
        await service.expire()
        models = await service.current()
        history, _ = merged_history(service.reading, "u", (), models.main.bundle, models.known)
        return await service.score((models.main, ListRequest(history=history, k=40)))

    try:
        assert len(asyncio.run(ask()).items) >= 30
    finally:
        service.close()


def cases(document: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield method, path and body of each writing request, with a value at or beyond a bound at each place."""
    schemas = document["components"]["schemas"]
    places: dict[tuple[str, str], list[tuple[tuple[Any, ...], Any]]] = {
        ("POST", "/events"): [((name,), schema) for name, schema in schemas["EventBody"]["properties"].items()],
        ("POST", "/events/batch"): [
            *((("events", 0, name), schema) for name, schema in schemas["EventBody"]["properties"].items()),
            (("events",), schemas["EventBatch"]["properties"]["events"]),
        ],
        ("POST", "/events/forget"): [(("user",), schemas["Forget"]["properties"]["user"])],
        ("PUT", "/items"): [
            *((("items", 0, "columns", name), {}) for name in ("stock", "price", "kind", "new", "title", "item", "?")),
            (("items", 0, "item"), schemas["ItemChange"]["properties"]["item"]),
            (("items", 0, "columns"), schemas["ItemChange"]["properties"]["columns"]),
            (("items",), schemas["ItemChanges"]["properties"]["items"]),
        ],
        ("POST", "/admin/reload"): [((), {})],
        ("GET", "/admin/stats"): [],
        ("POST", "/admin/count"): [((name,), schema) for name, schema in schemas["Counted"]["properties"].items()],
        ("GET", "/admin/placements"): [],
        ("PUT", "/admin/placements"): [
            *((("placements", "home", *more), {}) for more in ((), ("k",), ("where",), ("model",))),
            *(((name,), schema) for name, schema in schemas["NewPlacements"]["properties"].items()),
        ],
        ("POST", "/admin/placements/undo"): [(("version",), schemas["Undo"]["properties"]["version"])],
        ("DELETE", "/items"): [],
    }
    assert places.keys() == BODIES.keys()
    for (method, path), fields in places.items():
        yield method, path, BODIES[method, path]
        for place, schema in fields:
            for value in at_and_beyond(schema, document):
                yield method, path, with_value(BODIES[method, path], place, value)


def test_every_writing_route_is_tried(client: Client) -> None:
    document = client.get("/openapi.json").json
    writing = {
        (method.upper(), path)
        for path, methods in document["paths"].items()
        for method in methods
        if scope_of(method.upper(), path) != "read"
    }
    assert writing == BODIES.keys()


def test_no_accepted_request_breaks_the_service_or_its_restart(folder: Path, client: Client) -> None:
    tried = accepted = 0
    for method, path, body in cases(client.get("/openapi.json").json):
        sent = None if body is None else json.dumps(body).encode()
        reply = client.ask(method, path, sent)
        tried += 1
        assert reply.status in (200, 201, 202, 400, 409, 413, 422), (method, path, str(body)[:200], reply.body)
        if reply.status < 300:
            accepted += 1
            works_after_restart(settings_for(folder))
            assert client.get("/ready").json["ready"]
        else:
            assert reply.json["error"].endswith(".")
            assert reply.json["field"]
    assert client.post("/recommend", {"user": "u", "k": 40}).status == 200
    assert client.get("/ready").json["ignored_columns"] == []
    assert accepted > 50
    assert tried - accepted > 200


def test_a_request_with_numbers_that_json_does_not_have_is_refused(client: Client) -> None:
    for number in ("NaN", "Infinity", "-Infinity", "1e999", "9" * 5000):
        for method, path, body in (
            ("PUT", "/items", f'{{"items": [{{"item": "i01", "columns": {{"price": {number}}}}}]}}'),
            ("POST", "/events", f'{{"user": "u", "item": "i01", "quantity": {number}}}'),
        ):
            reply = client.ask(method, path, body.encode())
            assert reply.status in (400, 422), (path, number[:20])
            assert reply.json["field"] in ("body", "request", "items.0.columns.price", "quantity")


@pytest.mark.parametrize(
    "arguments",
    [
        ["clear", "--item", ""],
        ["clear", "--item", "i" * 5000, "--column", "\U0001f375"],
        ["clear"],
        ["forget", "--user", ""],
        ["forget", "--user", "u" * 5000],
        ["forget", "--user", "' OR 1=1 --"],
    ],
)
def test_commands_that_write_leave_a_store_that_the_service_reads(
    folder: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_for(folder)
    Store(settings.events).close()
    command, *options = arguments
    monkeypatch.setattr("sys.argv", ["recfusion", "events", command, str(settings.events), *options])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code in (None, 0, 2), capsys.readouterr().err
    works_after_restart(settings)


def setting_values() -> Iterator[tuple[str, Any]]:
    """Yield each option of `serve` with values at and beyond its bounds."""
    for name, field in Options.model_fields.items():
        values: list[Any] = ["", "x", 0, -1, 1, 1e-300, 1e300, 2**70, float("nan"), (), ("",), ("a=b",), ("view=0.5",)]
        for bound in field.metadata:
            for kind in ("ge", "gt", "le", "lt"):
                if (limit := getattr(bound, kind, None)) is not None:
                    values += [limit, limit - 1, limit + 1]
        for value in values:
            yield name, value
        if bool in get_args(field.annotation) or field.annotation is bool:
            yield name, True


@pytest.mark.parametrize("name", list(Options.model_fields))
def test_settings_are_refused_in_a_sentence_or_work_and_so_does_a_start_without_them(
    folder: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a relative path of events is made here
    plain = settings_for(folder)
    for value in (value for other, value in setting_values() if other == name):
        with suppress(ValidationError, InputError, OSError):  # `serve` prints each of them as one sentence
            works_after_restart(Settings.model_validate(plain.model_dump() | {name: value}))
        works_after_restart(plain)
