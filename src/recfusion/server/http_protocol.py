"""HTTP connections with limits: bytes and number of headers, seconds per request, queued requests, connections."""

import asyncio
import json
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from recfusion.server.guard import SECURITY_HEADERS, Guard
from recfusion.server.http_errors import Fault, document
from recfusion.server.shops import Shops

_DISCARD_SECONDS = 2.0  # for which bytes after a refused request are discarded, so that the client can read the answer
_DISCARD_BYTES = 1 << 20
_LAST_REQUEST = 1.0  # seconds in which a request may still arrive on an idle connection when the service stops
_BAD = Fault(400, "request", "Expected an HTTP/1.1 request, got something else.")


class LimitedProtocol(HttpToolsProtocol):
    """One connection; its limits are in the settings of the service.

    A timer runs while the client has begun a request and not finished it, and while it does not read its answer.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        assert isinstance(self.app, Guard | Shops)
        self.limits = self.app.settings
        self.timer: asyncio.TimerHandle | None = None
        self.write_timer: asyncio.TimerHandle | None = None
        self.refusal: Fault | None = None
        self.unread = 0  # bytes since the last complete head or piece of a body
        self.head = 0  # bytes of the parsed headers
        self.discarded = 0
        self.leaving = False  # the service stops

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._start_timer()
        if len(self.connections) > self.limits.max_connections:
            busy = "The service has too many connections: try again in a second."
            self._refuse(Fault(503, "", busy, {"Retry-After": "1"}))

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self.resume_writing()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.refusal is not None:
            self.discarded += len(data)
            if self.discarded > _DISCARD_BYTES:
                self.transport.abort()
            return
        self._unset_keepalive_if_required()
        self._start_timer()
        self.unread += len(data)
        try:
            self.parser.feed_data(data)
            self._check_size(self.unread)
        except httptools.HttpParserUpgrade:
            self._refuse(Fault(400, "Upgrade", "Expected a request without Upgrade: this service speaks HTTP/1.1."))
        except (httptools.HttpParserError, Fault) as error:
            known = error if isinstance(error, Fault) else error.__context__
            self._refuse(known if isinstance(known, Fault) else _BAD)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.unread = self.head = self.n_headers = 0
        self.in_head = True

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._check_size(len(self.url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self.head += len(name) + len(value) + 4
        self.n_headers += 1
        most = self.limits.max_headers
        if self.n_headers > most:
            raise Fault(431, "headers", f"Expected at most {most} headers.")
        self._check_size(self.head + len(self.url))
        if self.in_head:  # headers after a body in pieces would otherwise change those that were checked
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop_timer()
        self.unread, self.in_head = 0, False
        if len(self.pipeline) >= self.limits.max_pipelined:
            raise Fault(400, "request", f"Expected at most {self.limits.max_pipelined} requests before their answers.")
        super().on_headers_complete()
        if self.leaving:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self.unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.unread = 0
        if self._is_answering():
            self._stop_timer()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Keep the connection open for the answer if the client only ended its own side."""
        if not self._is_answering() or self.cycle.more_body or self.scheme != "http":
            return None
        self.cycle.keep_alive = False
        return True

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._start_write_timer()

    def timeout_keep_alive_handler(self) -> None:
        self._close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_write_timer()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.write_timer is not None:
            self.write_timer.cancel()
            self.write_timer = None

    def shutdown(self) -> None:
        """Finish the requests of this connection, also one that is about to arrive, and close it."""
        self.leaving = True
        if self._is_answering():
            super().shutdown()
        else:
            self.loop.call_later(_LAST_REQUEST, self._close_if_idle)

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _close_if_idle(self) -> None:
        if not self._is_answering() and not self.unread:
            self._close()

    def _close(self) -> None:
        """Close the connection after the client has read what was sent, or after some seconds."""
        self.transport.close()
        self._start_write_timer()

    def _start_write_timer(self) -> None:
        if self.write_timer is None:
            self.write_timer = self.loop.call_later(self.limits.seconds, self.transport.abort)

    def _start_timer(self) -> None:
        if self.timer is None:
            self.timer = self.loop.call_later(self.limits.seconds, self._too_slow)

    def _stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _too_slow(self) -> None:
        self.timer = None
        if self.unread:
            self._refuse(Fault(408, "request", "The request did not arrive in time."))
        elif self._is_answering():
            super().shutdown()
        else:
            self._close()

    def _check_size(self, size: int) -> None:
        if size > self.limits.max_head:
            raise Fault(431, "headers", f"Expected headers of at most {self.limits.max_head:,} bytes.")

    def _refuse(self, fault: Fault) -> None:
        """Answer with an error and close the connection, after the answers to earlier requests."""
        self.refusal = fault
        self._stop_timer()
        if self._is_answering():
            if self.pipeline or self.cycle.response_started or not self.cycle.more_body:
                super().shutdown()
                return
            self.cycle.disconnected = True  # the refused request is this one: its body cannot be read
            self.cycle.message_event.set()
        body = json.dumps(document(fault)).encode()
        headers = SECURITY_HEADERS | fault.headers | {"Content-Type": "application/json", "Connection": "close"}
        lines = [f"{name}: {value}\r\n" for name, value in {**headers, "Content-Length": str(len(body))}.items()]
        self.transport.write(STATUS_LINE[fault.status] + "".join(lines).encode() + b"\r\n" + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(_DISCARD_SECONDS, self.transport.abort)
