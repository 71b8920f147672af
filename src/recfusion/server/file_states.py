"""The states of files, which tell whether one of them was replaced or written to."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

FileState = tuple[str, int, int, int]  # path, time, size and inode


def file_states(paths: Iterable[Path]) -> list[FileState]:
    """Return the states of the files that exist."""
    found = []
    for path in sorted(paths):
        with suppress(OSError):
            state = path.stat()
            found.append((str(path), state.st_mtime_ns, state.st_size, state.st_ino))
    return found
