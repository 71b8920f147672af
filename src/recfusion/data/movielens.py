"""The layouts of the MovieLens sets: u.data (100K), ratings.dat (1M, 10M) and ratings.csv (20M, 25M)."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import polars as pl

from recfusion.core.errors import InputError
from recfusion.data.archive import Archive, changed_copy, parse_lines, reading, whole_number
from recfusion.data.lines import EXTRA, TextLayout, split_lines
from recfusion.data.raw import RawData, ReadReport

MovieLensLayout = Literal["u.data", "ratings.dat", "ratings.csv"]

_GENRES = (
    "unknown|Action|Adventure|Animation|Children's|Comedy|Crime|Documentary|Drama|Fantasy|Film-Noir|Horror|Musical|"
    "Mystery|Romance|Sci-Fi|Thriller|War|Western"
)
GENRES = tuple(_GENRES.split("|"))
_HEADER = "userId,movieId,rating,timestamp"
_RATINGS: Mapping[str, type[pl.DataType]] = {"user": pl.Int64, "item": pl.Int64, "rating": pl.Float32, "time": pl.Int64}
_ITEMS = {"item": pl.Int64, "title": pl.String, "genres": pl.String}


@dataclass(frozen=True)
class _Form:
    """How the file of ratings is written, and which file has the titles."""

    first_line: str  # an example, for errors
    pattern: str  # what the first line must match
    titles: str
    parse: Callable[[str], tuple[int, str, str]] | None = None  # a line of titles; None: they are CSV
    header: tuple[str, ...] = ()
    separator: str = ","
    columns: tuple[str, ...] = tuple(_RATINGS)  # those whose name begins with '_' must be empty


def read_movielens(path: Path, name: str, layout: MovieLensLayout) -> RawData:
    """Read the ratings and titles of one layout from a folder or zip archive at `path`."""
    source, form = Archive(path), _FORMS[layout]
    rows = _ratings(source, layout, form)
    items = _movies_csv(source) if form.parse is None else _items(source, form.titles, form.parse)
    names = form.header or [f"column {place}" for place in range(1, 5)]
    return RawData(name, rows, items, ReadReport(rows.height, dict(zip(_RATINGS, names, strict=True))))


def _ratings(source: Archive, file: str, form: _Form) -> pl.DataFrame:
    def unexpected(what: str) -> InputError:
        return changed_copy(f"Expected lines such as '{form.first_line}' in {file} of '{source.path}', {what}")

    data = source.open(file)
    first = _first_line(data)
    if not re.fullmatch(form.pattern, first):
        raise unexpected(f"got '{first[:80]}'")
    try:
        rows = pl.read_csv(
            data,
            separator=form.separator,
            has_header=False,
            skip_lines=int(bool(form.header)),
            schema={column: _RATINGS.get(column, pl.Int8) for column in form.columns},
            quote_char=None,
            glob=False,
        )
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise unexpected(str(error).partition("\n")[0]) from None
    gaps = [column for column in form.columns if column.startswith("_")]
    if any(rows[gap].null_count() < rows.height for gap in gaps):
        raise unexpected("some lines have single colons")
    rows = rows.drop(gaps)
    if any(rows.null_count().row(0)) or not rows["rating"].is_finite().all():
        broken = rows.filter(pl.any_horizontal(pl.all().is_null()) | ~pl.col("rating").is_finite()).height
        raise unexpected(f"{broken:,} of {rows.height:,} lines lack a field")
    return rows


def _first_line(data: Path | bytes) -> str:
    if isinstance(data, Path):
        with reading(data), data.open("rb") as file:
            data = file.readline(200)
    return data[:200].partition(b"\n")[0].rstrip(b"\r").decode("latin-1")


def _items(source: Archive, file: str, parse: Callable[[str], tuple[int, str, str]]) -> pl.DataFrame:
    text = source.read(file)
    try:
        lines = text.decode("utf-8")
    except UnicodeDecodeError:
        lines = text.decode("latin-1")  # the older sets
    table = parse_lines(lines, parse, "an item with its title and genres", f"{file} of '{source.path}'")
    return pl.DataFrame(table, schema=_ITEMS, orient="row")


def _movies_csv(source: Archive) -> pl.DataFrame:
    names = ("movieId", "title", "genres")
    header, _, lines = source.read("movies.csv").partition(b"\n")
    rows = split_lines(lines, TextLayout(",", True, names, 1), names) if lines else pl.DataFrame()
    got = f"'{header[:80].decode('latin-1').strip()}'"
    if header.strip() == ",".join(names).encode() and not rows.is_empty():
        items = rows.select(pl.col("movieId").cast(pl.Int64, strict=False).alias("item"), "title", "genres")
        wrong = (items["item"].is_null() | rows[EXTRA].is_not_null()).arg_true()
        if wrong.is_empty():
            return items
        got = f"something else in line {wrong[0] + 2:,}"
    raise changed_copy(f"Expected the columns {', '.join(names)} in movies.csv of '{source.path}', got {got}")


def _u_item(line: str) -> tuple[int, str, str]:
    item, title, _release, _video, _url, *flags = line.split("|")
    if not set(flags) <= {"0", "1"}:
        raise ValueError(line)
    return whole_number(item), title, "|".join(genre for genre, flag in zip(GENRES, flags, strict=True) if flag == "1")


def _movies_dat(line: str) -> tuple[int, str, str]:
    item, rest = line.split("::", maxsplit=1)
    title, genres = rest.rsplit("::", maxsplit=1)
    return whole_number(item), title, genres


_FORMS: Mapping[MovieLensLayout, _Form] = {
    "u.data": _Form(r"196\t242\t3\t881250949", r"\d+\t\d+\t[\d.]+\t\d+", "u.item", _u_item, separator="\t"),
    # Split at every single ':' into columns with empty ones between: twice as fast as replacing '::' first.
    "ratings.dat": _Form(
        *("1::1193::5::978300760", r"\d+::\d+::[\d.]+::\d+", "movies.dat", _movies_dat),
        separator=":",
        columns=("user", "_1", "item", "_2", "rating", "_3", "time"),
    ),
    "ratings.csv": _Form(_HEADER, _HEADER, "movies.csv", header=tuple(_HEADER.split(","))),
}
