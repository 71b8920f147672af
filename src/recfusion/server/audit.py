"""The audit log: a JSON line for each request that writes or is refused, without ids, bodies or addresses."""

import json
import logging
import os
import time
from pathlib import Path

from recfusion.core.errors import WriteError

log = logging.getLogger(__name__)


class AuditLog:
    """Appends lines to a file that only its owner may read; several processes may append to one file."""

    def __init__(self, path: Path | None, shop: str = "") -> None:
        self._path, self._more = path, {"shop": shop} if shop else {}
        if path is not None:
            try:
                self._append(b"")
            except OSError as error:
                message = f"Cannot write the audit log '{path}' ({error.strerror}): name a file with --audit-log."
                raise WriteError(message, "audit_log") from None

    def write(self, *, key: str, scope: str, route: str, status: int) -> None:
        """Append a line; a full disk is logged and does not fail the request."""
        if self._path is None:
            return
        line = {"time": round(time.time(), 3), "key": key, "scope": scope, "route": route, "status": status}
        try:
            self._append(json.dumps(line | self._more | {"process": os.getpid()}).encode() + b"\n")
        except OSError:
            log.error('{"event": "the audit log cannot be written"}')

    def _append(self, line: bytes) -> None:
        """Open the file for each line, so that it may be rotated by renaming."""
        assert self._path is not None
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line)  # one write: lines of several processes do not mix
        finally:
            os.close(file)
