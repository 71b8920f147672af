"""Reader for the four published forms of the Netflix Prize."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import numpy as np
import polars as pl

from recfusion.data.interactions import RawData, ReadReport
from recfusion.data.published.archive import Archive, changed_copy, open_bytes, reading, tar_files
from recfusion.data.published.checked_tables import Layout, Schema, item_table, rating_table, whole_number
from recfusion.data.reading.text_lines import LONGEST_LINE

TITLES_BYTES = 1 << 26
BLOCK_BYTES = 64 << 20  # of text per block: large enough for speed, small compared with the table
_PRIZE_RATINGS: Schema = {"user": pl.Int32, "rating": pl.Float32, "date": pl.Date}
_PRIZE_MOVIES: Schema = {"item": pl.Int32, "title": pl.String, "year": pl.Int32}
# The last part of a file's path.
_MOVIE, _COMBINED, _TAR, _TITLES = (
    re.compile(rf"(^|/){name}$")
    for name in (r"mv_\d+\.txt", r"combined_data_\d+\.txt", r"training_set\.tar", r"movie_titles\.(txt|csv)")
)


def read_netflix(path: Path, name: str, *, block_bytes: int = BLOCK_BYTES) -> RawData:
    """Read the ratings and titles from `nf_prize_dataset.tar.gz` or a folder at `path`."""
    titles: list[bytes] = []

    def rating_files() -> Iterator[IO[bytes]]:
        for file_name, stream in _prize_files(path):
            if not _TITLES.search(file_name):
                yield stream
                continue
            titles.append(stream.read(TITLES_BYTES))
            if len(titles[-1]) == TITLES_BYTES:
                raise changed_copy(f"Expected half a megabyte of titles in '{path}', got {TITLES_BYTES:,} bytes")

    expected = f"lines 'ITEM:' and 'user,rating,YYYY-MM-DD' in '{path}'"
    with reading(path):
        blocks = _line_blocks(rating_files(), block_bytes, expected)
        frames = list(_prize_ratings(blocks, expected))
    if not titles or not frames:
        missing = "training_set.tar, training_set/ or combined_data_1.txt" if titles else "movie_titles.txt"
        raise changed_copy(f"Expected {missing} in '{path}', found none")
    rows = pl.concat(frames)
    columns = {"user": "column 1", "item": "line 'ITEM:'", "rating": "column 2", "time": "column 3"}
    items = item_table(titles[-1], _PRIZE_MOVIES, _prize_movie, "'id,year,title'", f"the movie titles in '{path}'")
    return RawData(name, rows, items, ReadReport(rows.height, columns))


def is_netflix_folder(folder: Path) -> bool:
    """Return whether a folder holds ratings in one of the forms that `read_netflix` supports."""
    return bool(_rating_files(Archive(folder).names()))


def _prize_movie(line: str) -> tuple[int, str, int | None]:
    """Return item, title and year of a line 'id,year,title'; titles may hold commas, and a year may be NULL."""
    item, year, title = line.split(",", maxsplit=2)
    return whole_number(item, 9), title, None if year == "NULL" else whole_number(year, 9)


def _prize_files(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the files of titles and ratings, also from a tar archive inside the archive or folder."""

    def movies(stream: IO[bytes], tar: Path) -> Iterator[tuple[str, IO[bytes]]]:
        yield from ((name, content) for name, content in tar_files(stream, tar) if _MOVIE.search(name))

    if path.is_file():
        with open_bytes(path) as stream:
            for name, content in tar_files(stream, path):
                if _TAR.search(name):
                    yield from movies(content, path)
                elif _TITLES.search(name) or _MOVIE.search(name):
                    yield name, content
            while stream.read(1 << 20):  # gzip checks its checksum only at the end
                pass
        return
    names = Archive(path).names()
    for name in [name for name in names if _TITLES.search(name)][:1] + _rating_files(names):
        with (path / name).open("rb") as stream:
            yield from movies(stream, path / name) if _TAR.search(name) else [(name, stream)]


def _rating_files(names: list[str]) -> list[str]:
    """Return the rating files of one form only, so that a folder with several forms does not count ratings twice."""
    forms = ([name for name in names if form.search(name)] for form in (_MOVIE, _TAR, _COMBINED))
    return sorted(next(filter(None, forms), []))


def _line_blocks(streams: Iterable[IO[bytes]], block_bytes: int, expected: str) -> Iterator[bytes]:
    """Yield the text of several files in blocks of whole lines."""
    text = bytearray()
    for stream in streams:
        while piece := stream.read(min(block_bytes, 1 << 20)):
            text += piece
            if len(text) >= block_bytes:
                end = text.rfind(b"\n") + 1
                if not end and len(text) > LONGEST_LINE:
                    raise changed_copy(f"Expected {expected}, got a line of more than {LONGEST_LINE:,} bytes")
                yield bytes(text[:end])
                del text[:end]
        if text and not text.endswith(b"\n"):
            text += b"\n"
    yield bytes(text)


def _prize_ratings(blocks: Iterable[bytes], expected: str) -> Iterator[pl.DataFrame]:
    """Yield the ratings of each block of text; colons occur only in lines 'ITEM:'."""
    item: int | None = None  # of the last such line, possibly in an earlier block
    for text in blocks:
        bodies, items, counts = [], [], []
        *sections, last = text.split(b":")
        headed: list[tuple[bytes, bytes, bytes | None]] = [section.rpartition(b"\n") for section in sections]
        for body, _, header in [*headed, (last, b"", None)]:
            if lines := body.strip(b"\r\n"):
                if item is None:
                    start = lines.partition(b"\n")[0][:80].decode("latin-1")
                    raise changed_copy(f"Expected {expected}, got '{start}' before any line 'ITEM:'")
                bodies.append(lines)
                items.append(item)
                counts.append(lines.count(b"\n") + 1)
            if header is not None:
                name = header[:80].decode("latin-1")
                try:
                    item = whole_number(name, 9)  # nine digits fit in 32 bits
                except ValueError:
                    raise changed_copy(f"Expected {expected}, got '{name}:'") from None
        if bodies:
            rows = rating_table(b"\n".join(bodies), _PRIZE_RATINGS, expected)
            if rows.height != sum(counts):
                raise changed_copy(f"Expected {expected}, some lines are empty")
            time = pl.col("date").cast(pl.Int32).cast(pl.Int64) * 86_400  # seconds of a day
            repeated = pl.Series("item", np.repeat(np.array(items, dtype=np.int32), counts))
            yield rows.select("user", repeated, "rating", time.alias("time"))


NETFLIX = Layout(read_netflix, is_netflix_folder)
