"""Random changes of bytes, values and documents, for hostile input."""

import copy
from typing import Any

import numpy as np

TOKENS = [
    *b'"~""~\\"~\n~\r\n~\r~\0~\xef\xbb\xbf~\xff~\xe9~,~;~\t~|~::~ ~\x1f~\x1e~-1~1e400~nan~inf~0x1F~null'.split(b"~"),
    *b'[~{~}~]~{"a":~user~item~rating~*~^.*$~2020-01-02~9999999-99-99~\x1f\x8b~x\x9c~PAR1~\xf0\x9f'.split(b"~"),
    *b"\x1b[31m~[/b]~=~..~__class__~true~'~(~)~.".split(b"~"),
    b"9" * 30,
]
WORDS = (
    "",
    " ",
    "nan",
    "-inf",
    "1e999",
    "null",
    "true",
    "0x10",
    "٣",
    "\x1b[31m",
    "[/b]",
    "a\nb",
    "\0",
    "\ud800",
    "../x",
)
NUMBERS = (0, 1, -1, 2, 7, 40, 41, 2**31, 2**63, 2**64, 10**22, 1e308, -1e308, 1e-320, 0.5, float("nan"), float("inf"))


def mutated(rng: np.random.Generator, content: bytes, most: int = 8) -> bytes:
    """Return the content with a few changes: inserted tokens; removed, repeated or overwritten pieces."""
    for _ in range(int(rng.integers(0, most))):
        start, end = sorted(int(place) for place in rng.integers(0, len(content) + 1, 2))
        token = TOKENS[rng.integers(len(TOKENS))]
        change = rng.integers(8)
        if change == 0:
            content = content[:start] + content[min(end, start + 20) :]
        elif change == 1:
            content = content[:end] + content[start:end] + content[end:]
        elif change == 2:
            content = content[:start] + bytes(rng.integers(0, 256, 4, dtype=np.uint8)) + content[start + 4 :]
        elif change == 3 and rng.integers(4) == 0:
            content = content[:end]
        elif change == 4:
            content = content[:start] + token * int(rng.choice([2, 10, 70, 1500])) + content[start:]
        else:
            content = content[:start] + token + content[start:]
    return content


def word(rng: np.random.Generator) -> str:
    """Return an unexpected text."""
    made = int(rng.integers(5))
    if made == 0:
        return str(NUMBERS[rng.integers(len(NUMBERS))])
    if made == 1:
        return "".join(map(chr, rng.integers(1, 0xD7FF, int(rng.integers(1, 30)))))
    if made == 2:
        return TOKENS[rng.integers(len(TOKENS))].decode("latin-1") * int(rng.choice([1, 3, 4000]))
    return WORDS[rng.integers(len(WORDS))]


def value(rng: np.random.Generator, depth: int = 0) -> Any:
    """Return a JSON value of any type, rarely a very deeply nested one."""
    kind = int(rng.integers(9 if depth < 3 else 4))
    if kind < 2:
        return NUMBERS[rng.integers(len(NUMBERS))]
    if kind == 2:
        return word(rng)
    if kind == 3:
        return (None, True, False)[rng.integers(3)]
    if kind == 4:
        return [value(rng, depth + 1) for _ in range(int(rng.integers(4)))]
    if kind == 5:
        return {word(rng): value(rng, depth + 1) for _ in range(int(rng.integers(3)))}
    if kind == 6 and rng.integers(10) == 0:
        nested: Any = 1
        for _ in range(200):
            nested = [nested]
        return nested
    return int(rng.integers(-3, 100))


def changed(rng: np.random.Generator, document: Any, most: int = 3) -> Any:
    """Return a copy of a document with a few entries replaced, removed, added or swapped."""
    document = copy.deepcopy(document)
    for _ in range(int(rng.integers(1, most + 1))):
        parts = [(document, key) for key in _keys(document)]
        seen = 0
        while seen < len(parts) < 400:  # every place in the document, breadth first
            inner = parts[seen][0][parts[seen][1]]
            parts += [(inner, key) for key in _keys(inner)]
            seen += 1
        if not parts:
            return value(rng)
        where, key = parts[rng.integers(len(parts))]
        change = int(rng.integers(8))
        if change == 0:
            del where[key]
        elif change == 1 and isinstance(where, dict):
            where[word(rng)] = value(rng)
        elif change == 2:
            other, place = parts[rng.integers(len(parts))]
            where[key] = copy.deepcopy(other[place]) if place in _keys(other) else None
        elif change == 3 and isinstance(where[key], list):
            where[key] = where[key] * int(rng.choice([0, 2, 50]))
        else:
            where[key] = value(rng)
    return document


def _keys(part: Any) -> list[Any]:
    return list(part) if isinstance(part, dict) else list(range(len(part))) if isinstance(part, list) else []
