"""Atomic files and folders: complete under their final name, or not there at all."""

import ctypes
import glob
import hashlib
import json
import os
import re
import shutil
import stat
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from recfusion.core.errors import InputError, WriteError

try:
    import fcntl
except ImportError:  # a system without it
    fcntl = None  # type: ignore[assignment]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it into place if the block succeeds, remove it otherwise."""
    path = Path(path)
    check_writable_file(path)
    with _working_folder(path) as folder:
        beside = folder / path.name
        yield beside
        beside.replace(path)


@contextmanager
def replacing_folder(path: Path, marker: str, kept: str = "") -> Iterator[Path]:
    """Yield an empty folder that replaces `path` if the block succeeds.

    An existing folder is replaced only if it is empty or holds a file named `marker`, so only our own earlier output is
    ever overwritten. The current working folder is not renamed: its files are replaced one by one, the marker last.
    With `kept`, the replaced folder is kept beside it under that name; both renames happen, or neither does.
    """
    path = Path(path).absolute()
    check_replaceable(path, marker)
    if kept:
        check_replaceable(path.with_name(kept), marker)
    with _working_folder(path) as folder:
        fresh = folder / _NEW
        fresh.mkdir()
        yield fresh
        if _is_here(path):
            for file in sorted(fresh.iterdir(), key=lambda file: file.name == marker):
                file.replace(path / file.name)
        elif not path.exists():
            fresh.replace(path)
        else:
            if kept and (path / marker).is_file():
                (folder / _KEPT_DRAFT).write_text(f"{fresh.stat().st_ino} {kept}", encoding="utf-8")
                (folder / _KEPT_DRAFT).replace(folder / _KEPT)  # atomic
                if path.with_name(kept).exists():
                    path.with_name(kept).replace(folder / _OLDER)
            if not _exchanged(fresh, path):
                path.replace(folder / _OLD)  # if we are killed here, the next run restores it
                fresh.replace(path)
            with suppress(OSError):
                _restore(folder, path)


def check_replaceable(path: Path, marker: str) -> None:
    """Raise unless `path` is unused, an empty folder, or a folder that holds a file named `marker`."""
    if path.is_dir():
        if any(path.iterdir()) and (_is_here(path) or not (path / marker).is_file()):
            why = "it is the current folder" if _is_here(path) else f"no {marker} among them"
            raise InputError(
                f"The folder '{path}' holds other files ({why}) and is not replaced: name a new folder or an empty one."
            )
    elif path.exists():
        raise InputError(f"Expected a folder to write to, got the file '{path}': name another.")
    check_writable(path)


def check_writable(path: Path) -> None:
    """Raise unless a file or folder can be created at `path`; also removes what killed runs left beside it."""
    parent = Path(path).absolute().parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise WriteError(f"Cannot write to '{path}': '{parent}' is not a writable folder; name another place.")
    if fcntl is None:
        return  # we cannot know whether those runs are still active
    with suppress(OSError):
        for left in Path(path).absolute().parent.glob(f"{glob.escape(_prefix(path))}*"):
            with suppress(OSError), (left / _LOCK).open("wb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(left, path)


def check_writable_file(path: Path) -> None:
    """Raise unless a file can be written at `path`; creates nothing."""
    if Path(path).is_dir():
        raise InputError(f"Expected a file name to write to, got the folder '{path}': name a file in it.")
    if Path(path).exists() and not Path(path).is_file():
        raise InputError(f"Expected a file name to write to, got the pipe or device '{path}': name another.")
    check_writable(path)


def write_json(path: Path, document: object) -> None:
    """Write `document` as indented JSON, atomically."""
    with replacing(path) as beside:
        beside.write_text(json_text(document), encoding="utf-8")


def json_text(document: object) -> str:
    """Return `document` as indented JSON."""
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def check_regular(path: Path) -> None:
    """Raise unless `path` is a regular file: reading from a pipe or a device may never end."""
    try:
        mode = Path(path).stat().st_mode
        found = "" if stat.S_ISREG(mode) else "a folder" if stat.S_ISDIR(mode) else "a pipe or device"
    except (FileNotFoundError, NotADirectoryError):
        found = "nothing"
    except (OSError, ValueError) as error:
        found = getattr(error, "strerror", None) or str(error)
    if found:
        raise InputError(f"Expected a file at '{path}', got {found}: check the path.")


def read_json(path: Path) -> object:
    """Return the content of a JSON file; raise if it is missing or broken."""
    return _parsed(path, "JSON", _finite_json)


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file; raise if it is missing or broken."""
    return dict(_parsed(path, "TOML", tomllib.loads))


def _finite_json(text: str) -> object:
    """Return the document of a JSON text; NaN and Infinity are not JSON."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not a number")

    return json.loads(text, parse_constant=refuse)


