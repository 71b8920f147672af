"""Checks of every request before it reaches a route: keys, hosts, origins, sizes and times."""

import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.server import keys
from recfusion.server.batcher import Batcher, Busy
from recfusion.server.keys import Key, Keys
from recfusion.server.service import Service
from running import Client, running, settings_for
from shop import shop

READ, ADMIN = "read-" + "r" * 20, "admin-" + "a" * 20
SECRET = "of the page"
READING, ADMINISTERING = Key.of("api key", READ, ["read"]), Key.of("admin key", ADMIN, keys.SCOPES)
ASKED = {"history": ["i01"], "k": 1}


@pytest.fixture(scope="module")
def folder(groups: Interactions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shop(groups).save(tmp_path_factory.mktemp("served") / "shop")


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Client]:
    settings = settings_for(folder, seconds=0.5, max_body=20_000, origin=("https://shop.example",))
    with running(settings) as client:
        yield client


@pytest.fixture
def locked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setenv("READ_KEY", READ)
    monkeypatch.setenv("ADMIN_KEY", ADMIN)
    named = {"api_key_env": "READ_KEY", "admin_key_env": "ADMIN_KEY", "page_secret": SECRET}
    with running(settings_for(folder, **named)) as client:
        yield client


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_keys_for_reading_and_for_administration_are_apart(locked: Client) -> None:
    event = {"user": "u", "item": "i01"}
    assert locked.post("/recommend", ASKED).status == 401
    assert locked.post("/recommend", ASKED, bearer("wrong")).json["field"] == "Authorization"
    assert locked.post("/recommend", ASKED, bearer(READ)).status == 200
    assert locked.post("/recommend", ASKED, bearer(ADMIN)).status == 200
    for method, path, body in (
        ("POST", "/events", event),
        ("POST", "/events/forget", {"user": "u"}),
        ("POST", "/admin/reload", {}),
        ("PUT", "/items", {"items": [{"item": "i01", "columns": {"stock": 1}}]}),
    ):
        assert locked.ask(method, path, body, bearer(READ)).status == 403
        assert locked.ask(method, path, body, bearer(ADMIN)).status in (200, 201)
    assert locked.get("/live").status == locked.get("/ready").status == locked.get("/").status == 200
    assert locked.get("/metrics").status == locked.get("/openapi.json").status == 401


def test_the_pages_token_may_read_until_it_ends_and_no_more(monkeypatch: pytest.MonkeyPatch, locked: Client) -> None:
    token = Keys([READING, ADMINISTERING], page_secret=SECRET).token()
    assert token is not None
    assert locked.post("/recommend", ASKED, bearer(token)).status == 200
    assert locked.post("/events", {"user": "u", "item": "i01"}, bearer(token)).status == 403
    until, _, signature = token.partition(".")
    assert locked.post("/recommend", ASKED, bearer(f"{int(until) + 1}.{signature}")).status == 401
    monkeypatch.setattr(keys, "TOKEN_SECONDS", -1)
    assert locked.post("/recommend", ASKED, bearer(str(Keys([READING], page_secret=SECRET).token()))).status == 401
    assert Keys().token() is None


def test_without_an_admin_key_a_service_with_a_key_records_nothing() -> None:
    with pytest.raises(Exception, match="--admin-key-env"):
        Keys([READING]).check(f"Bearer {READ}", "admin")
    Keys().check(None, "admin")


def test_with_an_admin_key_alone_reading_needs_no_key() -> None:
    assert Keys([ADMINISTERING]).check(None, "read").name == ""
    with pytest.raises(Exception, match="scope events"):
        Keys([ADMINISTERING]).check(None, "events")


def test_other_addresses_and_short_keys_are_refused_at_the_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="--api-key-env"):
        Keys.of(settings_for(folder, host="0.0.0.0"))
    monkeypatch.setenv("SHORT", "secret")
    with pytest.raises(InputError, match="16 characters") as error:
        Keys.of(settings_for(folder, host="0.0.0.0", api_key_env="SHORT"))
    assert "secret" not in str(error.value)


