"""A running service in a thread of the test, and an HTTP client for it."""

import http.client
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from recfusion.server.app import make_app
from recfusion.server.config import Settings
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
    """Sends requests to a service, each over a new connection."""

    port: int

    def ask(self, method: str, path: str, document: Any = None, headers: Mapping[str, str] | None = None) -> Reply:
        """Send a request; bytes are sent unchanged."""
        sent = {"Host": f"127.0.0.1:{self.port}", "Content-Type": "application/json", **(headers or {})}
        body = document if document is None or isinstance(document, bytes) else json.dumps(document).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            return Reply(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def post(self, path: str, document: Any, headers: Mapping[str, str] | None = None) -> Reply:
        return self.ask("POST", path, document, headers)

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Reply:
        return self.ask("GET", path, headers=headers)


@contextmanager
def running(settings: Settings) -> Iterator[Client]:
    """Serve on a free port until the block ends."""
    server = uvicorn.Server(uvicorn.Config(make_app(settings), **options(settings.model_copy(update={"port": 0}))))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the service did not start"
        time.sleep(0.01)
    try:
        yield Client(server.servers[0].sockets[0].getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(20)


def settings_for(folder: Path, **more: Any) -> Settings:
    """Return settings that store the events beside the folder."""
    return Settings(folder=folder, events=folder.with_name(f"{folder.name}.events.sqlite"), **more)
