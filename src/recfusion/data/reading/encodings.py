"""The encoding of a text file: as asked, by its byte order mark, or by its bytes."""

import codecs
import re
from pathlib import Path

from recfusion.core.errors import InputError

_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_WESTERN = "cp1252"  # Latin-1 and more
_LETTERS = rb"[\x8a\x8c\x8e\x9a\x9c\x9e\x9f\xc0-\xff]"
# In Windows-1252, no word has a sign between its letters (besides apostrophes, dashes and dots), or three letters with
# accents in a row; words of other encodings have, such as those of Cyrillic, Polish or DOS texts.
_UNLIKELY = re.compile(
    rb"[A-Za-z](?:[\x80-\x89\x8b\x91\x93-\x95\x98\x99\x9b\xa1-\xac\xae-\xb6\xb8-\xbf]){1,2}[a-z]"
    rb"|[\x81\x8d\x8f\x90\x9d]|" + _LETTERS + rb"{3}"
)
_MOST_UNLIKELY = 0.05  # share of the bytes above 127


def find_encoding(start: bytes, path: Path, asked: str | None = None, *, whole: bool = False) -> str:
    """Return the encoding of a text that begins with these bytes; raise if it cannot be told.

    A byte order mark decides first, then `asked`. Else it is UTF-16 if every other byte is 0, UTF-8 if the bytes are,
    and Windows-1252 if the words look like it.
    """
    if asked is not None:
        _check(asked)
    for mark, name in _MARKS.items():
        if start.startswith(mark):
            return name
    if asked is not None:
        return codecs.lookup(asked).name
    if b"\0" in start[:1000]:
        if wide := _utf_16(start[:1000]):
            return wide
        raise InputError(f"Expected text in '{path}', got binary data: convert it first, or name it by its format.")
    if start.isascii():
        return "utf-8"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start, final=whole)
    except UnicodeDecodeError as error:
        return _western(start, error, path)
    return "utf-8"


def _check(asked: str) -> None:
    """Raise if a name is no encoding of texts."""
    try:
        codecs.getincrementaldecoder(asked)().decode(b"")
        "".encode(asked)
    except (LookupError, ValueError, TypeError):
        names = "utf-8, utf-16, cp1252, latin-1, cp1250 or cp850"
        raise InputError(f"Expected an encoding such as {names}, got '{asked}'.", "encoding") from None


def _utf_16(start: bytes) -> str | None:
    """Return the kind of UTF-16 of which the other bytes are mostly 0; None if it is neither."""
    half = max(len(start) // 2, 1)
    shares = {"utf-16-le": start[1::2].count(0) / half, "utf-16-be": start[::2].count(0) / half}
    name = max(shares, key=lambda name: shares[name])
    return name if shares[name] > 0.6 and sum(shares.values()) - shares[name] < 0.05 else None


def _western(start: bytes, error: UnicodeDecodeError, path: Path) -> str:
    above = len(re.findall(rb"[\x80-\xff]", start))
    valid = len(re.findall(rb"[\xc2-\xf4][\x80-\xbf]+", start))  # as texts in UTF-8 with a few damaged bytes have
    if valid > above / 4:
        return "utf-8"
    if len(_UNLIKELY.findall(start)) > _MOST_UNLIKELY * above:
        line = start.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"Expected text in UTF-8, UTF-16 or Windows-1252 in '{path}', got another encoding (byte "
            f"0x{start[error.start]:02x} in line {line:,}): name it with --encoding, such as cp1250 or cp850.",
            "encoding",
        )
    return _WESTERN