def _parsed(path: Path, kind: str, parse: Callable[[str], Any]) -> Any:
    check_regular(path)
    try:
        return parse(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"Cannot read '{path}': {error.strerror or error}; check the path.") from None
    except (ValueError, RecursionError) as error:  # also text that is not UTF-8
        raise InputError(f"Expected {kind} in '{path}', got something else ({error}): correct or replace it.") from None


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, or an empty string if there is none."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_NEW, _OLD, _OLDER = "new", "old", "older"
_KEPT = "kept"  # a file with the inode of the new folder, and the name under which the old one is kept
_KEPT_DRAFT = "saying"  # the same file while it is written
_LOCK = "lock"
_WRAPPED = re.compile(r"([^:]+) \(os error \d+\)")  # a system error inside an exception of another library


@contextmanager
def _working_folder(path: Path) -> Iterator[Path]:
    """Yield a hidden folder beside `path` for unfinished files; disk errors in the block become a WriteError."""
    parent = path.absolute().parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=_prefix(path), dir=parent))
        try:
            lock = (folder / _LOCK).open("wb")
        except OSError:
            _remove(folder, path)
            raise
    except OSError as error:
        raise WriteError(f"Cannot write to '{path}': {error.strerror or error}; name another place.") from None
    try:
        lock_file(lock.fileno())  # held while this process lives
        yield folder
    except InputError:
        raise
    except Exception as error:
        wrapped = _WRAPPED.search(str(error))
        reason = wrapped[1].strip() if wrapped else getattr(error, "strerror", None)
        if not reason:
            raise
        raise WriteError(
            f"Cannot write '{path}': {reason}; make room or name another place. The old content is unchanged."
        ) from None
    finally:
        _remove(folder, path)
        lock.close()


def _prefix(path: Path) -> str:
    return f".{Path(path).absolute().name}.tmp-"


def _remove(folder: Path, path: Path) -> None:
    """Restore what was moved into a hidden folder, then remove the folder if the system allows it."""
    with suppress(OSError):
        _restore(folder, path)
        shutil.rmtree(folder, ignore_errors=True)


def _restore(folder: Path, path: Path) -> None:
    """Rename what was moved into a hidden folder to its old name, or to the name under which it is kept."""
    if (folder / _OLD).is_dir() and not path.exists():
        (folder / _OLD).replace(path)
    if not (folder / _KEPT).is_file():
        return
    made, _, name = (folder / _KEPT).read_text(encoding="utf-8").partition(" ")
    if not path.with_name(name).exists():
        replaced = folder / (_OLD if (folder / _OLD).is_dir() else _NEW)
        if replaced.is_dir() and str(replaced.stat().st_ino) != made:
            replaced.replace(path.with_name(name))
        elif (folder / _OLDER).is_dir():
            (folder / _OLDER).replace(path.with_name(name))
    (folder / _KEPT).unlink()  # the rest may be removed, also by a later run


def lock_file(descriptor: int, *, shared: bool = False) -> None:
    """Wait for an exclusive or shared lock on an open file; closing the file releases it.

    There is no lock on Windows, where locks would block all readers: two commands must not write to one file there.
    """
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)


def _is_here(path: Path) -> bool:
    return path.is_dir() and path.samefile(Path.cwd())


def _exchanged(one: Path, other: Path) -> bool:
    """Exchange two folders atomically; return False if the system cannot."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return rename is not None and rename(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0
