"""Claims on pieces of work: of several processes one holds a claim, and a claim ends with its process.

A claim is the operating system's lock on one byte of an empty file, so it needs no clock and survives no crash. The
last process that closes the file removes it. On Windows nothing is locked: two commands may do the same work there.
"""

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

try:
    import fcntl
except ImportError:  # a system without it
    fcntl = None  # type: ignore[assignment]


@dataclass
class Claims:
    """Claims by name, in the file at `path`; with None, every claim is granted."""

    path: Path | None
    _descriptor: int = field(default=-1, init=False)

    def take(self, name: str) -> bool:
        """Return whether this process holds the claim now; False if another process does."""
        if self.path is None or fcntl is None:
            return True
        try:
            while True:
                if self._descriptor < 0:
                    self._open(os.O_CREAT)
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _place(name))
                with suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(self._descriptor), self.path.stat()):
                        return True
                self._close()  # another process removed the file before we locked it
        except (BlockingIOError, PermissionError):
            return False
        except OSError:  # a file system without locks: the work may be done twice
            return True

    def release(self, name: str) -> None:
        """End a claim."""
        if self._descriptor >= 0:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, _place(name))

    def __enter__(self) -> "Claims":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.path is None or fcntl is None:
            return
        with suppress(OSError):  # another process holds a claim, and removes the file
            if self._descriptor < 0:
                self._open()  # a killed run may have left the file
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.path.unlink(missing_ok=True)
        if self._descriptor >= 0:
            self._close()

    def _open(self, flags: int = 0) -> None:
        assert self.path is not None
        self._descriptor = os.open(self.path, flags | os.O_RDWR | os.O_CLOEXEC, 0o666)

    def _close(self) -> None:
        os.close(self._descriptor)
        self._descriptor = -1


def _place(name: str) -> int:
    """Return the byte that stands for a name; two names share one with a chance of 1 in 2^62."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest()) >> 2
