"""Responses that are compressed once and sent to every client that accepts gzip."""

import gzip
from dataclasses import dataclass
from functools import cached_property

from starlette.requests import Request
from starlette.responses import Response

_LEAST = 500  # bytes that are worth compressing


@dataclass(frozen=True)
class Packed:
    """A body with its compressed form. It must be the same for all clients and hold nothing that one of them sent."""

    body: bytes
    media_type: str

    @cached_property
    def packed(self) -> bytes:
        """The body as gzip; equal bodies give equal bytes."""
        return gzip.compress(self.body, mtime=0)

    def reply(self, request: Request, headers: dict[str, str]) -> Response:
        """Return the response in the form that the client accepts."""
        headers = headers | {"Vary": "Accept-Encoding"}
        if len(self.body) < _LEAST or not _accepts(request.headers.get("accept-encoding", "")):
            return Response(self.body, media_type=self.media_type, headers=headers)
        return Response(self.packed, media_type=self.media_type, headers=headers | {"Content-Encoding": "gzip"})


def _accepts(header: str) -> bool:
    """Return whether an Accept-Encoding header names gzip with a weight above 0."""
    for part in header.lower().split(","):
        name, _, weight = part.partition(";")
        if name.strip() in ("gzip", "*"):
            return weight.replace(" ", "").rstrip("0").removesuffix(".") not in ("q=", "q=0")
    return False
