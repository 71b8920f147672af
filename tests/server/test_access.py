"""Who may do what and how much: key files, rate and cost limits, the audit log, TLS, and the token of the page."""

import asyncio
import hashlib
import http.client
import json
import os
import pty
import re
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.server import list_routes
from recfusion.server.event_store import Store
from recfusion.server.http_errors import Fault
from recfusion.server.keys import Key, Keys, read_key_file, scope_of
from recfusion.server.rate_limit import RateLimit
from recfusion.server.service import Service
from recfusion.server.start import check_tls
from running import Client, process, running, self_signed, settings_for
from shop import shop

ASKED = {"history": ["i01"], "k": 1}
NEW = {"new_share": 0.5, "new_column": "since"}
EVENT = {"user": "ann@example.org", "item": "i01"}
START = "from recfusion.cli.main import main; main()"


@pytest.fixture(scope="module")
def folder(groups: Interactions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shop(groups).save(tmp_path_factory.mktemp("served") / "shop")


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def table(name: str, key: str, *scopes: str) -> str:
    return f'["{name}"]\nsha256 = "{hashlib.sha256(key.encode()).hexdigest()}"\nscopes = {json.dumps(scopes)}\n'


def test_each_scope_allows_its_own_routes_and_no_others(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text("".join(table(scope, f"key of {scope}", scope) for scope in ("read", "events", "admin")))
    requests: dict[str, tuple[str, str, Any]] = {
        "read": ("POST", "/recommend", ASKED),
        "events": ("POST", "/events", EVENT),
        "admin": ("PUT", "/items", {"items": [{"item": "i01", "columns": {"stock": 1}}]}),
    }
    with running(settings_for(folder, key_file=file)) as client:
        for needed, (method, path, body) in requests.items():
            assert client.ask(method, path, body).status == 401
            for scope in requests:
                status = client.ask(method, path, body, bearer(f"key of {scope}")).status
                assert status in ((200, 201) if scope == needed else (403,))
    assert scope_of("POST", "/events/forget") == scope_of("POST", "/admin/reload") == "admin"
    assert scope_of("DELETE", "/items") == "admin"
    assert scope_of("POST", "/events/batch") == "events"


def test_keys_are_exchanged_without_a_restart_and_a_wrong_file_changes_nothing(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(table("old", "secret of old", "read"))

    def wait_for(client: Client, key: str, status: int) -> None:
        until = time.monotonic() + 60
        while client.post("/recommend", ASKED, bearer(key)).status != status:
            assert time.monotonic() < until
            time.sleep(0.1)

    with running(settings_for(folder, key_file=file)) as client:
        wait_for(client, "secret of old", 200)
        file.write_text(table("old", "secret of old", "read") + table("new", "secret of new", "read"))
        wait_for(client, "secret of new", 200)
        wait_for(client, "secret of old", 200)
        file.write_text(table("new", "secret of new", "read"))
        wait_for(client, "secret of old", 401)
        file.write_text("[new")
        until = time.monotonic() + 60
        while "old keys stay" not in caplog.text and time.monotonic() < until:
            wait_for(client, "secret of new", 200)
        assert "old keys stay" in caplog.text
        file.unlink()
        time.sleep(1.2)
        wait_for(client, "secret of new", 200)
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    "text",
    ["", "[a", "a = 1", "[a]", '[a]\nsha256 = "short"\nscopes = ["read"]', table("a", "k"), table("a", "k", "write")],
)
def test_a_wrong_key_file_is_one_sentence(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=r"[Kk]ey") as error:
        read_key_file(file)
    assert len(str(error.value).splitlines()) == 1
    with pytest.raises(InputError, match="No such file"):
        read_key_file(tmp_path / "none.toml")


def test_a_rate_limit_allows_a_burst_and_then_a_steady_rate_for_each_name() -> None:
    now = [0.0]
    limit = RateLimit(4.0, lambda: now[0])
    assert [limit.wait("a") for _ in range(5)] == [0, 0, 0, 0, 0.25]
    assert limit.wait("b") == 0
    now[0] = 0.5
    assert [limit.wait("a") for _ in range(3)] == [0, 0, 0.25]
    now[0] = 100.0
    assert [limit.wait("a") == 0 for _ in range(5)] == [True] * 4 + [False]
    assert RateLimit(None).wait("a") == 0


def test_too_many_requests_of_a_key_get_429_with_retry_after(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(table("one", "key one", "read") + table("two", "key two", "read"))
    with running(settings_for(folder, key_file=file, rate_limit=0.01)) as client:
        assert client.post("/recommend", ASKED, bearer("key one")).status == 200
        reply = client.post("/recommend", ASKED, bearer("key one"))
        assert (reply.status, reply.json["field"]) == (429, "Authorization")
        assert 1 <= int(reply.headers["retry-after"]) <= 100
        assert client.post("/recommend", ASKED, bearer("key two")).status == 200
        assert client.get("/live").status == client.get("/ready").status == 200


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/recommend", {"history": [], "k": 1000, "why": 50}, "k"),
        ("/recommend/batch", {"requests": [{"history": [], "k": 1000}] * 51}, "requests"),
        (
            "/recommend/batch",
            {"requests": [{"history": [], "k": 100, "reranking": {"diversity": 0.1}}] * 46},
            "requests",
        ),
        *(
            ("/recommend/batch", {"requests": [{"history": [], "k": 100, **one}] * 46}, "requests")
            for one in ({"at_most": {"kind": 1}}, {"reranking": {"pins": {"1": "i01"}}}, {"reranking": NEW})
        ),
    ],
)
def test_a_request_that_costs_too_much_is_refused(folder: Path, path: str, body: Any, field: str) -> None:
    with running(settings_for(folder)) as client:
        reply = client.post(path, body)
        assert (reply.status, reply.json["field"]) == (422, field)
        assert "at most 50,000" in reply.json["error"]
        assert client.post("/recommend", {"history": [], "k": 1000, "why": 49}).status == 200


def test_similar_items_and_completions_have_a_cost_too(folder: Path) -> None:
    with running(settings_for(folder, max_cost=100)) as client:
        for path, body, cheap, field in (
            ("/similar", {"item": "i01", "k": 101}, {"k": 100}, "k"),
            ("/complete", {"history": ["i01"], "n": 5, "alternatives": 2}, {"alternatives": 1}, "n"),
        ):
            reply = client.post(path, body)
            assert (reply.status, reply.json["field"]) == (422, field)
            assert client.post(path, body | cheap).status == 200


def test_a_costly_batch_is_made_in_parts_and_in_order(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    score = Service._score

    def count(self: Service, jobs: list[Any]) -> list[Any]:
        sizes.append(len(jobs))
        return score(self, jobs)

    monkeypatch.setattr(Service, "_score", count)
    histories = [[f"i{n % 40:02d}"] for n in range(50)]
    with running(settings_for(folder)) as client:
        asked = [{"history": one, "k": 100, "why": 4} for one in histories]  # the cost of each is 500
        answers = client.post("/recommend/batch", {"requests": asked}).json["answers"]
        assert max(sizes) <= list_routes._TOGETHER // 500
        single = [client.post("/recommend", one).json["items"] for one in asked[:3]]
    assert [one["items"] for one in answers[:3]] == single


def test_a_slow_read_of_events_delays_no_other_request(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, go_on = threading.Event(), threading.Event()
    user_items = Store.user_items

    def slow(self: Store, user: str) -> Any:
        reading.set()
        assert go_on.wait(60)
        return user_items(self, user)

    monkeypatch.setattr(Store, "user_items", slow)
    with running(settings_for(folder)) as client:
        found: list[int] = []
        thread = threading.Thread(target=lambda: found.append(client.post("/recommend", {"user": "ann"}).status))
        thread.start()
        assert reading.wait(60)
        assert client.get("/live").status == 200
        go_on.set()
        thread.join()
    assert found == [200]


def test_no_request_and_no_maintenance_reads_events_on_the_event_loop(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []

    def watched(name: str, method: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            if asyncio._get_running_loop() is not None:
                found.append(name)
            return method(*given, **named)

        return call

    with running(settings_for(folder, watch=True)) as client:
        for name in ("state", "states", "user_items", "is_forgotten", "is_erased", "changes", "shown_to", "erase"):
            monkeypatch.setattr(Store, name, watched(name, getattr(Store, name)))
        assert client.post("/events", {"user": "ann", "item": "i01"}).status == 201
        assert client.post("/recommend", {"user": "ann", "remember": True}).status == 200
        change = {"items": [{"item": "i01", "columns": {"stock": 3}}]}
        assert client.ask("PUT", "/items", change).status == client.ask("DELETE", "/items").status == 200
        assert client.post("/admin/reload", {}).status == client.get("/ready").status == 200
        assert client.post("/events/forget", {"user": "ann"}).status == 200
        time.sleep(0.6)  # two rounds of maintenance
        assert found == []


def test_the_audit_log_has_writes_and_refusals_and_no_user_data(folder: Path, tmp_path: Path) -> None:
    file, log = tmp_path / "keys.toml", tmp_path / "audit.jsonl"
    file.write_text(table("website", "key one", "read") + table("shop system", "key two", "events", "admin"))
    with running(settings_for(folder, key_file=file, audit_log=log)) as client:
        client.post("/recommend", ASKED, bearer("key one"))
        client.post("/events", EVENT, bearer("key two"))
        client.post("/events", EVENT, bearer("key one"))
        client.post("/events", EVENT, bearer("secret guess"))
        client.post("/events/forget", {"user": "ann@example.org"}, bearer("key two"))
        client.post("/ann@example.org", EVENT, {"Host": "evil.example"})
    text = log.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(one["key"], one["scope"], one["route"], one["status"]) for one in lines] == [
        ("shop system", "events", "/events", 201),
        ("website", "events", "/events", 403),
        ("", "events", "/events", 401),
        ("shop system", "admin", "/events/forget", 200),
        ("", "read", "other", 421),
    ]
    assert "example" not in text
    assert "guess" not in text
    assert log.stat().st_mode & 0o077 == 0
    with pytest.raises(InputError, match="audit"), running(settings_for(folder, audit_log=tmp_path)):
        pass


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return self_signed(tmp_path_factory.mktemp("tls"))


@pytest.mark.parametrize("workers", ["1", "2"])
def test_https_with_a_certificate(folder: Path, tmp_path: Path, certificate: tuple[Path, Path], workers: str) -> None:
    made, key = certificate
    trusting = ssl.create_default_context(cafile=str(made))
    options = ["--tls-certificate", str(made), "--tls-key", str(key), "--workers", workers]
    arguments = [START, "serve", str(folder), "--events", str(tmp_path / "e.sqlite"), *options]
    with process(arguments, tls=trusting) as (_, client):
        connection = http.client.HTTPSConnection("127.0.0.1", client.port, timeout=60, context=trusting)
        for _ in range(3):  # a kept connection
            connection.request("POST", "/recommend", json.dumps(ASKED), {"Content-Type": "application/json"})
            reply = connection.getresponse()
            assert (reply.status, len(json.loads(reply.read())["items"])) == (200, 1)
        connection.request("GET", "/live", headers={f"x-{n}": "y" for n in range(200)})
        assert connection.getresponse().status == 431
        connection.close()
        with pytest.raises((OSError, http.client.HTTPException)):
            Client(client.port).get("/live")


def test_a_certificate_that_cannot_be_used_is_one_sentence(
    folder: Path, tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    made, key = certificate
    for given in ({"tls_certificate": made}, {"tls_key": key}):
        with pytest.raises(InputError, match="together"):
            check_tls(settings_for(folder, **given))
    with pytest.raises(InputError, match="No such file"):
        check_tls(settings_for(folder, tls_certificate=tmp_path / "none.pem", tls_key=key))
    with pytest.raises(InputError, match="do not fit"):
        check_tls(settings_for(folder, tls_certificate=made, tls_key=made))
    check_tls(settings_for(folder, tls_certificate=made, tls_key=key))


def test_the_token_of_the_page_is_shown_in_a_terminal_and_in_no_log(folder: Path, tmp_path: Path) -> None:
    key = "k" * 20
    arguments = [START, "serve", str(folder), "--events", str(tmp_path / "e.sqlite"), "--api-key-env", "READ_KEY"]
    with process(arguments, READ_KEY=key) as (service, _):
        service.terminate()
        assert service.stderr is not None
        shown = service.stderr.read()
    assert "#token=KEY" in shown
    assert not re.search(r"token=\d", shown)
    assert key not in shown
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", *arguments, "--port", "0"]
    terminal = subprocess.Popen(command, stderr=theirs, env=os.environ | {"READ_KEY": key}, start_new_session=True)
    os.close(theirs)
    shown = ""
    try:
        while "stop with" not in shown:
            shown += os.read(ours, 4096).decode()
    finally:
        terminal.kill()
        terminal.wait(60)
        os.close(ours)
    assert re.search(r"#token=\d+\.[0-9a-f]{64}", shown.replace("\r\n", ""))


def test_a_token_is_worth_nothing_after_a_restart() -> None:
    key = Key.of("api key", "k" * 20, ["read"])
    token = Keys([key], page_secret="first start").token()
    assert Keys([key], page_secret="first start").check(f"Bearer {token}", "read").name == "page"
    with pytest.raises(Fault, match="scope read"):
        Keys([key], page_secret="second start").check(f"Bearer {token}", "read")
