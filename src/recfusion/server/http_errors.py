"""Error responses: one sentence and the field that it is about."""

import json
import logging
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from starlette.responses import Response

from recfusion.core.errors import InputError, first_problem

log = logging.getLogger(__name__)


class Fault(Exception):  # noqa: N818
    """A request that fails, with the status, the field and a sentence that explains why."""

    def __init__(self, status: int, field: str, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.field, self.sentence, self.headers = status, field, sentence, dict(headers or {})


def log_failure(what: str, error: Exception) -> None:
    """Log where a bug occurred, without its message, which may repeat what a client sent."""
    places = [f"{Path(one.filename).name}:{one.lineno}" for one in traceback.extract_tb(error.__traceback__)]
    log.error(json.dumps({"event": what, "kind": type(error).__name__, "at": places[-8:]}))


def reply(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a document as a JSON response."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(text.encode(), status, dict(headers or {}), "application/json")


def fault_reply(fault: Fault) -> Response:
    """Return a fault as a JSON response."""
    return reply({"error": fault.sentence, "field": fault.field}, fault.status, fault.headers)


def input_fault(error: InputError, prefix: str = "") -> Fault:
    """Return the fault of an error in a request; `prefix` comes before its field."""
    return Fault(422, prefix + (error.field or "body"), str(error))


def validation_fault(errors: Sequence[Mapping[str, Any]]) -> Fault:
    """Return the fault of the first field of a request that is wrong; its value is not repeated."""
    first = errors[0]
    if first.get("type") == "json_invalid":
        return Fault(400, "body", "Expected JSON in the body, got something else.")
    place = [part for part in first.get("loc", ()) if part not in ("body", "query", "path")]
    field, problem = first_problem({"loc": place, "msg": first.get("msg", "it is wrong"), "input": None})
    field = field[:200] or "body"
    return Fault(422, field, f"{field}: {problem[:300]}.")
