"""Readers for published data sets: MovieLens in its three layouts, and the Netflix Prize in its four forms.

A file that is not as its publisher made it is an error that names the line, or says how many lines are wrong.
"""

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, TypeAlias

import numpy as np
import polars as pl

from recfusion.data.archive import Archive, changed_copy, open_bytes, reading, tar_files
from recfusion.data.interactions import RawData, ReadReport
from recfusion.data.lines import LONGEST_LINE

MovieLensLayout = Literal["u.data", "ratings.dat", "ratings.csv"]
Schema: TypeAlias = Mapping[str, type[pl.DataType]]

_GENRES = (
    "unknown|Action|Adventure|Animation|Children's|Comedy|Crime|Documentary|Drama|Fantasy|Film-Noir|Horror|Musical|"
    "Mystery|Romance|Sci-Fi|Thriller|War|Western"
)
GENRES = tuple(_GENRES.split("|"))
_OCCUPATIONS = (  # of ML-1M, whose file has their numbers
    "other|academic/educator|artist|clerical/admin|college/grad student|customer service|doctor/health care|"
    "executive/managerial|farmer|homemaker|K-12 student|lawyer|programmer|retired|sales/marketing|scientist|"
    "self-employed|technician/engineer|tradesman/craftsman|unemployed|writer"
)
OCCUPATIONS = tuple(_OCCUPATIONS.split("|"))
_RATINGS: Schema = {"user": pl.Int64, "item": pl.Int64, "rating": pl.Float32, "time": pl.Int64}
_MOVIES: Schema = {"item": pl.Int64, "title": pl.String, "genres": pl.String}
_PEOPLE: Schema = {"user": pl.Int64, "gender": pl.String, "age": pl.Int64, "occupation": pl.String}

TITLES_BYTES = 1 << 26
BLOCK_BYTES = 64 << 20  # text parsed at a time: large enough for speed, small beside the table that results
_PRIZE_RATINGS: Schema = {"user": pl.Int32, "rating": pl.Float32, "date": pl.Date}
_PRIZE_MOVIES: Schema = {"item": pl.Int32, "title": pl.String, "year": pl.Int32}
# The last part of a file's name.
_MOVIE, _COMBINED, _TAR, _TITLES = (
    re.compile(rf"(^|/){name}$")
    for name in (r"mv_\d+\.txt", r"combined_data_\d+\.txt", r"training_set\.tar", r"movie_titles\.(txt|csv)")
)


@dataclass(frozen=True)
class _Form:
    """How MovieLens's file of ratings is written, and which file has the titles."""

    example: str  # a line, for errors
    titles: str
    parse: Callable[[str], tuple[int, str, str]]  # a line of titles
    separator: str = ","
    columns: tuple[str, ...] = tuple(_RATINGS)  # those whose name begins with '_' must be empty
    header: str = ""
    titles_header: str = ""


def read_movielens(path: Path, name: str, layout: MovieLensLayout) -> RawData:
    """Read the ratings and titles of one layout from a folder or zip archive at `path`."""
    source, form = Archive(path), _FORMS[layout]
    ratings, titles = source.open(layout), source.read(form.titles)
    for file, data, header in ((layout, ratings, form.header), (form.titles, titles, form.titles_header)):
        if header and (first := _first_line(data)) != header:
            raise changed_copy(f"Expected the columns {header.replace(',', ', ')} in {file} of '{path}', got '{first}'")
    schema = {column: _RATINGS.get(column, pl.Int8) for column in form.columns}
    expected = f"lines such as '{form.example}' in {layout} of '{path}'"
    rows = _rating_table(ratings, schema, expected, form.separator, skip_lines=int(bool(form.header)))
    lines = titles[len(form.titles_header) :]
    items = _item_table(lines, _MOVIES, form.parse, "an item with its title and genres", f"{form.titles} of '{path}'")
    names = form.header.split(",") if form.header else [f"column {place}" for place in range(1, 5)]
    return RawData(name, rows, items, ReadReport(rows.height, dict(zip(_RATINGS, names, strict=True))))


