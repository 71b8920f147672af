"""Readers for the three layouts of MovieLens."""

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import polars as pl

from recfusion.data.interactions import RawData, ReadReport
from recfusion.data.published.archive import Archive, changed_copy, reading
from recfusion.data.published.checked_tables import Layout, Schema, has_file, item_table, rating_table, whole_number

MovieLensLayout = Literal["u.data", "ratings.dat", "ratings.csv"]

_GENRES = (
    "unknown|Action|Adventure|Animation|Children's|Comedy|Crime|Documentary|Drama|Fantasy|Film-Noir|Horror|Musical|"
    "Mystery|Romance|Sci-Fi|Thriller|War|Western"
)
_OCCUPATIONS = (  # ML-1M has their numbers
    "other|academic/educator|artist|clerical/admin|college/grad student|customer service|doctor/health care|"
    "executive/managerial|farmer|homemaker|K-12 student|lawyer|programmer|retired|sales/marketing|scientist|"
    "self-employed|technician/engineer|tradesman/craftsman|unemployed|writer"
)
GENRES, OCCUPATIONS = tuple(_GENRES.split("|")), tuple(_OCCUPATIONS.split("|"))
_RATINGS: Schema = {"user": pl.Int64, "item": pl.Int64, "rating": pl.Float32, "time": pl.Int64}
_MOVIES: Schema = {"item": pl.Int64, "title": pl.String, "genres": pl.String}
_USERS: Schema = {"user": pl.Int64, "gender": pl.String, "age": pl.Int64, "occupation": pl.String}


@dataclass(frozen=True)
class _Form:
    """The format of the ratings file of a layout, and the file with the titles."""

    example: str  # a line, for messages
    titles: str
    parse: Callable[[str], tuple[int, str, str]]  # parses a line of titles
    separator: str = ","
    columns: tuple[str, ...] = tuple(_RATINGS)  # names that begin with '_' are empty columns
    header: str = ""
    titles_header: str = ""
    users: str = ""  # the file about users
    parse_user: Callable[[str], tuple[int, str, int, str]] | None = None  # parses a line of it


def movielens(layout: MovieLensLayout) -> Layout:
    """Return the layout with this file of ratings."""
    users = partial(read_movielens_users, layout=layout)
    return Layout(partial(read_movielens, layout=layout), has_file(layout), users)


def read_movielens(path: Path, name: str, layout: MovieLensLayout) -> RawData:
    """Read the ratings and titles of one layout from a folder or zip archive at `path`."""
    source, form = Archive(path), _FORMS[layout]
    ratings, titles = source.open(layout), source.read(form.titles)
    for file, data, header in ((layout, ratings, form.header), (form.titles, titles, form.titles_header)):
        if header and (first := _first_line(data)) != header:
            raise changed_copy(f"Expected the columns {header.replace(',', ', ')} in {file} of '{path}', got '{first}'")
    schema = {column: _RATINGS.get(column, pl.Int8) for column in form.columns}
    expected = f"lines such as '{form.example}' in {layout} of '{path}'"
    rows = rating_table(ratings, schema, expected, form.separator, skip_lines=int(bool(form.header)))
    lines = titles[len(form.titles_header) :]
    items = item_table(lines, _MOVIES, form.parse, "an item with its title and genres", f"{form.titles} of '{path}'")
    names = form.header.split(",") if form.header else [f"column {place}" for place in range(1, 5)]
    return RawData(name, rows, items, ReadReport(rows.height, dict(zip(_RATINGS, names, strict=True))))


def read_movielens_users(path: Path, layout: MovieLensLayout) -> pl.DataFrame | None:
    """Read gender, age and occupation of the users of ML-100K and ML-1M; None if a set has no file of users."""
    source, form = Archive(path), _FORMS[layout]
    if form.parse_user is None or not any(full.rpartition("/")[2] == form.users for full in source.names()):
        return None
    expected = "a user with gender, age and occupation"
    return item_table(source.read(form.users), _USERS, form.parse_user, expected, f"{form.users} of '{path}'")


def _first_line(data: Path | bytes) -> str:
    if isinstance(data, Path):
        with reading(data), data.open("rb") as file:
            data = file.readline(80)
    return data[:80].partition(b"\n")[0].rstrip(b"\r").decode("latin-1")


def _u_item(line: str) -> tuple[int, str, str]:
    item, title, _release, _video, _url, *flags = line.split("|")
    if not set(flags) <= {"0", "1"}:
        raise ValueError(line)
    return whole_number(item), title, "|".join(genre for genre, flag in zip(GENRES, flags, strict=True) if flag == "1")


def _movies_dat(line: str) -> tuple[int, str, str]:
    item, rest = line.split("::", maxsplit=1)
    title, genres = rest.rsplit("::", maxsplit=1)
    return whole_number(item), title, genres


def _movies_csv(line: str) -> tuple[int, str, str]:
    item, title, genres = next(csv.reader([line], strict=True))
    return whole_number(item), title, genres


def _u_user(line: str) -> tuple[int, str, int, str]:
    user, age, gender, occupation, _zip = line.split("|")
    return whole_number(user), gender, whole_number(age, 3), occupation


def _users_dat(line: str) -> tuple[int, str, int, str]:
    user, gender, age, occupation, _zip = line.split("::")
    place = whole_number(occupation, 2)
    if place >= len(OCCUPATIONS):
        raise ValueError(line)
    return whole_number(user), gender, whole_number(age, 3), OCCUPATIONS[place]


_FORMS: Mapping[MovieLensLayout, _Form] = {
    "u.data": _Form(r"196\t242\t3\t881250949", "u.item", _u_item, "\t", users="u.user", parse_user=_u_user),
    # Splitting at each ':' into columns with empty ones between is twice as fast as replacing '::' first.
    "ratings.dat": _Form(
        *("1::1193::5::978300760", "movies.dat", _movies_dat, ":"),
        columns=("user", "_1", "item", "_2", "rating", "_3", "time"),
        users="users.dat",
        parse_user=_users_dat,
    ),
    "ratings.csv": _Form(
        *("1,31,2.5,1260759144", "movies.csv", _movies_csv),
        header="userId,movieId,rating,timestamp",
        titles_header="movieId,title,genres",
    ),
}
