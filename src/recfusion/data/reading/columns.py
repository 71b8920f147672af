"""Guesses what the user did not say about a table: separator, header, and the role of each column."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from recfusion.core.errors import InputError
from recfusion.data.published.archive import open_bytes
from recfusion.data.reading.text_lines import LONGEST_LINE, TextLayout, fields_of

SEPARATORS = (",", "\t", ";", "|", "::", " ")
ROLES = ("user", "item", "rating", "time")

# Words in a column's name that show its role, without "id" and punctuation; the clearest first.
_ROLE_WORDS: dict[str, tuple[str, ...]] = {
    "user": (
        *("user", "username", "customer", "client", "member", "visitor", "reviewer", "person", "account", "buyer"),
        *("shopper", "email", "mail", "u"),
    ),
    "item": (
        *("item", "movie", "product", "book", "track", "song", "artist", "asin", "sku", "article", "game", "app"),
        *("stockcode", "anime", "business", "venue", "place", "location", "poi", "recipe", "isbn", "i"),
    ),
    "rating": (
        *("rating", "stars", "star", "score", "overall", "preference", "rate", "r"),
        *("quantity", "qty", "plays", "playcount", "listens"),
    ),
    "time": ("timestamp", "time", "datetime", "date", "unixreviewtime", "ts", "createdat", "t"),
}

_COUNT_WORDS = {
    *("quantity", "qty", "count", "counts", "plays", "playcount", "listens", "views", "weight", "frequency"),
    *("units", "clicks"),
}
_FIRST_LINES = 50  # that are examined
_LONGEST_NAME = 100  # roles of columns with longer names are not guessed


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
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    lines = lines[: _FIRST_LINES if whole else max(1, min(_FIRST_LINES, len(lines) - 1))]  # the last may be cut off
    if separator is None:
        separator = max(SEPARATORS, key=lambda mark: _regularity(_records(lines, mark)))
    separator = separator.replace("\\t", "\t")
    if not separator or any(mark in separator for mark in '"\r\n\0'):
        raise InputError(
            f"Expected a separator such as ; or :: without quotes and line ends, got '{separator}'.", "separator"
        )
    fields, *others = _records(lines, separator)
    if _lists_items([fields, *others]):
        raise InputError(
            f"'{path}' looks like a user and a list of items on each line (such as '{lines[0][1][:40]}'): write one "
            "line per user and item instead, such as 'user,item'."
        )
    header = _is_header(fields, others)
    names = [name if header and name else f"column {place}" for place, name in enumerate(fields, start=1)]
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise InputError(f"The header of '{path}' has the column '{twice[:80]}' twice: rename one of them.")
    return TextLayout(separator, header, tuple(names), lines[0][0] if header else 0)


def guess_columns(
    columns: Sequence[str], asked: dict[str, str | None], *, where: str, by_position: bool
) -> dict[str, str]:
    """Return role -> column: as asked, else by name, else (no header) by position user, item, rating, time."""
    chosen: dict[str, str] = {}
    # A rating or time column named "none" is left out.
    unwanted = [role for role in ("rating", "time") if asked.get(role) == "none" and "none" not in columns]
    asked = {role: name for role, name in asked.items() if role not in unwanted}
    for role, name in asked.items():
        if name is not None:
            if name not in columns:
                raise InputError(
                    f"Expected a column '{name}' (--{role}) in {where}, which has: {list_names(columns)}.", role
                )
            if name in chosen.values():
                raise InputError(f"Expected a separate column for --{role} in {where}, got '{name}' twice.", role)
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


def unused_ratings(columns: Sequence[str], chosen: Mapping[str, str]) -> list[str]:
    """Return the columns without a role that may hold ratings or counts, judged by their names."""
    free = [name for name in columns if name not in chosen.values() and len(name) <= _LONGEST_NAME]
    return [name for name in free if _role_rank(name, "rating") is not None or _COUNT_WORDS & set(words_of(name))][:5]


def names_counts(column: str) -> bool:
    """Return whether a column holds counts (quantities, plays), judged by its name."""
    words = words_of(column) if len(column) <= _LONGEST_NAME else []
    return bool(_COUNT_WORDS & {*words, "".join(words)})


def names_ratings(column: str) -> bool:
    """Return whether a column holds ratings and not counts, judged by its name."""
    return _role_rank(column, "rating") is not None and not names_counts(column)


def _cannot_tell(role: str, columns: Sequence[str], where: str) -> InputError:
    return InputError(
        f"Expected a column for the {role} in {where}, found {len(columns):,} column{'s' * (len(columns) != 1)}: "
        f"{list_names(columns) or 'none'}; name it with --{role} (and the separator with --separator, if columns look "
        "wrong).",
        role,
    )


def list_names(columns: Sequence[str]) -> str:
    """Return the names of columns for a message, shortened."""
    names = ", ".join(name if len(name) <= 60 else f"{name[:60]}..." for name in columns[:20])
    return f"{names} and {len(columns) - 20:,} more" if len(columns) > 20 else names


def _role_rank(name: str, role: str) -> int | None:
    if len(name) > _LONGEST_NAME:
        return None
    words = words_of(name)
    known = _ROLE_WORDS[role]
    joined = "".join(words)
    bare = joined.removesuffix("id") if joined not in known else joined
    if bare in known:
        return known.index(bare)
    hits = [known.index(word) for word in words if word in known and len(word) > 1]
    return len(known) + min(hits) if hits and not {"name", "title"} & set(words) else None


def words_of(name: str) -> list[str]:
    """Return the words of a column's name in lower case: the same for `ProductName`, `product_name`, `Product name`."""
    return [word for word in re.split(r"[^a-z0-9]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower()) if word]


def _is_header(first: list[str], others: list[list[str]]) -> bool:
    """Return whether the first line is a header: it looks unlike the others, or names a role."""
    if any(field[:1].isdigit() or _is_number(field) for field in first):
        return False
    if not others or len(first) < 2:
        return True
    # An id such as user_01 is not a column name, though it contains "user".
    words = [field for field in first if not any(mark.isdigit() for mark in field[:_LONGEST_NAME])]
    named = any(_role_rank(word, role) is not None for word in words for role in ROLES)
    columns = zip(*(fields for fields in others if len(fields) == len(first)), strict=True)
    return named or any(any(values) and all(_is_number(value or "0") for value in values) for values in columns)


def _lists_items(records: list[list[str]]) -> bool:
    """Return whether each line has a different user and any number of items, all of them numbers."""
    counts = Counter(map(len, records))
    return (
        len(counts) > 2
        and counts.most_common(1)[0][1] < len(records) / 2
        and len({fields[0] for fields in records}) == len(records)
        and all(field.isdecimal() for fields in records for field in fields)
    )


def _regularity(records: list[list[str]]) -> tuple[float, int]:
    """Return the score of a separator: the share of lines with as many fields as the first, then that number."""
    counts = [len(fields) for fields in records]
    return (counts.count(counts[0]) / len(counts) if counts[0] > 1 else 0.0, counts[0])


def _records(lines: list[tuple[int, str]], separator: str) -> list[list[str]]:
    return [[field.strip() for field in fields_of(line, separator)] for _, line in lines]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _first_bytes(path: Path, most: int = 1 << 16) -> tuple[bytes, bool]:
    """Return the start of an (unpacked) file, with at least one whole line, and whether it is the whole file."""
    with open_bytes(path) as file:
        start = file.read(most)
        whole = len(start) < most
        if not whole and b"\n" not in start.strip():
            more = file.read(LONGEST_LINE)
            start, whole = start + more, len(more) < LONGEST_LINE
    return start, whole
