"""What no reader should be given: each is one sentence, at once, and never a traceback or a wait without end."""

import gzip
import json
import os
import signal
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from recfusion.core.errors import InputError
from recfusion.core.files import read_json
from recfusion.data.catalog import locate, read_named
from recfusion.data.load import load, load_prepared
from recfusion.data.published import archive
from recfusion.data.published.archive import Archive, md5_of
from recfusion.data.published.movielens import read_movielens
from recfusion.data.published.netflix import read_netflix
from recfusion.data.reading.reader import read_table

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")


@pytest.fixture(autouse=True)
def _never_hang() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet", "a.jsonl"])
def test_a_pipe_is_no_table(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="got a pipe or device"):
        load(pipe(tmp_path / name))


def test_a_pipe_is_no_item_file_no_json_and_no_archive(tmp_path: Path) -> None:
    table, other = tmp_path / "a.csv", pipe(tmp_path / "items.csv")
    table.write_text("user,item\n1,2\n")
    with pytest.raises(InputError, match="got a pipe or device"):
        load(table, items=other)
    for read in (read_json, md5_of):
        with pytest.raises(InputError, match="got a pipe or device"):
            read(other)
    with pytest.raises(InputError, match="got a pipe or device"):
        load("/dev/zero")


def test_a_pipe_in_a_folder_is_not_one_of_its_files(tmp_path: Path) -> None:
    pipe(tmp_path / "u.data")
    pipe(tmp_path / "mv_0000001.txt")
    assert Archive(tmp_path).names() == []
    with pytest.raises(InputError, match=r"Expected a file 'u\.data'"):
        read_movielens(tmp_path, "ml-100k", "u.data")
    with pytest.raises(InputError, match="found none"):
        read_netflix(tmp_path, "netflix")


def test_a_pipe_is_no_part_of_a_prepared_folder(tmp_path: Path) -> None:
    about = {"name": "x", "preparation": {}, "steps": [], "report": {"rows": 0}}
    (tmp_path / "_prepared.json").write_text(json.dumps(about))
    pipe(tmp_path / "part-0.parquet")
    with pytest.raises(InputError, match="got a pipe or device"):
        load_prepared(tmp_path)


@pytest.mark.parametrize("depth", [50, 900, 100_000])
@pytest.mark.parametrize(("opened", "closed"), [("[", "]"), ('{"a":', "}")])
def test_deep_json_is_one_sentence(tmp_path: Path, depth: int, opened: str, closed: str) -> None:
    line = '{"user":1,"item":' + opened * depth + "1" + closed * depth + "}\n"
    (tmp_path / "a.jsonl").write_text(line * 3)
    with pytest.raises(InputError) as error:
        load(tmp_path / "a.jsonl")
    assert len(str(error.value)) < 1000
    (tmp_path / "a.json").write_text(line)
    if depth > 1000:
        with pytest.raises(InputError, match="Expected JSON"):
            read_json(tmp_path / "a.json")


def test_objects_with_names_of_their_own_are_one_sentence(tmp_path: Path) -> None:
    lines = (f'{{"user":{n},"item":1,"name {n}":1}}\n' for n in range(20_000))
    (tmp_path / "a.jsonl").write_text("".join(lines))
    with pytest.raises(InputError, match="over 5,000"):
        load(tmp_path / "a.jsonl")


