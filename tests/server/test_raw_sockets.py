"""Bytes that no HTTP client would send, to each worker of a service with two."""

import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recfusion.data.interactions import Interactions
from running import Client, only, settings_for, two_workers
from shop import shop

SECONDS = 1.0  # the service's limit for each part of a request
WAIT = 60  # for an answer on a busy machine
HOST = "Host: 127.0.0.1\r\n"
LIVE = f"GET /live HTTP/1.1\r\n{HOST}\r\n".encode()
BODY = b'{"history": ["i01"], "k": 1}'
POST = f"POST /recommend HTTP/1.1\r\n{HOST}Content-Type: application/json\r\n".encode()
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
Connect = Callable[[], socket.socket]


@pytest.fixture(scope="module")
def service(groups: Interactions, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[int], Client]]:
    folder: Path = shop(groups).save(tmp_path_factory.mktemp("served") / "shop")
    limits = {"seconds": SECONDS, "max_connections": 40, "max_body": 20_000}
    with two_workers(settings_for(folder, **limits)) as found:
        yield found


@pytest.fixture(params=["first worker", "second worker"])
def worker(request: pytest.FixtureRequest, service: tuple[list[int], Client]) -> Iterator[int]:
    chosen = service[0][request.param != "first worker"]
    with only(chosen, service[0]):
        yield chosen
        assert service[1].post("/recommend", json.loads(BODY)).status == 200  # it still answers


@pytest.fixture
def connect(worker: int, service: tuple[list[int], Client]) -> Connect:
    return lambda: socket.create_connection(("127.0.0.1", service[1].port), timeout=WAIT)


def received(connection: socket.socket) -> bytes:
    """Return everything that the service sends until it closes the connection."""
    found = b""
    while True:
        try:
            part = connection.recv(1 << 16)
        except ConnectionResetError:
            part = b""
        if not part:
            return found
        found += part


def answer(connection: socket.socket, data: bytes) -> bytes:
    """Send bytes, as many as the service takes, and return everything that comes back until the connection ends."""
    with connection:
        with suppress(OSError):
            connection.sendall(data)
        return received(connection)


def statuses(data: bytes) -> list[int]:
    return [int(one) for one in re.findall(rb"HTTP/1\.1 (\d{3}) ", data)]


def is_error(data: bytes, status: int, field: str) -> bool:
    head, _, body = data.partition(b"\r\n\r\n")
    return statuses(head) == [status] and json.loads(body)["field"] == field and b"nosniff" in head


ENDLESS = {
    "header lines": LIVE[:-2] + b"x-a: bbbbbbbb\r\n" * 1_000_000,
    "one header": LIVE[:-2] + b"x-a: " + b"b" * 15_000_000,
    "one header name": LIVE[:-2] + b"b" * 15_000_000,
    "folded header": LIVE[:-2] + b"x-a: b\r\n" + b" b\r\n" * 3_000_000,
    "path": b"GET /" + b"a" * 15_000_000,
    "query": b"GET /items?query=" + b"a" * 15_000_000,
    "trailers": CHUNKED + b"2\r\n{}\r\n0\r\n" + b"x-a: bbbbbbbb\r\n" * 1_000_000,
    "trailer": CHUNKED + b"2\r\n{}\r\n0\r\nx-a: " + b"b" * 15_000_000,
    "chunk extension": CHUNKED + b"2;" + b"b" * 15_000_000,
    "chunk size": CHUNKED + b"0" * 15_000_000,
    "requests": LIVE * 300_000,
    "empty lines": b"\r\n" * 7_000_000,
    "body of a GET": LIVE[:-2] + b"Content-Length: 15000000\r\n\r\n" + b"b" * 15_000_000,
    "second request": LIVE + LIVE[:-2] + b"x-a: bbbbbbbb\r\n" * 1_000_000,
}


@pytest.mark.parametrize("kind", list(ENDLESS))
def test_endless_input_takes_no_memory(connect: Connect, worker: int, kind: str) -> None:
    process = psutil.Process(worker)
    before = process.memory_info().rss
    found = answer(connect(), ENDLESS[kind])
    assert process.memory_info().rss - before < 8 << 20
    if kind not in ("requests", "empty lines", "body of a GET", "second request"):
        assert statuses(found)[-1:] in ([431], [400])


@pytest.mark.parametrize(
    ("lines", "status"),
    [(90, 200), (99, 200), (100, 431), (5_000, 431)],
)
def test_a_request_has_at_most_a_hundred_headers(connect: Connect, lines: int, status: int) -> None:
    data = LIVE[:-2] + b"x-a: b\r\n" * (lines - 1) + b"Connection: close\r\n\r\n"
    assert statuses(answer(connect(), data)) == [status]


