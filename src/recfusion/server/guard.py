"""Checks of every request before it reaches a route (host, origin, key, size), and headers of every answer."""

import asyncio
import json
import logging
import os
import re
import time
from collections.abc import MutableMapping
from itertools import accumulate
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recfusion.server.config import LOOPBACK, Settings
from recfusion.server.http_errors import Fault, fault_reply, log_failure
from recfusion.server.keys import Keys
from recfusion.server.metrics import Metrics

log = logging.getLogger(__name__)
_OPEN = ("/live", "/ready")  # health checks
_ADMIN = ("/events", "/events/batch", "/events/forget", "/admin/reload")
_BUG = "The request failed because of a bug; see the log of the service."
_DEEPEST = 20  # nested brackets of a body
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)  # possessive: no input makes it backtrack
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; font-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


class Guard:
    """An ASGI application that wraps the routes."""

    def __init__(
        self, app: ASGIApp, *, settings: Settings, keys: Keys, metrics: Metrics, routes: frozenset[str]
    ) -> None:
        self._app, self._settings, self._keys, self._metrics, self._routes = app, settings, keys, metrics, routes
        self._hosts = {name.lower() for name in (*LOOPBACK, settings.host, *settings.host_name)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        started = False

        async def sending(message: Message) -> None:
            nonlocal status, started
            if message["type"] == "http.response.start":
                status, started = message["status"], True
                message["headers"] = [*message["headers"], *self._answer_headers(origin)]
            await send(message)

        try:
            self._check(scope, headers, origin)
            if scope["method"] == "OPTIONS" and origin in self._settings.origin:
                await Response(status_code=204)(scope, receive, sending)
                return
            whole = await self._body(scope, headers, receive)
            await self._app(scope, whole, sending)
        except Fault as fault:
            if not started:
                await fault_reply(fault)(scope, receive, sending)
        except _Gone:
            status = 499
        except Exception as error:
            log_failure("A request failed", error)
            if not started:
                await fault_reply(Fault(500, "", _BUG))(scope, receive, sending)
        finally:
            self._record(scope, status, time.perf_counter() - began)

    def _check(self, scope: Scope, headers: Headers, origin: str | None) -> None:
        if _host_name(headers.get("host", "")) not in self._hosts:
            raise Fault(421, "Host", "Expected a name of this service as Host: add one with serve --host-name NAME.")
        if origin is not None and origin not in self._settings.origin and not _same(origin, headers.get("host", "")):
            raise Fault(403, "Origin", "Expected a page of this service: allow another with serve --origin URL.")
        path, method = scope["path"], scope["method"]
        if origin in self._settings.origin and method == "OPTIONS":
            return
        admin = path in _ADMIN or method not in ("GET", "HEAD", "POST")
        if path not in _OPEN and not _is_static(path):
            self._keys.check(headers.get("authorization"), admin=admin)

    async def _body(self, scope: Scope, headers: Headers, receive: Receive) -> Receive:
        """Read the body and check its limits; return a function that delivers it as one message."""
        if scope["method"] in ("GET", "HEAD", "OPTIONS", "DELETE"):
            return receive
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise Fault(415, "Content-Type", "Expected a body of type application/json.")
        most = self._settings.max_body
        length = headers.get("content-length")
        too_long = Fault(413, "body", f"Expected a body of at most {most:,} bytes.", {"Connection": "close"})
        if length is not None and (not length.isdigit() or int(length) > most):
            raise too_long
        parts, size, more = [], 0, True
        try:
            async with asyncio.timeout(self._settings.seconds):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Gone
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    more = message.get("more_body", False)
                    if size > most:
                        raise too_long
        except TimeoutError:
            raise Fault(408, "body", "The body did not arrive in time.", {"Connection": "close"}) from None
        body = b"".join(parts)
        if _depth(body) > _DEEPEST:
            raise Fault(422, "body", f"Expected at most {_DEEPEST} nested brackets in the body.")
        pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def whole() -> Message:
            return pending.pop() if pending else await receive()

        return whole

    def _answer_headers(self, origin: str | None) -> list[tuple[bytes, bytes]]:
        found = dict(_HEADERS)
        if origin is not None and origin in self._settings.origin:
            found |= {
                "Access-Control-Allow-Origin": origin,
                "Access-Control-Allow-Headers": "authorization, content-type",
                "Access-Control-Allow-Methods": "GET, POST, PUT",
                "Cross-Origin-Resource-Policy": "cross-origin",
                "Vary": "Origin",
            }
        return [(name.lower().encode(), value.encode()) for name, value in found.items()]

    def _record(self, scope: MutableMapping[str, Any], status: int, seconds: float) -> None:
        """Count a request and log it: the route, never the path, the query or the body."""
        path = scope["path"]
        route = path if path in self._routes else "page" if _is_static(path) else "other"
        self._metrics.seconds.labels(route).observe(seconds)
        self._metrics.requests.labels(route, str(status)).inc()
        if log.isEnabledFor(logging.INFO):
            line = {"time": round(time.time(), 3), "method": scope["method"], "route": route, "status": status}
            log.info(json.dumps(line | {"ms": round(1000 * seconds, 2), "process": os.getpid()}))


class _Gone(Exception):  # noqa: N818
    """The client disconnected in the middle of a request."""


def _host_name(host: str) -> str:
    """Return the name in a Host header, without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _same(origin: str, host: str) -> bool:
    parts = urlsplit(origin)
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()


def _is_static(path: str) -> bool:
    return path in ("/", "/docs", "/favicon.ico") or path.startswith("/static/")


def _depth(body: bytes) -> int:
    """Return how deeply brackets are nested, without those inside strings."""
    if body.count(b"[") + body.count(b"{") <= _DEEPEST:
        return 0
    brackets = _STRING.sub(b"", body).translate(None, _NO_BRACKETS)
    return max(accumulate(1 if sign in b"[{" else -1 for sign in brackets), default=0)
