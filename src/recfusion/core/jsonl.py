"""Append-only files of JSON lines, one complete line for each finished piece of work.

A line is written by one call under a lock and then forced to the disk. A crash can only cut the last line short:
readers skip it with a warning, and the next writer removes it.

A file NAME.jsonl can be packed: NAME.jsonl.xz holds the same lines, compressed. Both are read as one file, the packed
lines first. New lines are always appended to NAME.jsonl, until the next `pack`.
"""

import json
import logging
import lzma
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from recfusion.core.errors import InputError
from recfusion.core.files import check_regular, check_writable_file, lock_file, replacing

log = logging.getLogger(__name__)
PACKED = ".xz"


def plain_path(path: str | Path) -> Path:
    """Return the path of the file that lines are appended to, given it or its packed form."""
    path = Path(path)
    return path.with_suffix("") if path.suffix == PACKED else path


def packed_path(path: str | Path) -> Path:
    """Return the path of the packed lines of a file."""
    plain = plain_path(path)
    return plain.with_name(plain.name + PACKED)


def json_line(document: object) -> bytes:
    """Return a document as one line of JSON."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"


@dataclass(frozen=True)
class JsonLines:
    """How to read and append one kind of file."""

    start: bytes  # how each line begins; a last line with another beginning is never removed
    what: str  # what a line holds, for messages: "result"
    lost: str  # what a cut line means: "its fit counts as not run"

    def begins(self, path: str | Path) -> bool:
        """Return whether a file is of this kind, judged by its first bytes; an empty file is."""
        plain, packed = plain_path(path), packed_path(path)
        try:
            is_plain = (plain.exists() and plain.stat().st_size) or not packed.exists()
            check_regular(plain if is_plain else packed)
            with plain.open("rb") if is_plain else lzma.open(packed) as file:
                return self.start.startswith(file.read(len(self.start)))
        except (OSError, InputError, lzma.LZMAError, EOFError):
            return False

    def read(self, path: str | Path) -> list[bytes]:
        """Return the lines of a file and of its packed form, without a cut last line; no file means no lines."""
        plain = plain_path(path)
        try:
            if plain.exists():
                check_regular(plain)
            with _locked(plain, os.O_RDONLY, self.what) as descriptor:
                packed, lines = self._packed_lines(plain), _lines(descriptor)
        except FileNotFoundError:
            return self._packed_lines(plain)
        if lines and self._is_torn(lines[-1]):
            log.warning("The last line of '%s' was cut short and is left out: %s.", plain, self.lost)
            lines.pop()
        known = set(packed)  # a crash of `pack` may leave lines in both files
        return [*packed, *(line for line in lines if line not in known)]

    def read_new(self, path: str | Path, offset: int) -> tuple[list[bytes], int]:
        """Return the complete lines of the unpacked file after `offset` bytes, and where the last of them ends.

        All lines are new if the file is shorter than `offset`.
        """
        try:
            with plain_path(path).open("rb") as file:
                if os.fstat(file.fileno()).st_size < offset:
                    offset = 0
                file.seek(offset)
                content = file.read()
        except FileNotFoundError:
            return [], 0
        end = content.rfind(b"\n") + 1
        return content[:end].splitlines(keepends=True), offset + end

    def parse(self, line: bytes, where: str) -> dict[str, object]:
        """Return the document of a line; `where` names the line in an error."""
        document = _json(line)
        if not isinstance(document, dict) or not line.startswith(self.start):
            raise InputError(
                f"Expected a {self.what} as JSON in '{where}', got something else: remove the line, or name another "
                "file."
            )
        return document

    def append(self, path: str | Path, line: bytes, check: Callable[[bytes, str], object]) -> None:
        """Add a line and sync it, after removing a cut last line; `check` raises for a last line of another kind."""
        path = plain_path(path)
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

    def pack(self, path: str | Path, check: Callable[[bytes, str], object]) -> Path:
        """Move all lines into the packed file and return its path; `check` raises for a line of another kind."""
        plain, packed = plain_path(path), packed_path(path)
        if not plain.exists():
            check_regular(packed)
            return packed
        with _locked(plain, os.O_RDWR | os.O_APPEND, self.what) as descriptor:
            self._mend(descriptor, plain, check)
            lines = self._packed_lines(plain)
            known = set(lines)
            lines += [line for line in _lines(descriptor) if line not in known]
            for number, line in enumerate(lines, start=1):
                check(line, f"{plain}, line {number}")
            with replacing(packed) as beside:
                beside.write_bytes(lzma.compress(b"".join(lines), preset=9 | lzma.PRESET_EXTREME))
            plain.unlink()
        return packed

    def _packed_lines(self, path: Path) -> list[bytes]:
        packed = packed_path(path)
        if not packed.exists():
            return []
        check_regular(packed)
        try:
            return lzma.decompress(packed.read_bytes()).splitlines(keepends=True)
        except (OSError, lzma.LZMAError) as error:
            raise InputError(
                f"Expected packed {self.what}s in '{packed}', got a file that cannot be unpacked ({error}): restore "
                "it, or name another file."
            ) from None

    def _mend(self, descriptor: int, path: Path, check: Callable[[bytes, str], object]) -> None:
        """Remove a cut last line, and end a complete one that lacks its newline, so that no two lines can merge."""
        start, last = _last_line(descriptor)
        if last and self._is_torn(last):
            log.warning("The last line of '%s' was cut short and is removed.", path)
            os.ftruncate(descriptor, start)
        elif last:
            check(last, f"{path}, last line")
            if not last.endswith(b"\n"):
                os.write(descriptor, b"\n")

    def _is_torn(self, line: bytes) -> bool:
        """Return whether a last line is the beginning of one of ours, or zeros after a crash of the system."""
        text = line.rstrip(b"\n")
        ours = text.startswith(self.start) or self.start.startswith(text) or not text.strip(b"\0")
        return ours and _json(text) is None


@contextmanager
def _locked(path: Path, flags: int, what: str) -> Iterator[int]:
    """Yield a descriptor of the file, locked against other processes of ours until the block ends."""
    while True:
        try:
            # Without O_BINARY, Windows would turn newlines into two bytes.
            descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0), 0o666)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise InputError(
                f"Cannot open the {what}s '{path}': {error.strerror or error}; name another file."
            ) from None
        try:
            lock_file(descriptor, shared=flags == os.O_RDONLY)
            if not _is_removed(path, descriptor):
                yield descriptor
                return
        finally:
            os.close(descriptor)


def _is_removed(path: Path, descriptor: int) -> bool:
    """Return whether `pack` removed the file while we waited for its lock: what is written to it would be lost."""
    try:
        return not os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return True


def _lines(descriptor: int) -> list[bytes]:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        return file.read().splitlines(keepends=True)


def _write_whole(descriptor: int, line: bytes) -> None:
    size = os.fstat(descriptor).st_size
    written = os.write(descriptor, line)
    if written < len(line):  # a full disk takes a part of it
        os.ftruncate(descriptor, size)
        raise OSError(0, "No space left on device")
    os.fsync(descriptor)


def _last_line(descriptor: int) -> tuple[int, bytes]:
    """Return where the last line begins, and the line with its newline if it has one."""
    if not (size := os.fstat(descriptor).st_size):
        return 0, b""
    with mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) as text:
        start = text.rfind(b"\n", 0, size - 1) + 1
        return start, text[start:]


def _json(line: bytes) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