@pytest.mark.parametrize(("size", "status"), [(60_000, 200), (70_000, 431)])
def test_headers_have_at_most_64_kilobytes(connect: Connect, size: int, status: int) -> None:
    found = answer(connect(), LIVE[:-2] + b"x-a: " + b"b" * size + b"\r\nConnection: close\r\n\r\n")
    assert statuses(found) == [status]
    assert status == 200 or is_error(found, 431, "headers")


@pytest.mark.parametrize("first", [b"", LIVE, LIVE + POST + b"Content-Length: 28\r\n\r\n" + BODY])
def test_each_request_of_a_connection_must_arrive_in_time(connect: Connect, first: bytes) -> None:
    """A byte now and then does not prolong the time."""
    with connect() as connection:
        connection.sendall(first)
        wanted, found = first.count(b"HTTP/1.1"), b""
        while len(statuses(found)) < wanted:
            found += connection.recv(1 << 16)
        began = time.monotonic()
        for byte in LIVE[:-2] + b"x: " + b"y" * 10_000:
            if time.monotonic() - began > 30:
                break
            try:
                connection.sendall(bytes([byte]))
                time.sleep(0.1)
            except OSError:
                break
        assert time.monotonic() - began < 30
        rest = received(connection)
    assert statuses(rest) in ([408], [])  # a client that goes on sending may miss the answer


BAD_LINES = {
    "no HTTP": b"\x16\x03\x01\x00\xff\r\n\r\n",
    "no method": b" / HTTP/1.1\r\n\r\n",
    "unknown method": b"BREW / HTTP/1.1\r\n" + HOST.encode() + b"\r\n",
    "HTTP/9": b"GET / HTTP/9.9\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a path of bytes": b"GET /\xff\xfe HTTP/1.1\r\n" + HOST.encode() + b"\r\n",
    "no path": b"GET http://127.0.0.1 HTTP/1.1\r\n" + HOST.encode() + b"\r\n",
    "a star": b"OPTIONS * HTTP/1.1\r\nConnection: close\r\n" + HOST.encode() + b"\r\n",
    "a port": b"CONNECT 127.0.0.1:80 HTTP/1.1\r\n" + HOST.encode() + b"\r\n",
    "a bracket": b"GET http://[ HTTP/1.1\r\n" + HOST.encode() + b"\r\n",
    "a NUL in a header": LIVE[:-2] + b"x: a\0b\r\n\r\n",
    "two lengths": POST + b"Content-Length: 28\r\nContent-Length: 29\r\n\r\n" + BODY,
    "a length and chunks": POST + b"Content-Length: 28\r\nTransfer-Encoding: chunked\r\n\r\n" + BODY,
    "a negative length": POST + b"Content-Length: -1\r\n\r\n" + BODY,
    "a huge length": POST + b"Content-Length: " + b"9" * 400 + b"\r\n\r\n" + BODY,
    "an odd length": POST + "Content-Length: ²\r\n\r\n".encode("latin-1") + BODY,
    "a space before the colon": LIVE[:-2] + b"x : a\r\n\r\n",
    "a bad chunk": CHUNKED + b"zz\r\n" + BODY,
    "an unknown encoding": POST + b"Transfer-Encoding: gzip\r\n\r\n" + BODY,
}


@pytest.mark.parametrize("kind", list(BAD_LINES))
def test_a_malformed_request_gets_4xx_and_a_sentence(connect: Connect, kind: str) -> None:
    found = answer(connect(), BAD_LINES[kind])
    assert len(statuses(found)) == 1, found
    assert 400 <= statuses(found)[0] < 500
    assert json.loads(found.partition(b"\r\n\r\n")[2])["error"]


@pytest.mark.parametrize("wanted", [b"websocket", b"h2c"])
def test_a_request_to_change_the_protocol_is_answered_in_this_one(connect: Connect, wanted: bytes) -> None:
    data = LIVE[:-2] + b"Connection: Upgrade\r\nUpgrade: " + wanted + b"\r\n\r\n"
    assert statuses(answer(connect(), data + b"\x81\x05hello")) == [200]


def test_chunks_pipelines_and_slow_pieces_give_complete_answers_in_order(connect: Connect) -> None:
    chunks = CHUNKED + b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\nx-trailer: 1\r\n\r\n"
    last = LIVE[:-2] + b"Connection: close\r\n\r\n"
    found = answer(connect(), chunks + LIVE + POST + b"Content-Length: 28\r\n\r\n" + BODY + last)
    assert statuses(found) == [200] * 4
    assert [b"history" in part for part in found.split(b"HTTP/1.1")[1:]] == [True, False, True, False]
    with connect() as connection:
        for byte in last:
            connection.sendall(bytes([byte]))
        assert statuses(received(connection)) == [200]


