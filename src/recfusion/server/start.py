"""Start a service: one process, or several that share the port, the weights and the event store."""

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

_START = 120  # seconds that a worker process may take to import on a busy machine
_DRAIN = 30  # seconds that open requests may take after SIGTERM


def run(settings: Settings) -> None:
    """Serve until the process is stopped."""
    signal.signal(signal.SIGTERM, _exit)  # uvicorn finishes open requests first and then calls it
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
    """Return the port, or a free one for 0; raise if nothing can listen there."""
    try:
        address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(address[0], socket.SOCK_STREAM) as test:
            test.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            test.bind(address[4])
            return int(test.getsockname()[1])
    except OSError as error:
        reason = error.strerror or str(error)
        message = f"Cannot listen on {host}, port {port} ({reason}): choose another --host or --port."
        raise InputError(message, "port") from None


def _exit(*_: object) -> None:
    raise SystemExit(0)  # leaves every `with`, so that temporary files are removed


def options(settings: Settings) -> dict[str, Any]:
    return {
        "host": settings.host,
        "port": settings.port,
        "http": "recfusion.server.start:PatientProtocol",  # by name, so that worker processes import it
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
    """HTTP with a time limit for the head of a request."""

    seconds = 15.0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.timer = self.loop.call_later(self.seconds, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        self.timer.cancel()
        super().connection_lost(exc)

    def on_headers_complete(self) -> None:
        self.timer.cancel()
        super().on_headers_complete()

    def _too_slow(self) -> None:
        logging.getLogger(__name__).info('{"event": "no request arrived in time"}')
        self.transport.close()