def read_people(path: Path, layout: MovieLensLayout) -> pl.DataFrame | None:
    """Read gender, age and occupation of the users of ML-100K and ML-1M; None where a set says nothing of its users."""
    known: dict[MovieLensLayout, tuple[str, Callable[[str], tuple[int, str, int, str]]]] = {
        "u.data": ("u.user", _u_user),
        "ratings.dat": ("users.dat", _users_dat),
    }
    file, parse = known.get(layout, ("", _u_user))
    source = Archive(path)
    if not any(full.rpartition("/")[2] == file for full in source.names()):
        return None
    expected = "a user with gender, age and occupation"
    return _item_table(source.read(file), _PEOPLE, parse, expected, f"{file} of '{path}'")


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
    items = _item_table(titles[-1], _PRIZE_MOVIES, _prize_movie, "'id,year,title'", f"the movie titles in '{path}'")
    return RawData(name, rows, items, ReadReport(rows.height, columns))


def is_netflix_folder(folder: Path) -> bool:
    """Tell whether a folder holds ratings in one of the forms that `read_netflix` knows."""
    return bool(_rating_files(Archive(folder).names()))


def _rating_table(
    data: Path | bytes, schema: Schema, expected: str, separator: str = ",", skip_lines: int = 0
) -> pl.DataFrame:
    """Return the ratings of a text; columns whose name begins with '_' must be empty, and are left out."""
    try:
        rows = pl.read_csv(
            data,
            separator=separator,
            has_header=False,
            skip_lines=skip_lines,
            schema=schema,
            quote_char=None,
            glob=False,
        )
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise changed_copy(f"Expected {expected}, {reason}") from None
    gaps = [name for name in schema if name.startswith("_")]
    wrong = (pl.col(name).is_not_null() if name in gaps else pl.col(name).is_null() for name in schema)
    broken = rows.select((pl.any_horizontal(wrong) | ~pl.col("rating").is_finite()).sum()).item()
    if broken or rows.is_empty():
        what = f"lack a field or have a single '{separator}'" if gaps else "lack a field"
        found = f"{broken:,} of {rows.height:,} lines {what}" if broken else "got nothing"
        raise changed_copy(f"Expected {expected}, {found}")
    return rows.drop(gaps)


def _item_table(
    text: bytes, schema: Schema, parse: Callable[[str], tuple[object, ...]], expected: str, where: str
) -> pl.DataFrame:
    """Return what `parse` makes of each line that is not blank; where it raises a ValueError, the line is named."""
    try:
        lines = text.decode("utf-8").split("\n")
    except UnicodeDecodeError:  # the older sets; splitlines would also split at bytes that stand within titles
        lines = text.decode("latin-1").split("\n")
    table = []
    for number, line in enumerate(lines, start=1):
        try:
            table += [parse(line.rstrip("\r"))] if line.strip() else []
        except (ValueError, csv.Error):
            raise changed_copy(f"Expected {expected} in line {number} of {where}, got '{line[:80]}'") from None
    return pl.DataFrame(table, schema=schema, orient="row")


def _whole_number(text: str, digits: int = 18) -> int:
    """Return the number that a publisher's file has as an id or year; a ValueError where it is none, or too long."""
    if not (text.isascii() and text.isdigit() and len(text) <= digits):
        raise ValueError(text)
    return int(text)


def _first_line(data: Path | bytes) -> str:
    if isinstance(data, Path):
        with reading(data), data.open("rb") as file:
            data = file.readline(80)
    return data[:80].partition(b"\n")[0].rstrip(b"\r").decode("latin-1")


def _u_item(line: str) -> tuple[int, str, str]:
    item, title, _release, _video, _url, *flags = line.split("|")
    if not set(flags) <= {"0", "1"}:
        raise ValueError(line)
    return _whole_number(item), title, "|".join(genre for genre, flag in zip(GENRES, flags, strict=True) if flag == "1")