def test_a_header_after_the_body_is_not_a_header_of_the_request(connect: Connect) -> None:
    head = f"POST /recommend HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n".encode()
    late = b"0\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
    with connect() as connection:
        connection.sendall(head + b"1c\r\n" + BODY + b"\r\n" + late)
        assert statuses(connection.recv(1 << 16)) == [415]


def test_too_many_waiting_requests_are_refused_after_the_answers_to_the_first(connect: Connect) -> None:
    found = statuses(answer(connect(), LIVE * 3000))
    assert found
    assert set(found) == {200}


def test_a_client_that_closes_its_own_side_gets_its_answer(connect: Connect) -> None:
    with connect() as connection:
        connection.sendall(POST + b"Content-Length: 28\r\n\r\n" + BODY)
        connection.shutdown(socket.SHUT_WR)
        assert statuses(received(connection)) == [200]
    for half in (b"", LIVE[:20], POST + b"Content-Length: 28\r\n\r\n{"):
        with connect() as connection:
            connection.sendall(half)
            connection.shutdown(socket.SHUT_WR)
            assert received(connection) == b""


def test_a_client_that_does_not_read_its_answers_is_disconnected(connect: Connect, worker: int) -> None:
    asked = b'{"history": ["i01"], "k": 40, "why": 3}'
    request = POST + b"Content-Length: %d\r\n\r\n" % len(asked) + asked
    with connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)
        until = time.monotonic() + WAIT
        while _is_connected(worker, connection):
            assert time.monotonic() < until
            with suppress(OSError):
                connection.send(request)


def _is_connected(worker: int, connection: socket.socket) -> bool:
    try:
        port = connection.getsockname()[1]
    except OSError:
        return False
    return any(one.raddr and one.raddr.port == port for one in psutil.Process(worker).net_connections("tcp"))


def test_beyond_the_limit_of_connections_others_are_told_to_come_back(connect: Connect, worker: int) -> None:
    idle = [connect() for _ in range(40)]
    try:
        found = answer(connect(), LIVE)
        assert is_error(found, 503, "")
        assert b"Retry-After: 1" in found
    finally:
        for one in idle:
            one.close()
    until = time.monotonic() + WAIT
    while statuses(answer(connect(), LIVE[:-2] + b"Connection: close\r\n\r\n")) != [200]:
        assert time.monotonic() < until


def test_a_body_that_is_too_long_or_stops_is_refused(connect: Connect) -> None:
    assert statuses(answer(connect(), POST + b"Content-Length: 90000\r\n\r\n" + b"x" * 90_000)) == [413]
    assert statuses(answer(connect(), CHUNKED + b"ffff\r\n" + b"x" * 65_535 + b"\r\n")) == [413]
    assert statuses(answer(connect(), POST + b"Content-Length: 100\r\n\r\n{")) == [408]
    assert statuses(answer(connect(), CHUNKED + b"5\r\n{")) == [408]


_HEADER_NAMES = ("Host", "Origin", "Authorization", "Content-Type", "Content-Length", "Range", "Cookie", "Accept", "Te")
_VALUES = st.one_of(
    st.binary(max_size=30),
    st.sampled_from(
        [b"http://[", b"http://[::1", b"bytes=-", b"bytes=9-1,x", b"Bearer \xb2.\xff", b"[", b"\xb2", b"a;b=", b"1e9"]
    ),
)
_PATHS = st.one_of(
    st.sampled_from(
        [
            "/",
            "/static/",
            "/static/%00.js",
            "/static/" + "a/" * 2500 + "x.js",
            "/static/..%2f",
            "/items?query=%ff&limit=1",
        ]
    ),
    st.binary(max_size=20).map(lambda raw: "/static/" + "".join(f"%{byte:02x}" for byte in raw) + ".js"),
    st.binary(max_size=20).map(lambda raw: "/" + "".join(f"%{byte:02x}" for byte in raw)),
)


@settings(max_examples=150)
@given(
    method=st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"]),
    path=_PATHS,
    headers=st.lists(st.tuples(st.sampled_from(_HEADER_NAMES), _VALUES), max_size=4),
)
def test_no_path_or_header_is_a_bug(
    service: tuple[list[int], Client], method: str, path: str, headers: list[tuple[str, bytes]]
) -> None:
    known = {name for name, _ in headers}
    lines = [] if "Host" in known else [b"Host: 127.0.0.1\r\n"]
    lines += [name.encode() + b": " + value.translate(None, b"\r\n") + b"\r\n" for name, value in headers]
    with socket.create_connection(("127.0.0.1", service[1].port), timeout=WAIT) as connection:
        connection.sendall(f"{method} {path} HTTP/1.1\r\n".encode() + b"".join(lines) + b"Connection: close\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        found = statuses(received(connection))
    assert all(status < 500 for status in found)