def test_a_foreign_host_or_origin_is_refused(client: Client) -> None:
    reply = client.post("/recommend", ASKED, {"Host": "evil.example"})
    assert (reply.status, reply.json["field"]) == (421, "Host")
    assert client.post("/recommend", ASKED, {"Host": f"LOCALHOST:{client.port}"}).status == 200
    wrong = ("http://[", "http://[::1", "//[", "\xb2://[")
    for origin in ("https://evil.example", "null", f"http://127.0.0.1:{client.port + 1}", *wrong):
        reply = client.post("/recommend", ASKED, {"Origin": origin})
        assert (reply.status, reply.json["field"]) == (403, "Origin")
        assert "access-control-allow-origin" not in reply.headers
    assert client.post("/recommend", ASKED, {"Origin": f"http://127.0.0.1:{client.port}"}).status == 200


@pytest.mark.parametrize("name", ["%00.js", "a" * 5000 + ".js", "a/" * 2500 + "x.js", "..%2fapp.py", "%2fetc%2fpasswd"])
def test_a_static_path_that_no_file_can_have_is_not_found(client: Client, name: str) -> None:
    reply = client.get(f"/static/{name}")
    assert (reply.status, reply.json["field"]) == (404, "path")


def test_an_allowed_origin_may_send_requests(client: Client) -> None:
    origin = {"Origin": "https://shop.example"}
    reply = client.post("/recommend", ASKED, origin)
    assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, "https://shop.example")
    asked = origin | {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    reply = client.ask("OPTIONS", "/recommend", headers=asked)
    assert reply.status == 204
    assert "content-type" in reply.headers["access-control-allow-headers"]


def test_every_answer_has_security_headers(client: Client) -> None:
    for reply in (
        client.get("/"),
        client.get("/nowhere"),
        client.post("/recommend", ASKED),
        client.post("/recommend", b"{"),
    ):
        assert reply.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert "server" not in reply.headers


@pytest.mark.parametrize(
    ("body", "headers", "status", "field"),
    [
        (b"{}", {"Content-Type": "text/plain"}, 415, "Content-Type"),
        (b"{}", {"Content-Type": ""}, 415, "Content-Type"),
        (b"x" * 30_000, {}, 413, "body"),
        (b"[" * 10_000, {}, 400, "body"),
        (b'{"a":' * 2_000, {}, 400, "body"),
        (b'{"history": [', {}, 400, "body"),
        (b"\xff\xfe", {}, 400, "body"),
        (b'{"history": ["\\ud800"]}', {}, 422, "history.0.item"),
        (b'{"history": [], "k": 1e400}', {}, 422, "k"),
        (b'{"history": [], "reranking": {"diversity": NaN}}', {}, 422, "reranking.diversity"),
        (b"", {}, 422, "body"),
        (b"null", {}, 422, "body"),
    ],
)
def test_a_body_that_is_too_long_too_deep_or_no_json_is_refused(
    client: Client, body: bytes, headers: dict[str, str], status: int, field: str
) -> None:
    reply = client.post("/recommend", body, headers)
    assert (reply.status, reply.json["field"]) == (status, field)


def test_a_body_that_comes_in_pieces_has_the_same_limit(client: Client) -> None:
    """A body in pieces has no Content-Length."""
    piece = b"1000\r\n" + b"x" * 4096 + b"\r\n"
    head = f"POST /recommend HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", client.port), timeout=20) as connection:
        connection.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n" + 6 * piece)  # and no end
        assert connection.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_a_body_that_is_too_long_is_refused_before_it_is_read(client: Client) -> None:
    head = f"POST /recommend HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", client.port), timeout=20) as connection:
        connection.sendall(head.encode() + b"Content-Length: 900000000\r\n\r\n{")
        assert connection.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_a_client_that_sends_its_whole_body_first_can_read_why_it_is_refused(client: Client) -> None:
    for _ in range(5):
        assert client.post("/recommend", b"x" * 8_000_000).status == 413


