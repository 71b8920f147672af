"""The Netflix Prize set in all its forms, and blocks that end anywhere."""

import gzip
import io
import tarfile
from pathlib import Path

import polars as pl
import pytest

from recfusion.core.errors import InputError
from recfusion.data.published.netflix import is_netflix_folder, read_netflix

MOVIES = {
    1: "1:\n1488844,3,2005-09-06\n822109,5,2005-05-13\n",
    2: "2:\n2059652,4,1970-01-02\n",
    30: "30:\n6,1,1999-12-31\n7,2,2000-01-01",  # no newline at the end
}
TITLES = "1,2003,Dinosaur Planet\n2,NULL,Sense, and Sensibilit\xe9\n".encode("latin-1")
ROWS = [
    (1488844, 1, 3.0, 1125964800),
    (822109, 1, 5.0, 1115942400),
    (2059652, 2, 4.0, 86400),
    (6, 30, 1.0, 946598400),
    (7, 30, 2.0, 946684800),
]


def tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def training_tar() -> bytes:
    return tar({f"training_set/mv_{item:07}.txt": text.encode() for item, text in MOVIES.items()})


def make(tmp_path: Path, form: str) -> Path:
    """Write the tiny set in one of its forms."""
    if form.startswith("archive"):
        files = {"download/training_set.tar": training_tar(), "download/movie_titles.txt": TITLES}
        if form == "archive, titles first":
            files = dict(reversed(files.items()))
        (tmp_path / "nf_prize_dataset.tar.gz").write_bytes(
            gzip.compress(tar({**files, "download/probe.txt": b"1:\n2\n"}))
        )
        return tmp_path / "nf_prize_dataset.tar.gz"
    folder = tmp_path / "netflix"
    inner = folder / "download" if form == "inner folder" else folder
    (inner / "training_set").mkdir(parents=True)
    (inner / ("movie_titles.csv" if form == "combined" else "movie_titles.txt")).write_bytes(TITLES)
    if form in ("tar", "tar and folder"):
        (inner / "training_set.tar").write_bytes(training_tar())
    if form in ("folder", "inner folder", "tar and folder"):
        for item, text in MOVIES.items():
            (inner / "training_set" / f"mv_{item:07}.txt").write_text(text)
    if form == "combined":
        (inner / "combined_data_1.txt").write_text(MOVIES[1] + MOVIES[2])
        (inner / "combined_data_2.txt").write_text(MOVIES[30])
    return folder


FORMS = ["archive", "archive, titles first", "folder", "inner folder", "tar", "tar and folder", "combined"]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_rows_and_titles(tmp_path: Path, form: str) -> None:
    path = make(tmp_path, form)
    raw = read_netflix(path, "netflix")
    assert raw.rows.rows() == ROWS
    assert dict(raw.rows.schema) == {"user": pl.Int32, "item": pl.Int32, "rating": pl.Float32, "time": pl.Int64}
    assert raw.items is not None
    assert raw.items.rows(named=True) == [
        {"item": 1, "title": "Dinosaur Planet", "year": 2003},
        {"item": 2, "title": "Sense, and Sensibilité", "year": None},
    ]
    assert raw.report.rows == 5
    assert path.is_file() or is_netflix_folder(path)


@pytest.mark.parametrize("form", ["archive", "combined"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_blocks_may_end_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, newline: str) -> None:
    for item, text in list(MOVIES.items()):
        monkeypatch.setitem(MOVIES, item, text.replace("\n", newline))
    path = make(tmp_path, form)
    for block_bytes in range(1, 120):
        assert read_netflix(path, "netflix", block_bytes=block_bytes).rows.rows() == ROWS, block_bytes


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("6,1,1999-12-31\n", "before any line 'ITEM:'"),
        ("x:\n6,1,1999-12-31\n", "got 'x:'"),
        (":\n6,1,1999-12-31\n", "got ':'"),
        ("99999999999:\n6,1,1999-12-31\n", "got '99999999999:'"),
        ("1:\n6,1,1999-12-31 10:00\n", "got '6,1,1999-12-31 10:'"),
        ("1:\n6,1,1999-13-31\n", "1999-13-31"),
        ("1:\n6,one,1999-12-31\n", "one"),
        ("1:\n6,nan,1999-12-31\n", "lack a field"),
        ("1:\n6,1,1999-12-31\n7,2\n", "lack a field"),
        ("1:\n6,1,1999-12-31\n\n7,2,1999-12-31\n", "lack a field"),
        ("1:\n6,1,1999-12-31,9\n", "Expected lines"),
        ("1:\n6,1,1999-12-31\n7,1,1999-12-31,9\n", ""),
    ],
)
def test_a_malformed_line_is_an_error(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "combined_data_1.txt").write_text(text)
    (tmp_path / "movie_titles.csv").write_bytes(TITLES)
    with pytest.raises(InputError, match="Expected lines 'ITEM:' and 'user,rating,YYYY-MM-DD'") as caught:
        read_netflix(tmp_path, "netflix")
    assert what in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_malformed_title_is_named_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "combined_data_1.txt").write_text(MOVIES[1])
    (tmp_path / "movie_titles.csv").write_text("1,2003,Fine\n2,later,Not fine\n")
    with pytest.raises(InputError, match="line 2 of the movie titles"):
        read_netflix(tmp_path, "netflix")


def test_missing_titles_and_missing_ratings_are_named(tmp_path: Path) -> None:
    (tmp_path / "combined_data_1.txt").write_text(MOVIES[1])
    with pytest.raises(InputError, match=r"Expected movie_titles\.txt"):
        read_netflix(tmp_path, "netflix")
    (tmp_path / "combined_data_1.txt").write_text("")
    (tmp_path / "movie_titles.csv").write_bytes(TITLES)
    with pytest.raises(InputError, match=r"Expected training_set\.tar"):
        read_netflix(tmp_path, "netflix")


@pytest.mark.parametrize("cut", [0.3, 0.8, 0.99])
def test_a_truncated_archive_is_called_damaged(tmp_path: Path, cut: float) -> None:
    path = make(tmp_path, "archive")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * cut)])
    with pytest.raises(InputError, match="damaged or incomplete"):
        read_netflix(path, "netflix")


def test_an_archive_with_a_wrong_checksum_is_called_damaged(tmp_path: Path) -> None:
    path = make(tmp_path, "archive")
    whole = bytearray(path.read_bytes())
    whole[-6] ^= 0xFF
    path.write_bytes(whole)
    with pytest.raises(InputError, match="damaged or incomplete"):
        read_netflix(path, "netflix")


def test_an_unsafe_name_in_the_inner_archive_is_refused(tmp_path: Path) -> None:
    inner = tar({"../mv_0000001.txt": MOVIES[1].encode()})
    path = tmp_path / "nf_prize_dataset.tar.gz"
    path.write_bytes(gzip.compress(tar({"training_set.tar": inner})))
    with pytest.raises(InputError, match="unsafe name"):
        read_netflix(path, "netflix")
