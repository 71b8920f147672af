"""`recfusion serve` as a process: several workers, signals, kill -9, and its options."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path

import psutil
import pytest

from recfusion.cli import main as cli
from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.server.config import Settings
from recfusion.server.event_store import Store
from recfusion.server.start import free_port
from running import Client, process, worker_ids
from shop import shop

START = "from recfusion.cli.main import main; main()"


@pytest.fixture(scope="module")
def folder(groups: Interactions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shop(groups).save(tmp_path_factory.mktemp("served") / "shop")


def started(folder: Path, *options: str) -> AbstractContextManager[tuple[subprocess.Popen[str], Client]]:
    """Run the command on a free port until the block ends."""
    return process([START, "serve", str(folder), *options])


def test_every_acknowledged_event_survives_a_kill(folder: Path, tmp_path: Path) -> None:
    events = tmp_path / "events.sqlite"
    acknowledged: list[int] = []
    with started(folder, "--events", str(events)) as (process, client):

        def record(first: int) -> None:
            for number in range(first, 10_000, 4):
                try:
                    status = client.post("/events", {"user": f"u{number % 50}", "item": f"i{number}"}).status
                except (OSError, http.client.HTTPException):  # also half an answer
                    return
                if status == 201:
                    acknowledged.append(number)

        threads = [threading.Thread(target=record, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        while len(acknowledged) < 200:
            time.sleep(0.005)
        process.kill()
        for thread in threads:
            thread.join()
    assert 200 <= len(acknowledged) < 10_000
    with started(folder, "--events", str(events)) as (_, client):
        one = acknowledged[-1]
        assert client.post("/recommend", {"user": f"u{one % 50}", "k": 1}).json["unknown"].count(f"i{one}") == 1
    store = Store(events)
    kept = {item for (item,) in store.rows("SELECT item FROM events")}
    store.close()
    assert {f"i{number}" for number in acknowledged} <= kept


def test_sigterm_finishes_requests_and_exits_with_success(folder: Path, tmp_path: Path) -> None:
    with started(folder, "--events", str(tmp_path / "e.sqlite")) as (process, client):
        client.post("/recommend", {"history": ["i01"]})
        process.terminate()
        assert process.wait(30) == 0
    store = Store(tmp_path / "e.sqlite")
    assert store.rows("SELECT sum(lists) FROM shown") == [(1,)]
    assert store.states("worker ") == {}
    store.close()


@pytest.mark.slow
def test_several_processes_know_the_same_events_columns_and_models(
    folder: Path, groups: Interactions, tmp_path: Path
) -> None:
    with started(folder, "--events", str(tmp_path / "e.sqlite"), "--workers", "2") as (process, client):
        seen: set[str] = set()
        until = time.monotonic() + 60
        while len(seen) < 2 and time.monotonic() < until:
            seen = {*seen, *re.findall(r"worker (\d+)", str(Store(tmp_path / "e.sqlite").states("worker ")))}
            time.sleep(0.1)
        assert len(seen) == 2
        client.post("/events", {"user": "ann", "item": "i01"})
        client.ask("PUT", "/items", {"items": [{"item": "i02", "columns": {"stock": 77}}]})
        for _ in range(12):  # whichever process answers
            assert client.post("/recommend", {"user": "ann", "k": 1}).json["basis"] == "history"
            asked = {"history": ["i05"], "where": "stock == 77"}
            assert [one["item"] for one in client.post("/recommend", asked).json["items"]] == ["i02"]
        shop(groups, "popularity").save(folder)
        reply = client.post("/admin/reload", {}).json
        assert reply["processes"] == {"loaded": 2, "of": 2}
        versions = {client.post("/recommend", {"history": ["i01"]}).json["version"] for _ in range(12)}
        assert versions == {reply["models"][0]["version"]}
        counted = client.get("/metrics").body.decode()
        lists = sum(
            float(line.rpartition(" ")[2]) for line in counted.splitlines() if line.startswith("recfusion_lists_total")
        )
        assert lists == 36
        process.terminate()
        process.wait(30)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--host", "0.0.0.0"], "--api-key-env"),
        (["--api-key-env", "NO_SUCH"], "16 characters"),
        (["--keep-events", "0"], "--keep-events"),
        (["--event-weight", "view=7"], "view=7"),
        (["--workers", "2", "--histories", "none.csv"], "none.csv"),
    ],
)
def test_a_wrong_option_is_one_sentence(
    folder: Path,
    options: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["recfusion", "serve", str(folder), *options])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    shown = capsys.readouterr().err
    assert stop.value.code == 2
    assert message in shown
    assert len(shown.strip().splitlines()) == 1


def test_serve_has_an_option_per_described_setting(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def call(*arguments: str) -> str:
        monkeypatch.setattr("sys.argv", ["recfusion", "serve", *arguments])
        with pytest.raises(SystemExit):
            cli.main()
        return capsys.readouterr().out

    monkeypatch.setenv("COLUMNS", "200")
    shown = call("--help")
    options = {name for name, field in Settings.model_fields.items() if field.description}
    assert {"port", "also_share", "host_name"} < options
    assert all(f"--{name.replace('_', '-')} " in shown for name in options)
    started: list[Settings] = []
    monkeypatch.setattr("recfusion.server.start.run", lambda settings, **_: started.append(settings))
    names = ("--host-name", "a", "--host-name", "b")
    call(str(folder), "--port", "0", "--also", str(folder), "--also-share", "0.1", *names)
    assert [one.also_share for one in started] == [0.1]
    assert started[0].host_name == ("a", "b")
    assert started[0].events == folder.with_name("shop.events.sqlite")


def test_a_port_that_is_taken_is_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port} .*choose another"):
            free_port("127.0.0.1", port)
    assert free_port("127.0.0.1", 0) > 0
    with pytest.raises(InputError, match="Cannot listen on"):
        free_port("no such name", 80)


@pytest.mark.slow
def test_a_worker_that_hangs_and_is_killed_is_replaced_and_does_not_keep_the_service_from_stopping(
    folder: Path, tmp_path: Path
) -> None:
    events = tmp_path / "e.sqlite"
    with started(folder, "--events", str(events), "--workers", "2") as (process, _):

        def wait_for_two() -> list[int]:
            until = time.monotonic() + 60
            while len(found := [one for one in worker_ids(events) if psutil.pid_exists(one)]) < 2:
                assert time.monotonic() < until
                time.sleep(0.1)
            return found

        hanging = wait_for_two()[0]
        os.kill(hanging, signal.SIGSTOP)
        time.sleep(2)  # the parent looks at its workers twice a second
        os.kill(hanging, signal.SIGKILL)
        until = time.monotonic() + 60
        while hanging in wait_for_two():
            assert time.monotonic() < until
        process.terminate()
        assert process.wait(60) == 0


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("kept", [False, True])
def test_no_accepted_request_is_reset_when_the_service_stops_under_load(
    folder: Path, tmp_path: Path, workers: str, kept: bool
) -> None:
    """Clients send as fast as they can. A connection may be refused; a request on a connection must be answered."""
    options = ("--events", str(tmp_path / "e.sqlite"), "--workers", workers)
    ended: list[str] = []
    answered: list[int] = []
    with started(folder, *options) as (process, client):

        def send() -> None:
            connection: http.client.HTTPConnection | None = None
            body, headers = json.dumps({"history": ["i01"]}), {"Content-Type": "application/json"}
            until = time.monotonic() + 60
            while time.monotonic() < until:
                if connection is None:
                    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=30)
                    try:
                        connection.connect()
                    except OSError:
                        return ended.append("refused")
                try:
                    connection.request("POST", "/recommend", body, headers)
                    reply = connection.getresponse()
                    reply.read()
                    answered.append(reply.status)
                except (OSError, http.client.HTTPException) as error:
                    return ended.append(f"{type(error).__name__} after the connection was made")
                if not kept or reply.headers.get("connection") == "close":
                    connection.close()
                    connection = None
            return ended.append("too late")

        threads = [threading.Thread(target=send) for _ in range(12)]
        for thread in threads:
            thread.start()
        while len(answered) < 100:
            time.sleep(0.01)
        process.terminate()
        assert process.wait(60) == 0
        for thread in threads:
            thread.join()
    assert ended == ["refused"] * 12
    assert set(answered) == {200}
