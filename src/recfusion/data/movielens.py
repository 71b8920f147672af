"""Readers for the layouts of the MovieLens sets: u.data (100K), ratings.dat (1M, 10M) and ratings.csv (20M, 25M)."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from recfusion.core.errors import InputError
from recfusion.data.archive import Archive, reading
from recfusion.data.raw import RawData, ReadReport

GENRES = (
    *(
        "unknown",
        "Action",
        "Adventure",
        "Animation",
        "Children's",
        "Comedy",
        "Crime",
        "Documentary",
        "Drama",
        "Fantasy",
    ),
    *("Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western"),
)
ROLES = ("user", "item", "rating", "time")


@dataclass(frozen=True)
class _Layout:
    """How the file of ratings is written; columns whose name begins with '_' must be empty."""

    file: str
    first_line: str  # an example, for errors
    pattern: str  # what the first line must match
    separator: str
    has_header: bool
    schema: Mapping[str, type[pl.DataType]]


_U_DATA = _Layout(
    file="u.data",
    first_line=r"196\t242\t3\t881250949",
    pattern=r"\d+\t\d+\t[\d.]+\t\d+",
    separator="\t",
    has_header=False,
    schema={"column 1": pl.Int64, "column 2": pl.Int64, "column 3": pl.Float32, "column 4": pl.Int64},
)

# Split at every single ':' into columns with empty ones between: twice as fast as replacing '::' first.
_RATINGS_DAT = _Layout(
    file="ratings.dat",
    first_line="1::1193::5::978300760",
    pattern=r"\d+::\d+::[\d.]+::\d+",
    separator=":",
    has_header=False,
    schema={
        "column 1": pl.Int64,
        "_1": pl.Int8,
        "column 2": pl.Int64,
        "_2": pl.Int8,
        "column 3": pl.Float32,
        "_3": pl.Int8,
        "column 4": pl.Int64,
    },
)

_RATINGS_CSV = _Layout(
    file="ratings.csv",
    first_line="userId,movieId,rating,timestamp",
    pattern=r"userId,movieId,rating,timestamp",
    separator=",",
    has_header=True,
    schema={"userId": pl.Int64, "movieId": pl.Int64, "rating": pl.Float32, "timestamp": pl.Int64},
)


def read_u_data(path: Path, name: str) -> RawData:
    """Read u.data and u.item from a folder or zip archive at `path`."""
    source = Archive(path)
    return _raw(name, _ratings(source, _U_DATA), _items(source, "u.item", _u_item), _U_DATA)


def read_ratings_dat(path: Path, name: str) -> RawData:
    """Read ratings.dat and movies.dat from a folder or zip archive at `path`."""
    source = Archive(path)
    return _raw(name, _ratings(source, _RATINGS_DAT), _items(source, "movies.dat", _movies_dat), _RATINGS_DAT)


def read_ratings_csv(path: Path, name: str) -> RawData:
    """Read ratings.csv and movies.csv from a folder or zip archive at `path`."""
    source = Archive(path)
    return _raw(name, _ratings(source, _RATINGS_CSV), _movies_csv(source), _RATINGS_CSV)


def _raw(name: str, rows: pl.DataFrame, items: pl.DataFrame, layout: _Layout) -> RawData:
    kept = [column for column in layout.schema if not column.startswith("_")]
    return RawData(name, rows, items, ReadReport(rows.height, dict(zip(ROLES, kept, strict=True))))


def _ratings(source: Archive, layout: _Layout) -> pl.DataFrame:
    data = source.open(layout.file)
    first = _first_line(data)
    if not re.fullmatch(layout.pattern, first):
        raise _unexpected(source, layout, f"got '{first[:80]}'")
    try:
        rows = pl.read_csv(
            data,
            separator=layout.separator,
            has_header=layout.has_header,
            schema=layout.schema,
            quote_char=None,
            glob=False,
        )
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _unexpected(source, layout, str(error).partition("\n")[0]) from None
    gaps = [column for column in layout.schema if column.startswith("_")]
    if any(rows[gap].null_count() < rows.height for gap in gaps):
        raise _unexpected(source, layout, "some lines have single colons")
    rows = rows.drop(gaps)
    rows.columns = list(ROLES)
    if any(rows.null_count().row(0)) or not rows["rating"].is_finite().all():
        broken = rows.filter(pl.any_horizontal(pl.all().is_null()) | ~pl.col("rating").is_finite()).height
        raise _unexpected(source, layout, f"{broken:,} of {rows.height:,} lines lack a field")
    return rows


def _first_line(data: Path | bytes) -> str:
    if isinstance(data, Path):
        with reading(data), data.open("rb") as file:
            data = file.readline(200)
    return data[:200].partition(b"\n")[0].rstrip(b"\r").decode("latin-1")


def _unexpected(source: Archive, layout: _Layout, what: str) -> InputError:
    return InputError(
        f"Expected lines such as '{layout.first_line}' in {layout.file} of '{source.path}', {what}: "
        "use an unchanged copy of the data set."
    )


def _items(source: Archive, file: str, parse: Callable[[str], tuple[int, str, str]]) -> pl.DataFrame:
    """Return item, title and genres from a file with one item a line."""
    table = []
    # Not splitlines: in Latin-1 it would also split at bytes that stand within titles.
    for number, line in enumerate(_decode(source.read(file)).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            table.append(parse(line.rstrip("\r")))
        except ValueError:
            raise InputError(
                f"Line {number} of {file} in '{source.path}' is not an item with its title and genres: '{line[:80]}'; "
                "use an unchanged copy of the data set."
            ) from None
    return pl.DataFrame(table, schema={"item": pl.Int64, "title": pl.String, "genres": pl.String}, orient="row")


def _decode(text: bytes) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError:
        return text.decode("latin-1")  # the older sets


def _u_item(line: str) -> tuple[int, str, str]:
    item, title, _release, _video, _url, *flags = line.split("|")
    if not set(flags) <= {"0", "1"}:
        raise ValueError(line)
    return int(item), title, "|".join(genre for genre, flag in zip(GENRES, flags, strict=True) if flag == "1")


def _movies_dat(line: str) -> tuple[int, str, str]:
    item, rest = line.split("::", maxsplit=1)
    title, genres = rest.rsplit("::", maxsplit=1)
    return int(item), title, genres


def _movies_csv(source: Archive) -> pl.DataFrame:
    schema = {"movieId": pl.Int64, "title": pl.String, "genres": pl.String}
    try:
        items = pl.read_csv(source.open("movies.csv"), schema=schema, glob=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(
            f"Expected the columns {', '.join(schema)} in movies.csv of '{source.path}', "
            f"{str(error).partition(chr(10))[0]}: use an unchanged copy of the data set."
        ) from None
    return items.rename({"movieId": "item"})
