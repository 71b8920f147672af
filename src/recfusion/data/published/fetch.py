"""Downloads data sets: resumes interrupted downloads and checks the publisher's checksum."""

import os
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from recfusion.core.errors import InputError
from recfusion.data.catalog import cache_folder, data_set, how_to_get, locate
from recfusion.data.published.archive import md5_of

TIMEOUT_SECONDS = 30.0
PIECE_BYTES = 1 << 18

Progress = Callable[[int, int | None], None]  # bytes so far, total bytes if known


def fetch(name: str, *, on_progress: Progress | None = None) -> Path:
    """Return the local copy of a data set; download it into the cache if there is none.

    An interrupted download leaves a file `.part`, and the next call resumes it.
    """
    entry, present = data_set(name), locate(name)
    if present is not None:
        return present
    if entry.url is None:
        raise InputError(f"The data set '{name}' cannot be fetched: {how_to_get(entry)}")
    target = cache_folder() / entry.archive
    with suppress(OSError):
        target.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise InputError(
            f"Cannot write to the folder '{target.parent}': set RECFUSION_CACHE to one that can be written to."
        )
    part = target.with_name(target.name + ".part")
    if not (part.exists() and md5_of(part) == entry.md5):
        try:
            _download(entry.url, part, on_progress)
        except (OSError, HTTPException) as error:
            code = f"HTTP {error.code} " if isinstance(error, HTTPError) else ""
            reason = getattr(error, "reason", None) or str(error) or type(error).__name__
            raise InputError(
                f"Downloading '{entry.url}' failed ({code}{reason}): try again later to resume, "
                f"or put {entry.archive} into '{target.parent}' by hand."
            ) from None
    if (got := md5_of(part)) != entry.md5:
        part.unlink()  # a wrong file cannot be resumed
        raise InputError(
            f"The checksum of '{entry.url}' is wrong: expected MD5 {entry.md5}, got {got}; the download was removed, "
            f"so try again or put {entry.archive} into '{target.parent}' by hand."
        )
    part.replace(target)
    return target


def _download(address: str, part: Path, on_progress: Progress | None) -> None:
    response, start = _open(address, part.stat().st_size if part.exists() else 0)
    with response, part.open("ab" if start else "wb") as file:
        length = response.headers.get("Content-Length", "")
        total = start + int(length) if length.isdigit() else None
        done = start
        while piece := response.read(PIECE_BYTES):
            file.write(piece)
            done += len(piece)
            if on_progress is not None:
                on_progress(done, total)
    if total is not None and done < total:
        raise ConnectionError(f"the connection ended after {done:,} of {total:,} bytes")


def _open(address: str, start: int) -> tuple[HTTPResponse, int]:
    """Request the bytes from `start` on; return the response and the byte at which it really begins."""
    headers = {"User-Agent": "recfusion", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        response: HTTPResponse = urlopen(Request(address, headers=headers), timeout=TIMEOUT_SECONDS)
    except HTTPError as error:
        error.close()
        if error.code == 416 and start:  # our part is longer than the file, so it is of another file
            return _open(address, 0)
        raise
    if response.status != 206 or response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
        return response, start if response.status == 206 else 0
    response.close()
    if not start:
        raise ConnectionError("the server sent a part of the file instead of all of it")
    return _open(address, 0)
