"""Guessing what the user did not say about a table: its separator, whether it has a header, which column is which."""

import gzip
import re
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


def sniff_text(path: Path, separator: str | None) -> TextLayout:
    """Return the layout of a delimited text file from its first lines."""
    lines = _first_lines(path)
    if not lines:
        raise InputError(f"Expected rows of interactions in '{path}', got an empty file.")
    if separator is None:
        separator = max(SEPARATORS, key=lambda mark: _regularity(lines, mark))
    fields = _fields(lines[0], separator)
    header = not any(_is_number(field) for field in fields)
    if len(lines) > 1 and header and len(fields) > 1:
        # Text ids and no header: then the first line looks like the others, and names no role.
        header = any(_role_rank(field, role) is not None for field in fields for role in ROLES) or any(
            _is_number(field) for field in _fields(lines[1], separator)
        )
    names = fields if header else [f"column {place + 1}" for place in range(len(fields))]
    doubled = {name for name in names if names.count(name) > 1}
    if doubled:
        raise InputError(f"The header of '{path}' has the column '{sorted(doubled)[0]}' twice: rename one of them.")
    return TextLayout(separator, header, tuple(names))


def guess_columns(
    columns: Sequence[str], asked: dict[str, str | None], *, where: str, by_position: bool
) -> dict[str, str]:
    """Return role -> column: as asked, else by the names, else (no header) by position user, item, rating, time."""
    chosen: dict[str, str] = {}
    for role, name in asked.items():
        if name is not None:
            if name not in columns:
                raise InputError(f"Expected a column '{name}' (--{role}) in {where}, which has: {', '.join(columns)}.")
            chosen[role] = name
    if by_position and not chosen:
        if len(columns) < 2:
            raise _cannot_tell("user", columns, where)
        return dict(zip(ROLES, columns, strict=False))
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
        f"{', '.join(columns)}; name it with --{role} (and the separator with --separator, if the columns look wrong)."
    )


def _role_rank(name: str, role: str) -> int | None:
    words = [word for word in re.split(r"[^a-z0-9]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower()) if word]
    telling = _TELLING[role]
    joined = "".join(words)
    bare = joined.removesuffix("id") if joined not in telling else joined
    if bare in telling:
        return telling.index(bare)
    hits = [telling.index(word) for word in words if word in telling and len(word) > 1]
    return len(telling) + min(hits) if hits and "name" not in words else None


def _regularity(lines: list[str], separator: str) -> tuple[float, int]:
    """Score a separator: the share of lines with as many fields as the first, then the number of fields."""
    counts = [len(_fields(line, separator)) for line in lines]
    return (sum(count == counts[0] for count in counts) / len(counts) if counts[0] > 1 else 0.0, counts[0])


def _fields(line: str, separator: str) -> list[str]:
    inside_quotes = False
    fields, start = [], 0
    for place, mark in enumerate(line):
        if mark == '"':
            inside_quotes = not inside_quotes
        elif mark == separator and not inside_quotes:
            fields.append(line[start:place])
            start = place + 1
    fields.append(line[start:])
    return [field.strip().strip('"').strip() for field in fields]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _first_lines(path: Path, most: int = 50) -> list[str]:
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            start = file.read(1 << 16)
    except (OSError, EOFError) as error:
        raise InputError(f"Cannot read '{path}': {error}.") from None
    text = bytes(start).decode("utf-8-sig", errors="replace")
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[: most if len(start) < 1 << 16 else max(1, min(most, len(lines) - 1))]
