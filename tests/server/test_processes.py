"""`recfusion serve` as a process: several workers, signals, kill -9, and its options."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from recfusion.cli import main as cli
from recfusion.core.errors import InputError
from recfusion.core.pool import THREAD_VARIABLES
from recfusion.data.interactions import Interactions
from recfusion.server.config import Settings
from recfusion.server.event_store import Store
from recfusion.server.start import free_port
from running import Client
from shop import shop

START = "from recfusion.cli.main import main; main()"


@pytest.fixture(scope="module")
def folder(groups: Interactions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shop(groups).save(tmp_path_factory.mktemp("served") / "shop")


@contextmanager
def started(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], Client]]:
    """Run the command on a free port until the block ends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", START, "serve", str(folder), "--port", str(port), *options]
    environment = os.environ | dict.fromkeys(THREAD_VARIABLES, "1")
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True)
    client = Client(port)
    try:
        until = time.monotonic() + 60
        while True:
            assert process.poll() is None, process.stderr and process.stderr.read()
            assert time.monotonic() < until, "the service did not start"
            try:
                client.get("/live")
                break
            except OSError:
                time.sleep(0.05)
        yield process, client
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)
        assert process.stderr is not None
        process.stderr.close()


def test_every_acknowledged_event_survives_a_kill(folder: Path, tmp_path: Path) -> None:
    events = tmp_path / "events.sqlite"
    acknowledged: list[int] = []
    with started(folder, "--events", str(events)) as (process, client):

        def record(first: int) -> None:
            for number in range(first, 10_000, 4):
                try:
                    status = client.post("/events", {"user": f"u{number % 50}", "item": f"i{number}"}).status
                except OSError:
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
        (["--keep-events", "0"], "keep_events"),
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


def test_serve_has_an_option_per_described_setting_and_keeps_old_names_hidden(
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
    assert " --share " not in shown
    started: list[Settings] = []
    monkeypatch.setattr("recfusion.server.start.run", started.append)
    for option in ("--also-share", "--share"):
        call(str(folder), "--port", "0", "--also", str(folder), option, "0.1", "--host-name", "a", "--host-name", "b")
    assert [one.also_share for one in started] == [0.1, 0.1]
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
