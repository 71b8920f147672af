"""Error responses: one sentence and the field that it is about."""

import json
import logging
import sqlite3
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from recfusion.core.errors import InputError, first_problem
from recfusion.core.memory import is_out_of_memory

log = logging.getLogger(__name__)


class Fault(Exception):  # noqa: N818
    """A request that fails, with the status, the field and a sentence that explains why."""

    def __init__(self, status: int, field: str, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.field, self.sentence, self.headers = status, field, sentence, dict(headers or {})


def log_failure(what: str, error: Exception) -> None:
    """Log where a bug occurred, without its message, which may repeat what a client sent."""
    places = [f"{Path(one.filename).name}:{one.lineno}" for one in traceback.extract_tb(error.__traceback__)]
    reason = {"reason": name} if (name := getattr(error, "sqlite_errorname", None)) else {}  # such as SQLITE_FULL
    log.error(json.dumps({"event": what, "kind": type(error).__name__, **reason, "at": places[-8:]}))


def reply(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(text.encode(), status, dict(headers or {}), "application/json")


def document(fault: Fault) -> dict[str, str]:
    """Return the body of an error response."""
    return {"error": fault.sentence, "field": fault.field}


def fault_reply(fault: Fault) -> Response:
    return reply(document(fault), fault.status, fault.headers)


def to_fault(error: Exception, prefix: str = "") -> Fault:
    """Return the fault of an error in a request; `prefix` comes before its field."""
    match error:
        case Fault():
            return Fault(error.status, prefix + error.field, error.sentence, error.headers)
        case InputError():
            return Fault(422, prefix + (error.field or "body"), str(error))
        case RequestValidationError():
            return _validation_fault(error.errors()[0])
        case HTTPException():
            field = {400: "body", 404: "path", 405: "method"}.get(error.status_code, "request")
            return Fault(error.status_code, field, f"{error.detail}.", error.headers)
        case sqlite3.Error():
            log_failure("The event store cannot be used", error)
            problem = "The event store cannot be used now: try again in a second."
            return Fault(503, "", problem, {"Retry-After": "1"})
    if is_out_of_memory(error):
        return Fault(503, "", "The service has too little memory for this now: try again later.", {"Retry-After": "10"})
    return Fault(500, "", "The service failed; its log has the details.")


def _validation_fault(first: Mapping[str, Any]) -> Fault:
    """Return the fault of the first field of a request that is wrong; its value is not repeated."""
    if first.get("type") == "json_invalid":
        return Fault(400, "body", "Expected JSON in the body, got something else.")
    place = [part for part in first.get("loc", ()) if part not in ("body", "query", "path")]
    field, problem = first_problem({"loc": place, "msg": first.get("msg", "it is wrong"), "input": None})
    field = field[:200] or "body"
    return Fault(422, field, f"{field}: {problem[:300]}.")


ERRORS = (Fault, InputError, RequestValidationError, HTTPException, sqlite3.Error, Exception)  # that routes may raise
