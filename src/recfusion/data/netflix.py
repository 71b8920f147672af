"""Reader for the Netflix Prize set: the prize's own archive, its unpacked folder, or the four combined files."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np
import polars as pl

from recfusion.core.errors import InputError
from recfusion.data.archive import Archive, changed_copy, open_bytes, parse_lines, reading, tar_files, whole_number
from recfusion.data.lines import LONGEST_LINE
from recfusion.data.raw import RawData, ReadReport

TITLES_BYTES = 1 << 26
BLOCK_BYTES = 64 << 20  # text parsed at a time: large enough for speed, small beside the table that results
SECONDS_A_DAY = 86_400

# The last part of a file's name.
_MOVIE, _COMBINED, _TAR, _TITLES = (
    re.compile(rf"(^|/){name}$")
    for name in (r"mv_\d+\.txt", r"combined_data_\d+\.txt", r"training_set\.tar", r"movie_titles\.(txt|csv)")
)


def read_netflix(path: Path, name: str, *, block_bytes: int = BLOCK_BYTES) -> RawData:
    """Read the ratings and titles from `nf_prize_dataset.tar.gz` or a folder at `path`."""
    ratings, titles = _Ratings(path, block_bytes), None
    with reading(path):
        for file_name, stream in _archive_files(path) if path.is_file() else _folder_files(path):
            if _TITLES.search(file_name):
                titles = stream.read(TITLES_BYTES)
                if len(titles) == TITLES_BYTES:
                    raise changed_copy(f"Expected half a megabyte of titles in '{path}', got {TITLES_BYTES:,} bytes")
            else:
                ratings.feed(stream)
    rows = ratings.finish()
    if titles is None or rows.is_empty():
        missing = "movie_titles.txt" if titles is None else "training_set.tar, training_set/ or combined_data_1.txt"
        raise changed_copy(f"Expected {missing} in '{path}', found none")
    columns = {"user": "column 1", "item": "line 'ITEM:'", "rating": "column 2", "time": "column 3"}
    items = parse_lines(titles.decode("latin-1"), _item, "'id,year,title'", f"the movie titles in '{path}'")
    schema = {"item": pl.Int32, "title": pl.String, "year": pl.Int32}
    return RawData(name, rows, pl.DataFrame(items, schema=schema, orient="row"), ReadReport(rows.height, columns))


def is_netflix_folder(folder: Path) -> bool:
    """Tell whether a folder holds ratings in one of the forms that `read_netflix` knows."""
    return bool(_rating_files(Archive(folder).names()))


def _archive_files(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the files of titles and ratings, also those in a tar archive within the archive."""
    with open_bytes(path) as stream:
        for name, content in tar_files(stream, path):
            if _TAR.search(name):
                yield from _movies(content, path)
            elif _TITLES.search(name) or _MOVIE.search(name):
                yield name, content
        while stream.read(1 << 20):  # gzip compares its checksum only at the very end
            pass


def _folder_files(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    names = Archive(path).names()
    titles = [name for name in names if _TITLES.search(name)]
    for name in titles[:1] + _rating_files(names):
        with (path / name).open("rb") as stream:
            if _TAR.search(name):
                yield from _movies(stream, path / name)
            else:
                yield name, stream


def _movies(stream: IO[bytes], path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    yield from ((name, content) for name, content in tar_files(stream, path) if _MOVIE.search(name))


def _rating_files(names: list[str]) -> list[str]:
    """Return the files of ratings in one form only, so that a folder with several does not count ratings twice."""
    forms = ([name for name in names if form.search(name)] for form in (_MOVIE, _TAR, _COMBINED))
    return sorted(next(filter(None, forms), []))


class _Ratings:
    """Gathers text into blocks of whole lines and parses each as soon as it is full."""

    def __init__(self, path: Path, block_bytes: int) -> None:
        self.path = path
        self.block_bytes = block_bytes
        self.pieces: list[bytes] = []
        self.size = 0
        self.item: int | None = None  # the last 'ITEM:' line seen, which may lie in an earlier block
        self.frames: list[pl.DataFrame] = []

    def feed(self, stream: IO[bytes]) -> None:
        """Take all lines of one file."""
        piece = b"\n"
        while more := stream.read(min(self.block_bytes, 1 << 20)):
            piece = more
            self._add(piece)
            if self.size >= self.block_bytes:
                self._parse_whole_lines()
        if not piece.endswith(b"\n"):
            self._add(b"\n")

    def finish(self) -> pl.DataFrame:
        """Return all ratings."""
        self._parse_whole_lines()
        if not self.frames:
            return pl.DataFrame()
        return pl.concat(self.frames)

    def _add(self, piece: bytes) -> None:
        self.pieces.append(piece)
        self.size += len(piece)

    def _parse_whole_lines(self) -> None:
        text = b"".join(self.pieces)
        end = text.rfind(b"\n") + 1
        if not end and len(text) > LONGEST_LINE:
            raise self._unexpected(f"got a line of more than {LONGEST_LINE:,} bytes")
        self.pieces, self.size = [text[end:]], len(text) - end
        if end:
            self.frames.append(self._parse(text[:end]))

    def _parse(self, text: bytes) -> pl.DataFrame:
        """Return the ratings in `text`, whose only colons are those of the lines 'ITEM:'."""
        bodies, items, counts = [], [], []
        *sections, last = text.split(b":")
        parts = [section.rpartition(b"\n") for section in sections]
        for body, header in [*((body, header) for body, _, header in parts), (last, None)]:
            lines = body.strip(b"\r\n")
            if lines:
                if self.item is None:
                    raise self._unexpected(f"got '{_start(lines)}' before any line 'ITEM:'")
                bodies.append(lines)
                items.append(self.item)
                counts.append(lines.count(b"\n") + 1)
            if header is not None:
                self.item = self._item(header)
        rows = self._table(b"\n".join(bodies))
        if rows.height != sum(counts) or any(rows.null_count().row(0)) or not rows["rating"].is_finite().all():
            raise self._unexpected("some lines are empty or lack a field")
        item = pl.Series("item", np.repeat(np.array(items, dtype=np.int32), counts))
        time = pl.col("date").cast(pl.Int32).cast(pl.Int64) * SECONDS_A_DAY
        return rows.select("user", item, "rating", time.alias("time"))

    def _table(self, text: bytes) -> pl.DataFrame:
        schema = {"user": pl.Int32, "rating": pl.Float32, "date": pl.Date}
        try:
            return pl.read_csv(text, has_header=False, schema=schema, quote_char=None)
        except pl.exceptions.PolarsError as error:
            raise self._unexpected(str(error).partition("\n")[0]) from None

    def _item(self, header: bytes) -> int:
        try:
            return whole_number(header.decode("latin-1"), 9)  # nine digits fit in 32 bits
        except ValueError:
            raise self._unexpected(f"got '{_start(header)}:'") from None

    def _unexpected(self, what: str) -> InputError:
        return changed_copy(f"Expected lines 'ITEM:' and 'user,rating,YYYY-MM-DD' in '{self.path}', {what}")


def _start(text: bytes) -> str:
    return text.partition(b"\n")[0][:80].decode("latin-1")


def _item(line: str) -> tuple[int, str, int | None]:
    """Return item, title and year of a line 'id,year,title'; titles may hold commas, and a year may be NULL."""
    item, year, title = line.split(",", maxsplit=2)
    return whole_number(item, 9), title, None if year == "NULL" else whole_number(year, 9)
