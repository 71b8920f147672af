"""Start a service: one process, or several that share the port, the weights and the event store."""

import asyncio
import ctypes
import os
import signal
import socket
import ssl
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import uvicorn
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from recfusion.core.errors import InputError
from recfusion.core.memory import open_file_limit
from recfusion.server.app import SETTINGS, make_app
from recfusion.server.config import Settings

_ACCEPT = 5.0  # seconds in which waiting connections are accepted after SIGTERM
_PAUSE = 0.05
_ATTACH_FILTER = 26  # SO_ATTACH_FILTER of Linux
_DRAIN = 30  # seconds that open requests may take after SIGTERM
_OPEN_FILES, _FEWEST_CONNECTIONS = 64, 16  # files of the libraries and of each shop
_STARTUP_FAILURE = 3  # the exit code of a worker of uvicorn that cannot start


def run(settings: Settings, while_loading: AbstractContextManager[None] | None = None) -> None:
    """Serve until the process is stopped; a service of one process enters `while_loading` to load its models."""
    settings = settings.model_copy(update={"max_connections": _most_connections(settings)})
    signal.signal(signal.SIGTERM, _exit)  # uvicorn finishes open requests first and then calls it
    if settings.workers == 1:
        with while_loading or nullcontext():
            served = make_app(settings)
        config = uvicorn.Config(served, **options(settings))
        with suppress(KeyboardInterrupt):  # Ctrl-C, after open requests are finished
            Server(config).run([config.bind_socket()])
        return
    with tempfile.TemporaryDirectory(prefix="recfusion-metrics-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        os.environ[SETTINGS] = settings.model_dump_json()
        app = "recfusion.server.app:from_environment"
        config = uvicorn.Config(app, factory=True, workers=settings.workers, **options(settings))
        Supervisor(config, [config.bind_socket()]).run()


def _most_connections(settings: Settings) -> int:
    """Return how many connections a process may have; raise if its other files leave too few."""
    limit, others = open_file_limit(), _OPEN_FILES * (1 + len(settings.shops))
    if limit < others + _FEWEST_CONNECTIONS:
        raise InputError(
            f"Expected a limit of at least {others + _FEWEST_CONNECTIONS} open files, got {limit}: raise it with "
            "`ulimit -n 1024`."
        )
    return min(settings.max_connections, limit - others)


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


def check_tls(settings: Settings) -> None:
    """Raise unless the certificate and its key can be used, or none is given."""
    certificate, key = settings.tls_certificate, settings.tls_key
    if certificate is None and key is None:
        return
    if certificate is None or key is None:
        raise InputError("Expected --tls-certificate FILE and --tls-key FILE together.", "tls_key")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror if type(error) in (FileNotFoundError, PermissionError) else "they do not fit together"
        message = f"Cannot use '{certificate}' with '{key}' ({reason}): expected a PEM certificate and its key."
        raise InputError(message, "tls_certificate") from None


def _exit(*_: object) -> None:
    raise SystemExit(0)  # leaves every `with`, so that temporary files are removed


def options(settings: Settings) -> dict[str, Any]:
    return {
        "host": settings.host,
        "port": settings.port,
        "http": "recfusion.server.http_protocol:LimitedProtocol",  # by name, so that worker processes import it
        "ws": "none",
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "date_header": False,
        "proxy_headers": False,
        "timeout_keep_alive": 30,
        "timeout_graceful_shutdown": _DRAIN,
        "ssl_certfile": settings.tls_certificate,
        "ssl_keyfile": settings.tls_key,
    }


class Server(uvicorn.Server):
    """A service of one process."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for _ in _stop_accepting(sockets or []):
            await asyncio.sleep(_PAUSE)
        await super().shutdown(sockets)


class Supervisor(Multiprocess):
    """The parent of several worker processes, which share its sockets."""

    def keep_subprocess_alive(self) -> None:
        """Replace workers that have ended; uvicorn's own method waits for the answer of a worker that was killed."""
        for place, worker in enumerate(self.processes):
            if worker.exitcode == _STARTUP_FAILURE:
                self.should_exit.set()
            elif not worker.process.is_alive():
                self.processes[place] = Process(self.config, self.sockets)
                self.processes[place].start()

    def terminate_all(self) -> None:
        for _ in _stop_accepting(self.sockets):
            time.sleep(_PAUSE)
        super().terminate_all()
        for each in self.sockets:
            each.close()  # the workers have closed theirs: new connections are refused from now on


def _stop_accepting(sockets: list[socket.socket]) -> Iterator[None]:
    """Ignore new connections, and yield until the processes have taken those that wait, at most for some seconds.

    Closing a socket would reset the connections that wait. Only Linux can do this; elsewhere nothing happens.
    """
    if not sys.platform.startswith("linux"):
        return
    program = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))  # a packet filter: return 0, drop it
    for each in sockets:
        each.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(program)))
    until = time.monotonic() + _ACCEPT
    while time.monotonic() < until and any(map(_n_waiting, sockets)):
        yield
    yield  # the event loop serves what it has taken


def _n_waiting(listening: socket.socket) -> int:
    """Return how many connections wait to be accepted: tcpi_unacked of a listening socket."""
    found = listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    return int(struct.unpack_from("I", found, 24)[0])