def test_brackets_in_texts_are_no_nesting(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"user":1,"item":2,"text":"' + "[" * 500 + '\\""}\n')
    assert len(read_table(tmp_path / "a.jsonl").rows) == 1


HUGE = "9" * 25


@pytest.mark.parametrize(
    ("layout", "ratings", "titles", "line"),
    [
        ("ratings.dat", "1::2::5::978300760\n", "movies.dat", f"{HUGE}::Heat::Drama\n"),
        ("u.data", "1\t2\t5\t978300760\n", "u.item", f"{HUGE}|Heat|x||y{'|0' * 19}\n"),
        (
            "ratings.csv",
            "userId,movieId,rating,timestamp\n1,2,5,9\n",
            "movies.csv",
            f"movieId,title,genres\n{HUGE},a,b\n",
        ),
        (
            "ratings.csv",
            "userId,movieId,rating,timestamp\n1,2,5,9\n",
            "movies.csv",
            'movieId,title,genres\n1,"a,b\n2,c,d\n',
        ),
    ],
)
def test_ids_beyond_64_bits_are_named(tmp_path: Path, layout: str, ratings: str, titles: str, line: str) -> None:
    (tmp_path / layout).write_text(ratings)
    (tmp_path / titles).write_text(line)
    with pytest.raises(InputError, match="use an unchanged copy"):
        read_movielens(tmp_path, "x", layout)  # type: ignore[arg-type]


@pytest.mark.parametrize("line", [f"{HUGE},2003,Heat\n", f"1,{HUGE},Heat\n", "1_0,2003,Heat\n"])
def test_titles_of_netflix_beyond_32_bits_are_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "combined_data_1.txt").write_text("1:\n7,5,2005-01-01\n")
    (tmp_path / "movie_titles.csv").write_text(line)
    with pytest.raises(InputError, match="'id,year,title' in line 1"):
        read_netflix(tmp_path, "netflix")


@pytest.mark.xfail(
    sys.version_info >= (3, 14), reason="Path.is_file hides every OSError since Python 3.14", strict=True
)
def test_a_home_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECFUSION_DATA", "x" * 5000)
    with pytest.raises(InputError, match="Cannot read 'xxx"):
        locate("ml-1m")


def test_a_home_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECFUSION_DATA", "~no-such-user-at-all/x")
    with pytest.raises(InputError, match="set RECFUSION_DATA to an absolute path"):
        locate("ml-1m")
    monkeypatch.delenv("RECFUSION_DATA")
    monkeypatch.setenv("RECFUSION_CACHE", "~no-such-user-at-all/x")
    with pytest.raises(InputError, match="set RECFUSION_CACHE to an absolute path"):
        locate("ml-1m")
    assert read_named("ml-latest-small").rows.height == 100_004  # needs no folder


@pytest.mark.parametrize("name", ["x" * 5000, "x" * 5000 + ".csv", "a\0b.csv", "a.csv/b.csv", "\udc80.csv", ""])
def test_paths_that_cannot_be_are_one_sentence(name: str) -> None:
    with pytest.raises(InputError):
        load(name)
    with pytest.raises(InputError):
        read_json(Path(name))


def test_wide_tables_are_guessed_at_once(tmp_path: Path) -> None:
    names = [f"{'long ' * 400}{n}" for n in range(10_000)]
    path = tmp_path / "wide.csv"
    path.write_text(",".join([*names, "user", "item"]) + "\n" + ",".join(["7"] * 10_002) + "\n")
    assert read_table(path).rows.rows() == [(7, 7)]
    path.write_text(",".join(names) + "\n" + ",".join(["7"] * 10_000) + "\n")
    with pytest.raises(InputError, match="and 9,980 more") as error:
        read_table(path)
    assert len(str(error.value)) < 3000


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.jsonl.gz"])
def test_what_unpacks_to_absurdly_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(archive, "BOMB_BYTES", 1 << 18)
    line = b'{"user":1,"item":2}\n' if "json" in name else b"1,2\n"
    (tmp_path / name).write_bytes(gzip.compress(line * 2_000_000))
    with pytest.raises(InputError, match="more than 200 times its size"):
        load(tmp_path / name)


def test_what_unpacks_to_more_than_the_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "available_bytes", lambda: 1000)
    (tmp_path / "a.csv").write_bytes(gzip.compress(b"user,item\n" + b"1,2\n" * 1000))
    with pytest.raises(InputError, match="the free memory"):
        load(tmp_path / "a.csv")
    with zipfile.ZipFile(tmp_path / "ml-100k.zip", "w") as packed:
        packed.writestr("u.data", "1\t2\t3\t4\n" * 1000)
    with pytest.raises(InputError, match="the free memory"):
        read_movielens(tmp_path / "ml-100k.zip", "ml-100k", "u.data")


def test_a_zip_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "BOMB_BYTES", 1 << 18)
    with zipfile.ZipFile(tmp_path / "ml-100k.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("u.data", "1\t2\t3\t4\n" * 1_000_000)
    with pytest.raises(InputError, match="more than 200 times its size"):
        read_movielens(tmp_path / "ml-100k.zip", "ml-100k", "u.data")


def test_more_rows_than_fit_into_memory_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pl.DataFrame({"user": [1] * 1000, "item": [2] * 1000}).write_parquet(tmp_path / "a.parquet")
    monkeypatch.setattr("recfusion.core.memory.available_bytes", lambda: 1000)
    with pytest.raises(InputError, match="Reading the 1,000 rows"):
        load(tmp_path / "a.parquet")
