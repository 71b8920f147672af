"""Files and folders that appear whole under their final name, or not at all."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from recfusion.core.errors import InputError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it into place when the block ends well, remove it otherwise."""
    path = Path(path)
    check_writable_file(path)
    folder = _temporary_folder(path)
    try:
        beside = folder / path.name
        yield beside
        beside.replace(path)
    except Exception as error:
        raise _write_error(path, error) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def replacing_folder(path: Path, marker: str) -> Iterator[Path]:
    """Yield an empty folder that takes the place of `path` when the block ends well.

    An existing folder is replaced only when it is empty or holds a file named `marker`, so that nothing but our own
    earlier work is ever overwritten.
    """
    path = Path(path)
    check_replaceable(path, marker)
    parent = _temporary_folder(path)
    try:
        fresh, old = parent / "new", parent / "old"
        fresh.mkdir()
        yield fresh
        if path.exists():
            path.replace(old)
        fresh.replace(path)
    except Exception as error:
        raise _write_error(path, error) from None
    finally:
        shutil.rmtree(parent, ignore_errors=True)


def check_replaceable(path: Path, marker: str) -> None:
    """Raise unless `path` is free, an empty folder, or a folder that holds a file named `marker`."""
    if path.is_dir():
        if any(path.iterdir()) and not (path / marker).is_file():
            raise InputError(
                f"The folder '{path}' holds other files (no {marker} among them) and is left alone: "
                "name a new folder or an empty one."
            )
    elif path.exists():
        raise InputError(f"Expected a folder to write to, got the file '{path}': name another.")
    check_writable(path)


def check_writable(path: Path) -> None:
    """Raise unless a file or folder can be made at `path`; makes nothing."""
    parent = Path(path).absolute().parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(f"Cannot write to '{path}': '{parent}' is not a folder one may write to; name another place.")


def check_writable_file(path: Path) -> None:
    """Raise unless a file can be written at `path`; makes nothing."""
    if Path(path).is_dir():
        raise InputError(f"Expected a file name to write to, got the folder '{path}': name a file in it.")
    check_writable(path)


def write_json(path: Path, document: object) -> None:
    """Write `document` as indented JSON, atomically."""
    with replacing(path) as beside:
        beside.write_text(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> object:
    """Read a JSON file; a missing or broken one is an error that names it."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"Cannot read '{path}': {error.strerror or error}; make it again.") from None
    except ValueError as error:
        raise InputError(f"Expected JSON in '{path}', got something else ({error}): make it again.") from None


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's bytes; an empty text where there is no file."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_error(path: Path, error: Exception) -> Exception:
    """Return what to raise for an error while `path` was written: one sentence for a full disk and the like."""
    full = "No space left on device"  # other libraries wrap it in error classes of their own
    if full not in str(error) and not (isinstance(error, OSError) and error.strerror):
        return error
    reason = full if full in str(error) else getattr(error, "strerror", None)
    return InputError(f"Cannot write '{path}': {reason}; make room or name another place. What was there is unchanged.")


def _temporary_folder(path: Path) -> Path:
    check_writable(path)
    try:
        path.absolute().parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.absolute().parent))
    except OSError as error:
        raise InputError(f"Cannot write to '{path}': {error.strerror or error}; name another place.") from None