def test_slow_and_half_closed_clients_are_disconnected_while_others_are_served(
    client: Client,
) -> None:
    head = f"POST /recommend HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\nContent-Type: application/json\r\n"
    sent = {
        "nothing": b"",
        "half a head": head[:30].encode(),
        "half a body": f"{head}Content-Length: 100\r\n\r\n{{".encode(),
        "a chunk": f"{head}Transfer-Encoding: chunked\r\n\r\n5\r\n{{".encode(),
        "no HTTP": b"\x16\x03\x01\x00\xff\r\n\r\n",
    }
    ends = {}
    for name, data in sent.items():
        connection = socket.create_connection(("127.0.0.1", client.port), timeout=10)
        connection.sendall(data)
        ends[name] = connection
    ends["half a head"].shutdown(socket.SHUT_WR)
    assert client.post("/recommend", ASKED).status == 200
    answers = {name: _all_of(connection) for name, connection in ends.items()}  # the service closes every connection
    assert answers["nothing"] == answers["half a head"] == b""
    assert answers["half a body"].startswith(b"HTTP/1.1 408")
    assert answers["a chunk"].startswith(b"HTTP/1.1 408")
    assert answers["no HTTP"].startswith(b"HTTP/1.1 400")


def _all_of(connection: socket.socket) -> bytes:
    found = b""
    with connection:
        while part := connection.recv(4096):
            found += part
    return found


def test_logs_hold_routes_and_times_and_no_ids_queries_or_bodies(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "recfusion"):
        client.post("/recommend", {"user": "ann@example.org", "history": ["i01"]})
        client.get("/items?query=secret")
        client.get("/someone@example.org")
        client.post("/recommend", {"history": ["secret"], "where": "secret == 1"})
        until = time.monotonic() + 10
        while "422" not in caplog.text and time.monotonic() < until:  # a request is logged after its answer is sent
            time.sleep(0.01)
    lines = [json.loads(record.message) for record in caplog.records if record.message.startswith('{"time"')]
    assert [(line["route"], line["status"]) for line in lines] == [
        ("/recommend", 200),
        ("/items", 200),
        ("other", 404),
        ("/recommend", 422),
    ]
    assert "secret" not in caplog.text
    assert "example.org" not in caplog.text


def test_metrics_count_requests_lists_and_unknown_ids(client: Client) -> None:
    def value(name: str) -> float:
        lines = client.get("/metrics").body.decode().splitlines()
        return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)), 0.0)

    asked, unknown = 'recfusion_lists_total{basis="popularity",model="shop"}', "recfusion_unknown_ids_total"
    before = value(asked), value(unknown)
    client.post("/recommend", {"history": ["x", "y"]})
    assert (value(asked), value(unknown)) == (before[0] + 1, before[1] + 2)
    assert value('recfusion_model_age_seconds{model="shop"}') > 0
    assert value('recfusion_requests_total{route="/recommend",status="200"}') > 0


def test_a_full_queue_is_refused_at_once_and_what_waits_is_answered() -> None:
    gate = threading.Event()

    def handle(numbers: list[int]) -> list[int | Exception]:
        gate.wait(10)
        return [ValueError("odd") if one % 2 else one * 10 for one in numbers]

    async def scene() -> list[object]:
        batcher = Batcher[int, int](handle, most=4, waiting=3, name="test")
        first = [asyncio.create_task(batcher.ask(0))]
        await asyncio.sleep(0.05)  # the thread has taken it
        waiting = [asyncio.create_task(batcher.ask(n)) for n in (1, 2, 3)]
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await batcher.ask(4)
        gate.set()
        found = await asyncio.gather(*first, *waiting, return_exceptions=True)
        batcher.close()
        return [str(one) if isinstance(one, Exception) else one for one in found]

    assert asyncio.run(scene()) == [0, "odd", 20, "odd"]


def test_a_request_that_would_wait_too_long_gets_503_with_retry_after(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_for(folder, seconds=0.2)
    monkeypatch.setattr(Service, "_score", lambda _, jobs: [time.sleep(0.6) for _ in jobs])  # type: ignore[func-returns-value]
    with running(settings) as client:
        reply = client.post("/recommend", ASKED)
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")
