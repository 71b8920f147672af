"""Append-only files of JSON lines: one complete line for each thing that was finished.

A line is written by a single call under a lock and then forced to the disk. A line that a crash cut short can only be
the last one: readers leave it out and say so, and the next writer removes it.
"""

import json
import logging
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from recfusion.core.errors import InputError
from recfusion.core.files import check_regular, check_writable_file, lock_file

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Lines:
    """One kind of such a file."""

    start: bytes  # how each line begins; a last line that begins otherwise is not ours to remove
    what: str  # what a line holds, for messages: "result"
    lost: str  # what it means that a line was cut short: "its fit counts as not run"

    def begins(self, path: str | Path) -> bool:
        """Return whether a file begins as one of this kind does; an empty one may become one."""
        try:
            check_regular(Path(path))
            with Path(path).open("rb") as file:
                head = file.read(len(self.start))
        except (OSError, InputError):
            return False
        return self.start.startswith(head)

    def read(self, path: Path) -> list[bytes]:
        """Return the lines of a file, without a torn last one; a file that is not there has no lines."""
        if not path.exists():
            return []
        check_regular(path)
        with _locked(path, os.O_RDONLY, self.what) as descriptor, os.fdopen(os.dup(descriptor), "rb") as file:
            lines = file.read().splitlines(keepends=True)
        if lines and self._is_torn(lines[-1]):
            log.warning("The last line of '%s' was cut short and is left out: %s.", path, self.lost)
            lines.pop()
        return lines

    def parse(self, line: bytes, where: str) -> dict[str, object]:
        """Return what a line holds; `where` names it in an error."""
        document = _json(line)
        if not isinstance(document, dict) or not line.startswith(self.start):
            raise InputError(
                f"Expected a {self.what} as JSON in '{where}', got something else: remove the line, or name another "
                "file."
            )
        return document

    def append(self, path: Path, line: bytes, check: Callable[[bytes, str], object]) -> None:
        """Add a line and return when it is on the disk; a torn last line is removed before.

        `check` raises for a last line that is not of this kind: nothing is ever added to another file.
        """
        check_writable_file(path)
        try:
            path.absolute().parent.mkdir(parents=True, exist_ok=True)
            with _locked(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, self.what) as descriptor:
                self._mend(descriptor, path, check)
                _write_whole(descriptor, line)
        except OSError as error:
            raise InputError(
                f"Cannot write '{path}': {error.strerror or error}; make room or name another place. "
                "The rows before are unchanged."
            ) from None

    def _mend(self, descriptor: int, path: Path, check: Callable[[bytes, str], object]) -> None:
        """Remove a torn last line, and end a whole one that lacks its newline, so that no two lines can merge."""
        size = os.fstat(descriptor).st_size
        start, last = _last_line(descriptor, size)
        if last and self._is_torn(last):
            log.warning("The last line of '%s' was cut short and is removed.", path)
            os.ftruncate(descriptor, start)
        elif last:
            check(last, f"{path}, last line")
            if not last.endswith(b"\n"):
                os.write(descriptor, b"\n")

    def _is_torn(self, line: bytes) -> bool:
        """Return whether a last line is the beginning of one of ours, or zeros that a crash of the system left."""
        text = line.rstrip(b"\n")
        ours = text.startswith(self.start) or self.start.startswith(text) or not text.strip(b"\0")
        return ours and _json(text) is None


def json_line(document: object) -> bytes:
    """Return a document as one line of JSON."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"


@contextmanager
def _locked(path: Path, flags: int, what: str) -> Iterator[int]:
    """Yield a descriptor of the file, locked against other processes of ours until the block ends."""
    try:
        # Without O_BINARY, Windows would turn newlines into two bytes.
        descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0), 0o666)
    except OSError as error:
        raise InputError(f"Cannot open the {what}s '{path}': {error.strerror or error}; name another file.") from None
    try:
        lock_file(descriptor, shared=flags == os.O_RDONLY)
        yield descriptor
    finally:
        os.close(descriptor)


def _write_whole(descriptor: int, line: bytes) -> None:
    size = os.fstat(descriptor).st_size
    written = os.write(descriptor, line)
    if written < len(line):  # a full disk takes a part of it
        os.ftruncate(descriptor, size)
        raise OSError(0, "No space left on device")
    os.fsync(descriptor)


def _last_line(descriptor: int, size: int) -> tuple[int, bytes]:
    """Return where the last line begins, and the line with its newline if it has one."""
    if not size:
        return 0, b""
    with mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) as text:
        start = text.rfind(b"\n", 0, size - 1) + 1
        return start, text[start:]


def _json(line: bytes) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
