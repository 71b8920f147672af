"""A running service in a thread of the test, and an HTTP client for it."""

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from openapi import wrong_answer
from recfusion.core.pool import THREAD_VARIABLES
from recfusion.server.app import make_app
from recfusion.server.config import Settings
from recfusion.server.event_store import Store
from recfusion.server.guard import Guard
from recfusion.server.shops import Shops
from recfusion.server.start import options


@dataclass(frozen=True)
class Reply:
    """The answer to a request."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Client:
    """Sends requests to a service, each over a new connection, and compares the answers with an OpenAPI document."""

    port: int
    tls: ssl.SSLContext | None = None
    document: Any = None

    def ask(self, method: str, path: str, document: Any = None, headers: Mapping[str, str] | None = None) -> Reply:
        """Send a request; bytes are sent unchanged."""
        sent = {"Host": f"127.0.0.1:{self.port}", "Content-Type": "application/json", **(headers or {})}
        body = document if document is None or isinstance(document, bytes) else json.dumps(document).encode()
        kind = partial(http.client.HTTPSConnection, context=self.tls) if self.tls else http.client.HTTPConnection
        connection = kind("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            reply = Reply(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()
        wrong = self.document and wrong_answer(self.document, method, path, reply.status, reply.body)
        assert not wrong, wrong
        return reply

    def post(self, path: str, document: Any, headers: Mapping[str, str] | None = None) -> Reply:
        return self.ask("POST", path, document, headers)

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Reply:
        return self.ask("GET", path, headers=headers)


@contextmanager
def running(settings: Settings, port: int = 0) -> Iterator[Client]:
    """Serve on a port, by default a free one, until the block ends."""
    app = make_app(settings)
    server = uvicorn.Server(uvicorn.Config(app, **options(settings.model_copy(update={"port": port}))))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the service did not start"
        time.sleep(0.01)
    try:
        guard = next(iter(app._shops.values())) if isinstance(app, Shops) else app
        document = guard.app.openapi() if isinstance(guard, Guard) else None
        yield Client(server.servers[0].sockets[0].getsockname()[1], document=document)
    finally:
        server.should_exit = True
        thread.join(20)


@contextmanager
def process(
    arguments: list[str], tls: ssl.SSLContext | None = None, **more: str
) -> Iterator[tuple[subprocess.Popen[str], Client]]:
    """Run a Python program that serves on the port of `--port` until the block ends, with more variables."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", *arguments, "--port", str(port)]
    environment = os.environ | dict.fromkeys(THREAD_VARIABLES, "1") | more
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True)
    client = Client(port, tls)
    try:
        until = time.monotonic() + 60
        while True:
            assert running.poll() is None, running.stderr and running.stderr.read()
            assert time.monotonic() < until, "the service did not start"
            try:
                client.get("/live")
                break
            except OSError:
                time.sleep(0.05)
        described = client.get("/openapi.json")  # a service with keys refuses it
        yield running, replace(client, document=described.json if described.status == 200 else None)
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
        running.wait(20)
        assert running.stderr is not None
        running.stderr.close()


@contextmanager
def two_workers(settings: Settings) -> Iterator[tuple[list[int], Client]]:
    """Run a service of two processes; the block gets their ids, and a client."""
    program = (
        "import sys; from recfusion.server.config import Settings; from recfusion.server.start import run;"
        "run(Settings.model_validate_json(sys.argv[1]).model_copy(update={'port': int(sys.argv[3])}))"
    )
    document = settings.model_copy(update={"workers": 2}).model_dump_json()
    with process([program, document]) as (_, client):
        until = time.monotonic() + 60
        while len(workers := worker_ids(settings.events)) < 2:
            assert time.monotonic() < until, "the second worker did not start"
            time.sleep(0.1)
        yield workers, client


def worker_ids(events: Path) -> list[int]:
    """Return the ids of the worker processes of a service."""
    with closing(Store(events)) as store:
        return sorted(int(name.removeprefix("worker ")) for name in store.states("worker "))


@contextmanager
def only(worker: int, workers: list[int]) -> Iterator[None]:
    """Pause the other workers, so that one takes every new connection."""
    others = [one for one in workers if one != worker]
    for one in others:
        os.kill(one, signal.SIGSTOP)
    try:
        yield
    finally:
        for one in others:
            os.kill(one, signal.SIGCONT)


def self_signed(folder: Path) -> tuple[Path, Path]:
    """Return the files of a certificate for this machine and of its key; skip the test without openssl."""
    made, key = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(made)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except OSError:
        pytest.skip("there is no openssl here")
    return made, key


def settings_for(folder: Path, **more: Any) -> Settings:
    """Return settings that store the events beside the folder."""
    return Settings(folder=folder, events=folder.with_name(f"{folder.name}.events.sqlite"), **more)
