"""Opens files of one JSON object per line, after a check of every line."""

import glob
import json
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path

import polars as pl

from recfusion.core.errors import InputError
from recfusion.data.published.archive import open_bytes
from recfusion.data.reading.encodings import find_encoding
from recfusion.data.reading.table import Table
from recfusion.data.reading.text_lines import BOM, line_blocks

MAX_DEPTH, MAX_KEYS = 64, 5_000  # nesting of a JSON line, and distinct keys in a file
_HEAD_BYTES = 1 << 20


def open_json_lines(path: Path, _: str | None, encoding: str | None) -> Table:
    """Open a file of one JSON object per line; gzip is unpacked here, where its size is bounded."""
    with open_bytes(path) as file:
        start, plain = file.read(_HEAD_BYTES), file.seekable()
    encoding = find_encoding(start, path, encoding)
    keys, lines, blank = set[str](), 0, 0
    for block in line_blocks(path, encoding=encoding):
        names, count, empty = _checked_keys(block, path, lines)
        keys, lines, blank = keys | names, lines + count, blank + empty
        if len(keys) > MAX_KEYS:  # the time to find the types grows with their square
            raise InputError(f"Expected the same few names in each object of '{path}', got over {MAX_KEYS:,} of them.")
    if lines == blank:
        raise InputError(f"Expected rows of interactions in '{path}', got an empty file.")
    plain = plain and encoding == "utf-8" and not start.startswith(BOM)
    source = glob.escape(str(path)) if plain else b"".join(line_blocks(path, encoding=encoding))
    frame = pl.scan_ndjson(source, infer_schema_length=None)
    # All rows that polars can number.
    return Table(str(path), frame, frame.collect_schema().names(), blank_lines=blank, cuts=(0, 2**32 - 1))


def _checked_keys(block: bytes, path: Path, above: int) -> tuple[set[str], int, int]:
    """Return the keys of JSON lines, the number of lines and that of empty ones; `above` is the number of lines before.

    Raise if a line has a key twice, or nests so deeply that the parser would crash the process.
    """
    line = pl.col("line")
    lines = pl.read_lines(block.decode("utf-8", errors="replace").encode(), name="line")
    for (text,) in lines.filter(line.str.count_matches(r"[\[{]") > MAX_DEPTH).iter_rows():
        depth = highest = 0
        for mark in re.findall(r"[\[{}\]]", re.sub(r'"(?:[^"\\]|\\.)*"', "", text)):
            depth += 1 if mark in "[{" else -1
            highest = max(highest, depth)
        if highest > MAX_DEPTH:
            raise InputError(f"Expected one plain object per line in '{path}', got one nested over {MAX_DEPTH} times.")
    keys = lines.select(line.str.extract_all(r'"[^"]*"\s*:')).to_series()
    for place in (keys.list.len() != keys.list.n_unique()).arg_true():
        _check_keys_once(lines["line"][place], f"line {above + place + 1:,} of '{path}'")
    blank = int((lines["line"].str.strip_chars() == "").sum())
    return set(keys.explode().unique().drop_nulls()), lines.height, blank


def _check_keys_once(line: str, where: str) -> None:
    """Raise if a JSON object has a key twice, since one of the values would be lost."""

    def check(pairs: list[tuple[str, object]]) -> None:
        twice = next((key for key, count in Counter(key for key, _ in pairs).items() if count > 1), None)
        if twice is not None:
            raise InputError(f"Expected each name once in {where}, got '{twice[:80]}' twice: rename one of them.")

    with suppress(json.JSONDecodeError, RecursionError):  # polars reports what is no JSON
        json.loads(line, object_pairs_hook=check)
