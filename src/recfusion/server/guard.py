"""Checks of every request before it reaches a route (host, origin, key, size), and headers of every answer."""

import asyncio
import json
import logging
import math
import os
import time
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from recfusion.server.audit import AuditLog
from recfusion.server.config import LOOPBACK, Settings
from recfusion.server.http_errors import Fault, fault_reply, log_failure, to_fault
from recfusion.server.keys import Keys, scope_of
from recfusion.server.metrics import Metrics
from recfusion.server.rate_limit import RateLimit

log = logging.getLogger(__name__)
OPEN = ("/live", "/ready")  # health checks
PAGES = {"/": "index.html", "/docs": "routes.html", "/workbench": "workbench.html"}
PLACED = ("/recommend", "/recommend/batch", "/similar", "/complete")  # routes with placements
_REFUSED = (401, 403, 421, 429)
_DISCARD = 1 << 24  # bytes of a refused body that are read
SECURITY_HEADERS = {
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
        self, app: FastAPI, *, settings: Settings, keys: Keys, metrics: Metrics, routes: frozenset[str]
    ) -> None:
        self.app, self.settings, self._keys, self._metrics, self._routes = app, settings, keys, metrics, routes
        self._open = () if settings.shop else OPEN  # the health of one of several shops is its own affair
        self._rates = RateLimit(settings.rate_limit and settings.rate_limit / settings.workers)
        self._audit = AuditLog(settings.audit_log, settings.shop)
        self._hosts = {name.lower() for name in (*LOOPBACK, settings.host, *settings.host_name)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
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
            if scope["method"] == "OPTIONS" and self._is_allowed(origin):
                await Response(status_code=204)(scope, receive, sending)
                return
            whole = await self._body(scope, headers, receive)
            await self.app(scope, whole, sending)
        except Fault as fault:
            if not started:
                await fault_reply(fault)(scope, receive, sending)
        except _Gone:
            status = 499
        except Exception as error:
            log_failure("A request failed", error)
            if not started:
                await fault_reply(to_fault(error))(scope, receive, sending)
        finally:
            self._record(scope, status, time.perf_counter() - began, headers)

    def _check(self, scope: Scope, headers: Headers, origin: str | None) -> None:
        if _host_name(headers.get("host", "")) not in self._hosts:
            raise Fault(421, "Host", "Expected a name of this service as Host: add one with serve --host-name NAME.")
        if origin is not None and not self._is_allowed(origin) and not _same(origin, headers.get("host", "")):
            raise Fault(403, "Origin", "Expected a page of this service: allow another with serve --origin URL.")
        path, method = scope["path"], scope["method"]
        if path in self._open or _is_static(path) or (self._is_allowed(origin) and method == "OPTIONS"):
            return
        sent, needed = headers.get("authorization"), scope_of(method, path)
        key = self._keys.check(sent, needed)
        scope["key"] = key
        if key.origins is not None and origin not in key.origins:
            raise Fault(403, "Origin", "This key is for other pages: name their origins in the key file.")
        if key.placements is not None and needed == "read" and path not in PLACED:
            raise Fault(403, "Authorization", f"This key is for {', '.join(PLACED)} with a placement: use another key.")
        if wait := self._rates.wait(key.name):
            most = f"{self.settings.rate_limit:g} requests per second"
            raise Fault(429, "Authorization", f"Expected at most {most}.", {"Retry-After": str(math.ceil(wait))})

    async def _body(self, scope: Scope, headers: Headers, receive: Receive) -> Receive:
        """Read the body and check its limits; return a function that delivers it as one message."""
        if scope["method"] in ("GET", "HEAD", "OPTIONS", "DELETE"):
            return receive
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise Fault(415, "Content-Type", "Expected a body of type application/json.")
        most = self.settings.max_body
        length = headers.get("content-length")
        too_long = Fault(413, "body", f"Expected a body of at most {most:,} bytes.", {"Connection": "close"})
        if length is not None and (not length.isdecimal() or int(length[:12]) > most):
            if len(length) < 12 and int(length) <= _DISCARD:
                await self._discard(receive)
            raise too_long
        parts, size, more = [], 0, True
        try:
            async with asyncio.timeout(self.settings.seconds):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Gone
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    more = message.get("more_body", False)
                    if size > most:
                        await self._discard(receive)
                        raise too_long
        except TimeoutError:
            raise Fault(408, "body", "The body did not arrive in time.", {"Connection": "close"}) from None
        pending: list[Message] = [{"type": "http.request", "body": b"".join(parts), "more_body": False}]

        async def whole() -> Message:
            return pending.pop() if pending else await receive()

        return whole

    async def _discard(self, receive: Receive) -> None:
        """Read the rest of a refused body, within limits, since many clients read the answer only after sending."""
        size, more = 0, True
        with suppress(TimeoutError):
            async with asyncio.timeout(min(2.0, self.settings.seconds / 2)):
                while more and size < _DISCARD:
                    message = await receive()
                    size += len(message.get("body", b""))
                    more = message.get("more_body", False)

    def _is_allowed(self, origin: str | None) -> bool:
        """Return whether pages of another origin may send requests."""
        return origin is not None and (origin in self.settings.origin or origin in self._keys.origins())

    def _answer_headers(self, origin: str | None) -> list[tuple[bytes, bytes]]:
        found = dict(SECURITY_HEADERS)
        if images := " ".join(self.settings.image_origin):
            policy = "Content-Security-Policy"
            found[policy] = found[policy].replace("img-src 'self' data:", f"img-src 'self' data: {images}")
        if origin is not None and self._is_allowed(origin):
            found |= {
                "Access-Control-Allow-Origin": origin,
                "Access-Control-Allow-Headers": "authorization, content-type",
                "Access-Control-Allow-Methods": "GET, POST, PUT",
                "Cross-Origin-Resource-Policy": "cross-origin",
                "Vary": "Origin",
            }
        return [(name.lower().encode(), value.encode()) for name, value in found.items()]

    def _record(self, scope: MutableMapping[str, Any], status: int, seconds: float, headers: Headers) -> None:
        """Count a request and log it: the route, never the path, the query or the body."""
        path = scope["path"]
        route = "page" if _is_static(path) else path if path in self._routes else "other"
        self._metrics.seconds.labels(route).observe(seconds)
        self._metrics.requests.labels(route, str(status)).inc()
        needed = scope_of(scope["method"], path)
        if status in _REFUSED or (needed != "read" and route in self._routes):
            key = self._keys.find(headers.get("authorization"))
            self._audit.write(key=key.name, scope=needed, route=route, status=status)
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
    scheme, _, name = origin.lower().partition("://")
    return scheme in ("http", "https") and name == host.lower()


def _is_static(path: str) -> bool:
    return path in PAGES or path == "/favicon.ico" or path.startswith("/static/")
