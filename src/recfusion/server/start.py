"""Starting a service: one process, or several that share the port, the weights and the file of events."""

import logging
import os
import signal
import socket
import tempfile
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from recfusion.core.errors import InputError
from recfusion.server.app import SETTINGS, make_app
from recfusion.server.config import Settings

_START = 120  # seconds that a process may be deaf, as while it imports on a busy machine
_DRAIN = 30  # seconds that requests have to end after SIGTERM


def run(settings: Settings) -> None:
    """Serve until the process is told to end."""
    signal.signal(signal.SIGTERM, _leave)  # uvicorn drains first, and calls it then
    if settings.workers == 1:
        uvicorn.run(make_app(settings), **options(settings))
        return
    with tempfile.TemporaryDirectory(prefix="recfusion-metrics-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        os.environ[SETTINGS] = settings.model_dump_json()
        uvicorn.run(
            "recfusion.server.app:from_environment", factory=True, workers=settings.workers, **options(settings)
        )


def free_port(host: str, port: int) -> int:
    """Return the port, a free one for 0; raise where nothing can listen there."""
    try:
        place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(place[0], socket.SOCK_STREAM) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(place[4])
            return int(tried.getsockname()[1])
    except OSError as error:
        told = error.strerror or str(error)
        raise InputError(f"Cannot listen on {host}, port {port} ({told}): name another --host or --port.") from None


def _leave(*_: object) -> None:
    raise SystemExit(0)  # through every `with`, so that nothing is left behind


def options(settings: Settings) -> dict[str, Any]:
    """Return what uvicorn is started with."""
    return {
        "host": settings.host,
        "port": settings.port,
        "http": "recfusion.server.start:PatientProtocol",  # by name: a new process imports it when it is up
        "ws": "none",
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "date_header": False,
        "proxy_headers": False,
        "timeout_keep_alive": 30,
        "timeout_graceful_shutdown": _DRAIN,
        "timeout_worker_healthcheck": _START,
    }


class PatientProtocol(HttpToolsProtocol):
    """HTTP that waits so long for a request's head and no longer."""

    seconds = 15.0

    def connection_made(self, transport: Any) -> None:
        """Close a connection on which no request begins in time."""
        super().connection_made(transport)
        self.waiting = self.loop.call_later(self.seconds, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self.waiting.cancel()
        super().connection_lost(exc)

    def on_headers_complete(self) -> None:
        """Wait no longer."""
        self.waiting.cancel()
        super().on_headers_complete()

    def _too_slow(self) -> None:
        logging.getLogger(__name__).info('{"event": "a client sent no request in time"}')
        self.transport.close()
