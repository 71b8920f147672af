"""Reads folders, zip, tar and gzip files without unpacking them to disk, and refuses unsafe ones."""

import gzip
import hashlib
import lzma
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import IO, cast

from recfusion.core.errors import InputError
from recfusion.core.files import check_regular
from recfusion.core.memory import available_bytes, gigabytes

FOLDER_DEPTH = 3  # levels of a folder that are searched
_DAMAGE = (
    *(zipfile.BadZipFile, gzip.BadGzipFile, tarfile.TarError, zlib.error, lzma.LZMAError, struct.error, EOFError),
    *(NotImplementedError, OverflowError, ValueError),
)
BOMB_RATIO, BOMB_BYTES = 200, 1 << 28  # tables compress 3 to 50 times; small files may have any ratio


@dataclass(frozen=True)
class Archive:
    """The files in a folder or zip archive, each named by its path or the last part of it."""

    path: Path

    def names(self) -> list[str]:
        """Return the names of all files, the least nested first; raise for unsafe names."""
        with reading(self.path):
            found = _folder_names(self.path) if self.path.is_dir() else _zip_names(self.path)
        return sorted(found, key=lambda name: (name.count("/"), name))

    def find(self, name: str) -> str:
        """Return the full name of the file `name`; raise if it is missing."""
        for full in self.names():
            if full == name or full.endswith("/" + name):
                return full
        raise changed_copy(f"Expected a file '{name}' in '{self.path}', found none")

    def read(self, name: str) -> bytes:
        """Return the content of one file."""
        full = self.find(name)
        with reading(self.path):
            if self.path.is_dir():
                return (self.path / full).read_bytes()
            with zipfile.ZipFile(self.path) as archive:
                member = archive.getinfo(full)
                if member.flag_bits & 0x1:
                    raise InputError(f"'{full}' in '{self.path}' is encrypted: use an unencrypted copy of the archive.")
                _check_size(member.file_size, member.compress_size, available_bytes(), self.path)
                return archive.read(full)  # never more than the stated size

    def open(self, name: str) -> Path | bytes:
        """Return the path of a file in a folder, or the bytes of one in a zip archive."""
        return self.path / self.find(name) if self.path.is_dir() else self.read(name)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Convert the errors of a damaged or unreadable file into an InputError."""
    try:
        yield
    except InputError:
        raise
    except _DAMAGE as error:
        raise InputError(f"The archive '{path}' is damaged or incomplete ({error}): get a fresh copy.") from None
    except OSError as error:
        raise InputError(f"Cannot read '{path}': {error.strerror or error}.") from None


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """Open a regular file for reading, decompressed if it is gzip; raise if it would decompress to absurdly much."""
    check_regular(path)
    with reading(path), path.open("rb") as file:
        before = os.fstat(file.fileno())
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        yield cast(IO[bytes], _Unpacked(gzip.GzipFile(fileobj=file), path) if packed else file)
        after = os.fstat(file.fileno())
        if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
            raise InputError(f"The file '{path}' changed while it was read: read a copy, or wait for its writer.")


class _Unpacked:
    """A gzip stream that raises if it would fill the memory."""

    def __init__(self, stream: gzip.GzipFile, path: Path) -> None:
        self.stream, self.path, self.done = stream, path, 0
        self.packed, self.room = path.stat().st_size, available_bytes()

    def seekable(self) -> bool:
        return False

    def read(self, size: int) -> bytes:
        piece = self.stream.read(size)
        self.done += len(piece)
        _check_size(self.done, self.packed, self.room, self.path)
        return piece


def _check_size(unpacked: int, packed: int, room: int, path: Path) -> None:
    if unpacked > room or unpacked > max(BOMB_BYTES, BOMB_RATIO * packed):
        raise InputError(
            f"'{path}' unpacks to at least {gigabytes(unpacked)}, more than {BOMB_RATIO} times its size or more than "
            f"the free memory ({gigabytes(room)}): check where it comes from, and unpack it by hand if it is sound."
        )


def changed_copy(what: str) -> InputError:
    """Return the error for a file that differs from the published one."""
    return InputError(f"{what}: use an unchanged copy of the data set.")


def tar_files(stream: IO[bytes], path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield (name, stream) of each file in a tar archive, to be read in turn; raise for links and unsafe names."""
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            _check_name(member.name, path)
            if member.isdir():
                continue
            content = archive.extractfile(member) if member.isreg() else None
            if content is None:
                raise InputError(
                    f"The archive '{path}' holds the link or device '{member.name}': such archives are refused."
                )
            yield member.name, content


def md5_of(path: Path) -> str:
    """Return the MD5 of a file, the checksum that publishers state."""
    check_regular(path)
    with reading(path), path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _folder_names(folder: Path) -> list[str]:
    names = []
    for here, folders, files in os.walk(folder):
        inner = Path(here).relative_to(folder)
        names += [(inner / file).as_posix() for file in files if (Path(here) / file).is_file()]  # no pipes, no devices
        if len(inner.parts) >= FOLDER_DEPTH - 1:
            folders.clear()
    return names


def _zip_names(path: Path) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    for member in members:
        _check_name(member.filename, path)
        if stat.S_ISLNK(member.external_attr >> 16):
            raise InputError(f"The archive '{path}' holds the link '{member.filename}': such archives are refused.")
    return [member.filename for member in members if not member.filename.endswith("/")]


def _check_name(name: str, path: Path) -> None:
    # The Windows rules also cover POSIX names: both slashes, drives and network shares.
    windows = PureWindowsPath(name)
    if not name or windows.anchor or ".." in windows.parts:
        raise InputError(f"The archive '{path}' holds the unsafe name '{name}': such archives are refused.")
