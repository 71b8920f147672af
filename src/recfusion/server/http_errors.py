"""What a client is told when something is wrong: one sentence and the field that it is about."""

import json
import logging
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starlette.responses import Response

from recfusion.core.errors import InputError

log = logging.getLogger(__name__)


class Fault(Exception):  # noqa: N818
    """A request that is not answered, with the status, the field and a sentence that say why."""

    def __init__(self, status: int, field: str, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.field, self.sentence, self.headers = status, field, sentence, dict(headers or {})


def log_failure(what: str, error: Exception) -> None:
    """Write down a bug of ours: where it happened, without the message, which may repeat what a client sent."""
    places = [f"{Path(one.filename).name}:{one.lineno}" for one in traceback.extract_tb(error.__traceback__)]
    log.error(json.dumps({"event": what, "kind": type(error).__name__, "at": places[-8:]}))


@contextmanager
def about(field: str) -> Iterator[None]:
    """Say which field an error of the library is about."""
    try:
        yield
    except InputError as error:
        raise Fault(422, field, str(error)) from None


def reply(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a document as JSON."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(text.encode(), status, dict(headers or {}), "application/json")


def fault_reply(fault: Fault) -> Response:
    """Return a fault as JSON."""
    return reply({"error": fault.sentence, "field": fault.field}, fault.status, fault.headers)


def validation_fault(errors: Sequence[Mapping[str, Any]]) -> Fault:
    """Return what is wrong with a request's fields, by the first of them; its value is not repeated."""
    first = errors[0]
    place = [str(part) for part in first.get("loc", ()) if part not in ("body", "query", "path")]
    if first.get("type") == "json_invalid":
        return Fault(400, "body", "Expected JSON in the body, got something else.")
    told = str(first.get("msg", "it is wrong")).removeprefix("Value error, ")
    field = ".".join(place) or "body"
    return Fault(422, field[:200], f"{field[:200]}: {told[:1].lower()}{told[1:300]}.")