def _movies_dat(line: str) -> tuple[int, str, str]:
    item, rest = line.split("::", maxsplit=1)
    title, genres = rest.rsplit("::", maxsplit=1)
    return _whole_number(item), title, genres


def _movies_csv(line: str) -> tuple[int, str, str]:
    item, title, genres = next(csv.reader([line], strict=True))
    return _whole_number(item), title, genres


def _u_user(line: str) -> tuple[int, str, int, str]:
    user, age, gender, occupation, _zip = line.split("|")
    return _whole_number(user), gender, _whole_number(age, 3), occupation


def _users_dat(line: str) -> tuple[int, str, int, str]:
    user, gender, age, occupation, _zip = line.split("::")
    place = _whole_number(occupation, 2)
    if place >= len(OCCUPATIONS):
        raise ValueError(line)
    return _whole_number(user), gender, _whole_number(age, 3), OCCUPATIONS[place]


_FORMS: Mapping[MovieLensLayout, _Form] = {
    "u.data": _Form(r"196\t242\t3\t881250949", "u.item", _u_item, "\t"),
    # Split at every single ':' into columns with empty ones between: twice as fast as replacing '::' first.
    "ratings.dat": _Form(
        *("1::1193::5::978300760", "movies.dat", _movies_dat, ":"),
        columns=("user", "_1", "item", "_2", "rating", "_3", "time"),
    ),
    "ratings.csv": _Form(
        *("1,31,2.5,1260759144", "movies.csv", _movies_csv),
        header="userId,movieId,rating,timestamp",
        titles_header="movieId,title,genres",
    ),
}


def _prize_movie(line: str) -> tuple[int, str, int | None]:
    """Return item, title and year of a line 'id,year,title'; titles may hold commas, and a year may be NULL."""
    item, year, title = line.split(",", maxsplit=2)
    return _whole_number(item, 9), title, None if year == "NULL" else _whole_number(year, 9)


def _prize_files(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the files of titles and ratings, also those in a tar archive within the archive or folder."""

    def movies(stream: IO[bytes], tar: Path) -> Iterator[tuple[str, IO[bytes]]]:
        yield from ((name, content) for name, content in tar_files(stream, tar) if _MOVIE.search(name))

    if path.is_file():
        with open_bytes(path) as stream:
            for name, content in tar_files(stream, path):
                if _TAR.search(name):
                    yield from movies(content, path)
                elif _TITLES.search(name) or _MOVIE.search(name):
                    yield name, content
            while stream.read(1 << 20):  # gzip compares its checksum only at the very end
                pass
        return
    names = Archive(path).names()
    for name in [name for name in names if _TITLES.search(name)][:1] + _rating_files(names):
        with (path / name).open("rb") as stream:
            yield from movies(stream, path / name) if _TAR.search(name) else [(name, stream)]


def _rating_files(names: list[str]) -> list[str]:
    """Return the files of ratings in one form only, so that a folder with several does not count ratings twice."""
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
    """Yield the ratings in each block of text, whose only colons are those of the lines 'ITEM:'."""
    item: int | None = None  # of the last such line, which may lie in an earlier block
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
                    item = _whole_number(name, 9)  # nine digits fit in 32 bits
                except ValueError:
                    raise changed_copy(f"Expected {expected}, got '{name}:'") from None
        if bodies:
            rows = _rating_table(b"\n".join(bodies), _PRIZE_RATINGS, expected)
            if rows.height != sum(counts):
                raise changed_copy(f"Expected {expected}, some lines are empty")
            time = pl.col("date").cast(pl.Int32).cast(pl.Int64) * 86_400  # seconds of a day
            repeated = pl.Series("item", np.repeat(np.array(items, dtype=np.int32), counts))
            yield rows.select("user", repeated, "rating", time.alias("time"))
