"""Guessing what the user did not say about a table: its separator, whether it has a header, which column is which."""

import csv
import gzip
import io
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from recfusion.core.errors import InputError

SEPARATORS = (",", "\t", ";", "|", " ")
ROLES = ("user", "item", "rating", "time")

# The part of a column's name that gives its role away, once "id", "no" and punctuation are gone; most telling first.
_TELLING: dict[str, tuple[str, ...]] = {
    "user": ("user", "username", "customer", "client", "member", "visitor", "reviewer", "person", "account", "u"),
    "item": (
        *("item", "movie", "product", "book", "track", "song", "artist", "asin", "sku", "article", "game", "app"),
        *("anime", "business", "venue", "place", "location", "poi", "recipe", "isbn", "i"),
    ),
    "rating": ("rating", "stars", "star", "score", "overall", "preference", "rate", "r"),
    "time": ("timestamp", "time", "datetime", "date", "unixreviewtime", "ts", "createdat", "t"),
}


@dataclass(frozen=True)
class TextLayout:
    """How a delimited text file is laid out."""

    separator: str
    header: bool
    columns: tuple[str, ...]
    skip_lines: int  # up to the end of the header


def sniff_text(path: Path, separator: str | None) -> TextLayout:
    """Return the layout of a delimited text file from its first lines."""
    start, whole = _first_bytes(path)
    text = start.decode("utf-8-sig", errors="replace")
    if not text.strip():
        raise InputError(f"Expected rows of interactions in '{path}', got an empty file.")
    if "\0" in text:
        raise InputError(f"Expected text in UTF-8 in '{path}', got binary data or another encoding: convert it first.")
    if "\r" in text and "\n" not in text:
        raise InputError(f"Expected lines that end in a line feed in '{path}', got carriage returns: convert it first.")
    text = text.replace("\r\n", "\n").replace("\r", " ")
    if separator is None:
        separator = max(SEPARATORS, key=lambda mark: _regularity(_records(text, mark, whole)))
    else:
        separator = _checked_separator(separator)
    records = _records(text, separator, whole)
    (last_line, fields), others = records[0], [fields for _, fields in records[1:]]
    header = _is_header(fields, others)
    names = [name if header and name else f"column {place}" for place, name in enumerate(fields, start=1)]
    doubled = sorted(name for name in set(names) if names.count(name) > 1)
    if doubled:
        raise InputError(f"The header of '{path}' has the column '{doubled[0]}' twice: rename one of them.")
    return TextLayout(separator, header, tuple(names), last_line if header else 0)


def guess_columns(
    columns: Sequence[str], asked: dict[str, str | None], *, where: str, by_position: bool
) -> dict[str, str]:
    """Return role -> column: as asked, else by the names, else (no header) by position user, item, rating, time.

    A rating or time asked for as "none" is left out.
    """
    chosen: dict[str, str] = {}
    unwanted = [role for role in ("rating", "time") if asked.get(role) == "none" and "none" not in columns]
    asked = {role: name for role, name in asked.items() if role not in unwanted}
    for role, name in asked.items():
        if name is not None:
            if name not in columns:
                raise InputError(f"Expected a column '{name}' (--{role}) in {where}, which has: {', '.join(columns)}.")
            if name in chosen.values():
                raise InputError(f"Expected a column of its own for --{role} in {where}, got '{name}' twice.")
            chosen[role] = name
    if by_position and not chosen:
        if len(columns) < 2:
            raise _cannot_tell("user", columns, where)
        return {role: name for role, name in zip(ROLES, columns, strict=False) if role in asked}
    for role in asked:
        if role not in chosen:
            free = [name for name in columns if name not in chosen.values()]
            ranked = sorted((rank, name) for name in free if (rank := _role_rank(name, role)) is not None)
            if ranked:
                chosen[role] = ranked[0][1]
    for role in ("user", "item"):
        if role in asked and role not in chosen:
            raise _cannot_tell(role, columns, where)
    return chosen


def _cannot_tell(role: str, columns: Sequence[str], where: str) -> InputError:
    return InputError(
        f"Expected a column for the {role} in {where}, found {len(columns)} column{'s' * (len(columns) != 1)}: "
        f"{', '.join(columns) or 'none'}; name it with --{role} (and the separator with --separator, if columns look "
        "wrong)."
    )


def _role_rank(name: str, role: str) -> int | None:
    words = [word for word in re.split(r"[^a-z0-9]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower()) if word]
    telling = _TELLING[role]
    joined = "".join(words)
    bare = joined.removesuffix("id") if joined not in telling else joined
    if bare in telling:
        return telling.index(bare)
    hits = [telling.index(word) for word in words if word in telling and len(word) > 1]
    return len(telling) + min(hits) if hits and not {"name", "title"} & set(words) else None


def _is_header(first: list[str], others: list[list[str]]) -> bool:
    """Say whether the first line names columns: it looks unlike the others, or names a role."""
    if any(field[:1].isdigit() or _is_number(field) for field in first):
        return False
    if not others or len(first) < 2:
        return True
    # An id such as user_01 is no name of a column, though "user" is in it.
    words = [field for field in first if not any(mark.isdigit() for mark in field)]
    named = any(_role_rank(word, role) is not None for word in words for role in ROLES)
    columns = zip(*(fields for fields in others if len(fields) == len(first)), strict=True)
    return named or any(any(values) and all(_is_number(value or "0") for value in values) for values in columns)


def _regularity(records: list[tuple[int, list[str]]]) -> tuple[float, int]:
    """Score a separator: the share of lines with as many fields as the first, then the number of fields."""
    counts = [len(fields) for _, fields in records]
    return (counts.count(counts[0]) / len(counts) if counts[0] > 1 else 0.0, counts[0])


def _records(text: str, separator: str, whole: bool, most: int = 50) -> list[tuple[int, list[str]]]:
    """Return the first records that are not blank, each with the number of its last line."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    read = [(reader.line_num, [field.strip() for field in fields]) for fields in reader]
    records = [(line, fields) for line, fields in read if any(fields)]
    return records[: most if whole else max(1, min(most, len(records) - 1))]


def _checked_separator(separator: str) -> str:
    separator = "\t" if separator == "\\t" else separator
    if len(separator.encode()) != 1 or separator in '"\r\n':
        raise InputError(
            f"Expected one character such as ; or | as the separator, got '{separator}': convert the file."
        )
    return separator


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _first_bytes(path: Path, most: int = 1 << 16) -> tuple[bytes, bool]:
    """Return the start of a file, unpacked where it is gzip, and whether that is all of it."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            start = gzip.GzipFile(fileobj=file).read(most) if packed else file.read(most)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"Cannot read '{path}': {error}.") from None
    return start, len(start) < most
