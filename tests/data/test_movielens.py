"""The MovieLens layouts, read from folders and from zip archives."""

import os
import zipfile
from pathlib import Path

import polars as pl
import pytest

from recfusion.core.errors import InputError
from recfusion.data.catalog import read_named
from recfusion.data.load import load
from recfusion.data.published.movielens import GENRES, read_movielens, read_movielens_users

needs_data = pytest.mark.skipif(not os.environ.get("RECFUSION_DATA"), reason="needs local copies in RECFUSION_DATA")

TYPES = {"user": pl.Int64, "item": pl.Int64, "rating": pl.Float32, "time": pl.Int64}
U_ITEM = "242|Amélie (2001)|01-Jan-2001||http://x|" + "|".join(
    "1" if g in ("Comedy", "Romance") else "0" for g in GENRES
)


def make(tmp_path: Path, kind: str, files: dict[str, bytes]) -> Path:
    """Put the files into a folder or a zip archive."""
    if kind == "zip":
        with zipfile.ZipFile(tmp_path / "set.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(f"set/{name}", content)
        return tmp_path / "set.zip"
    folder = tmp_path / "set [1]*"  # a name that must not be taken for a pattern
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_u_data_is_read_with_titles_and_genres(tmp_path: Path, kind: str) -> None:
    files = {"u.data": b"196\t242\t3\t881250949\n186\t302\t4\t891717742\n", "u.item": f"{U_ITEM}\n\n".encode("latin-1")}
    raw = read_movielens(make(tmp_path, kind, files), "tiny", "u.data")
    assert raw.rows.rows() == [(196, 242, 3.0, 881250949), (186, 302, 4.0, 891717742)]
    assert dict(raw.rows.schema) == TYPES
    assert raw.items is not None
    assert raw.items.rows(named=True) == [{"item": 242, "title": "Amélie (2001)", "genres": "Comedy|Romance"}]
    assert raw.report.rows == 2
    assert raw.report.columns == {"user": "column 1", "item": "column 2", "rating": "column 3", "time": "column 4"}


@pytest.mark.parametrize("kind", ["folder", "zip"])
@pytest.mark.parametrize("encoding", ["latin-1", "utf-8"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_ratings_dat_is_read_in_both_encodings(tmp_path: Path, kind: str, encoding: str, end: str) -> None:
    files = {
        "ratings.dat": f"1::1193::5::978300760{end}2::661::3.5::978302109{end}".encode(),
        "movies.dat": f"661::Léon: The Pro :: Uncut (1994)::Crime|Drama{end}".encode(encoding),
    }
    raw = read_movielens(make(tmp_path, kind, files), "tiny", "ratings.dat")
    assert raw.rows.rows() == [(1, 1193, 5.0, 978300760), (2, 661, 3.5, 978302109)]
    assert dict(raw.rows.schema) == TYPES
    assert raw.items is not None
    assert raw.items.rows() == [(661, "Léon: The Pro :: Uncut (1994)", "Crime|Drama")]


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_ratings_csv_is_read_with_quoted_titles(tmp_path: Path, kind: str) -> None:
    files = {
        "ratings.csv": b"userId,movieId,rating,timestamp\n1,31,2.5,1260759144\n",
        "movies.csv": 'movieId,title,genres\n31,"""Great"" Cats, The (1998)",Musical\n32,Ü,Drama\n'.encode(),
    }
    raw = read_movielens(make(tmp_path, kind, files), "tiny", "ratings.csv")
    assert raw.rows.rows() == [(1, 31, 2.5, 1260759144)]
    assert dict(raw.rows.schema) == TYPES
    assert raw.items is not None
    assert raw.items.rows() == [(31, '"Great" Cats, The (1998)', "Musical"), (32, "Ü", "Drama")]
    assert raw.report.columns == {"user": "userId", "item": "movieId", "rating": "rating", "time": "timestamp"}


@pytest.mark.parametrize("kind", ["folder", "zip"])
@pytest.mark.parametrize(
    "ratings",
    [
        b"",
        b"1,1193,5,978300760\n",  # another separator
        b"1:1:1193:1:5:1:978300760\n",  # single colons
        b"1::2::3::4\n1::2::3\n",  # too few fields, after a good line
        b"1::2::3::4\n1::2::3::4::5\n",  # too many
        b"1::2::3::4\n1:7:2::3::4\n",  # something between
        b"1::2::3::4\n\n1::2::3::4\n",  # an empty line
        b"1::2::3::4\n1::2::x::4\n",  # no number
        b"1::2::3::4\n1::2::nan::4\n",
        b"1::2::3::4\n1::2::3::\xff\xfe\n",
    ],
)
def test_a_malformed_line_of_ratings_is_an_error_and_never_dropped(tmp_path: Path, kind: str, ratings: bytes) -> None:
    source = make(tmp_path, kind, {"ratings.dat": ratings, "movies.dat": b""})
    with pytest.raises(InputError, match=r"Expected lines such as '1::1193::5::978300760' in ratings\.dat") as caught:
        read_movielens(source, "tiny", "ratings.dat")
    assert "\n" not in str(caught.value)


def test_another_header_is_an_error(tmp_path: Path) -> None:
    source = make(tmp_path, "folder", {"ratings.csv": b"user,item,rating,time\n1,2,3,4\n", "movies.csv": b""})
    with pytest.raises(InputError, match="got 'user,item,rating,time'"):
        read_movielens(source, "tiny", "ratings.csv")


@pytest.mark.parametrize(
    ("movies", "expected"),
    [
        (b"", r"the columns movieId, title, genres in movies\.csv .* got ''"),
        (b"id,name\n1,x\n", r"the columns movieId, title, genres in movies\.csv .* got 'id,name'"),
        (
            b"movieId,title,genres\nx,y,z\n",
            r"an item with its title and genres in line 2 of movies\.csv .* got 'x,y,z'",
        ),
    ],
)
def test_a_malformed_movies_csv_is_an_error(tmp_path: Path, movies: bytes, expected: str) -> None:
    ratings = b"userId,movieId,rating,timestamp\n1,2,3,4\n"
    with pytest.raises(InputError, match=f"Expected {expected}"):
        read_movielens(make(tmp_path, "zip", {"ratings.csv": ratings, "movies.csv": movies}), "tiny", "ratings.csv")


@pytest.mark.parametrize("line", ["x|" + U_ITEM, U_ITEM + "|0", U_ITEM[:-1] + "2", "1|Title"])
def test_a_malformed_item_is_named_by_its_line(tmp_path: Path, line: str) -> None:
    source = make(tmp_path, "zip", {"u.data": b"1\t2\t3\t4\n", "u.item": f"{U_ITEM}\n{line}\n".encode()})
    with pytest.raises(InputError, match=r"in line 2 of u\.item"):
        read_movielens(source, "tiny", "u.data")


def test_a_missing_file_of_titles_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Expected a file 'movies\.dat'"):
        read_movielens(make(tmp_path, "zip", {"ratings.dat": b"1::2::3::4\n"}), "tiny", "ratings.dat")


@needs_data
@pytest.mark.parametrize(
    ("name", "rows", "users", "items"), [("ml-1m", 1_000_209, 6_040, 3_706), ("ml-100k", 100_000, 943, 1_682)]
)
def test_the_published_counts_are_met(name: str, rows: int, users: int, items: int) -> None:
    raw = read_named(name)
    assert (raw.rows.height, raw.rows["user"].n_unique(), raw.rows["item"].n_unique()) == (rows, users, items)
    assert raw.items is not None
    assert raw.rows.join(raw.items, on="item", how="anti").is_empty()
    assert raw.report.notes == ()


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_what_is_known_of_users_is_read_by_name(tmp_path: Path, kind: str) -> None:
    for name in ("old", "newer"):
        (tmp_path / name).mkdir()
    old = make(tmp_path / "old", kind, {"u.user": b"1|24|M|technician|85711\n2|53|F|other|94043\n"})
    people = read_movielens_users(old, "u.data")
    assert people is not None
    assert people.rows() == [(1, "M", 24, "technician"), (2, "F", 53, "other")]
    newer = make(tmp_path / "newer", kind, {"users.dat": b"1::F::1::10::48067\n2::M::56::16::70072\n"})
    people = read_movielens_users(newer, "ratings.dat")
    assert people is not None
    assert people.rows() == [(1, "F", 1, "K-12 student"), (2, "M", 56, "self-employed")]
    assert people.columns == ["user", "gender", "age", "occupation"]
    assert read_movielens_users(newer, "u.data") is None
    assert read_movielens_users(newer, "ratings.csv") is None


def test_a_user_with_an_occupation_that_nobody_knows_is_named_by_its_line(tmp_path: Path) -> None:
    source = make(tmp_path, "zip", {"users.dat": b"1::F::1::10::48067\n2::M::56::21::70072\n"})
    with pytest.raises(InputError, match=r"occupation in line 2 of users.dat .*, got '2::M::56::21::7007"):
        read_movielens_users(source, "ratings.dat")


def test_a_set_that_says_nothing_of_its_users_is_refused_in_a_sentence() -> None:
    with pytest.raises(InputError, match=r"'ml-latest-small' publishes no table of users .ml-100k and ml-1m do"):
        load("ml-latest-small", users_file="published")
