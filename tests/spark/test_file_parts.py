"""A table in pieces and buckets: each row once, all rows of a user together, and nothing read that was read before."""

import gzip
import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from recfusion.core.errors import InputError
from recfusion.data.load import load
from recfusion.data.options import Preparation, Source
from recfusion.data.reading.reader import read_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from recfusion.spark.file_parts import BucketedTable


def shop(path: Path, *, odd: str = "") -> Path:
    """Write 400 rows of 20 users, each of whom comes again every 20 lines; one id may be odd, and two rows are bad."""
    lines = [f"{row % 20},{row % 7},{1 + row % 5},{1_000_000_000 + row}" for row in range(400)]
    lines[150], lines[333] = "1,,3,1000000000", "1,2,x,1000000000"
    lines[399] = f"{odd}19,6,5,1000000399"
    path.write_bytes(b"\xef\xbb\xbfuser,item,rating,time\r\n" + "\r\n".join(lines).encode())
    return path


def read(session: "SparkSession", folder: Path, file: Path, piece_bytes: int, buckets: int = 3) -> "BucketedTable":
    from recfusion.spark.file_parts import open_parts, read_parts

    source = Source(data=str(file))
    return read_parts(session, folder, open_parts(source, piece_bytes), source, buckets)


@pytest.mark.parametrize("odd", ["", "é"])
def test_pieces_of_any_size_give_the_rows_of_the_local_reader_in_their_order(
    session: "SparkSession", tmp_path: Path, odd: str
) -> None:
    file = shop(tmp_path / "shop.csv", odd=odd)
    local = read_table(file, Source(data=str(file)))
    by_user = local.rows.group_by("user", maintain_order=True).agg(pl.all()).sort("user")
    for piece_bytes, pieces in ((10**6, 1), (2000, 4), (700, 11)):
        found = read(session, tmp_path / str(piece_bytes), file, piece_bytes)
        rows = [found.rows(bucket) for bucket in found.buckets]
        assert len(found.files) == pieces
        assert [len(own) for own in rows] == found.sizes.tolist()
        assert pl.concat(rows).group_by("user", maintain_order=True).agg(pl.all()).sort("user").equals(by_user)
        assert sum(own["user"].n_unique() for own in rows) == by_user.height == 20 + bool(odd)
        assert found.report == local.report
        assert found.dtypes["user"] == (pl.String if odd else pl.Int64)
        assert (found.lowest_rating, found.returns, found.future_rows) == (1.0, 0, 0)


def test_a_bucket_is_known_from_the_text_of_an_id_whatever_its_type(session: "SparkSession", tmp_path: Path) -> None:
    table = pl.DataFrame({"user": range(40), "item": [1] * 40})
    table.write_csv(tmp_path / "texts.csv")
    table.write_parquet(tmp_path / "numbers.parquet")
    wanted = [zlib.crc32(str(user).encode()) % 3 for user in range(40)]
    for name in ("texts.csv", "numbers.parquet"):
        found = read(session, tmp_path / f"{name}.stages", tmp_path / name, 1000)
        for bucket in range(3):
            assert found.rows(bucket)["user"].to_list() == [user for user in range(40) if wanted[user] == bucket]


def test_a_piece_that_is_whole_is_kept_and_a_torn_one_is_read_again(session: "SparkSession", tmp_path: Path) -> None:
    file, folder = shop(tmp_path / "shop.csv"), tmp_path / "stages"
    first = read(session, folder, file, 2000)
    kept, torn, gone, other = first.files
    before = {path: path.stat().st_mtime_ns for path in (kept, other)}
    torn.write_bytes(torn.read_bytes()[:500])
    gone.unlink()
    again = read(session, folder, file, 2000, buckets=5)  # as many buckets as there were
    assert {path: path.stat().st_mtime_ns for path in (kept, other)} == before
    assert again.files == first.files
    assert all(again.rows(bucket).equals(first.rows(bucket)) for bucket in range(3))


def test_packed_text_and_a_folder_of_texts_are_prepared_as_one_table(
    session: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recfusion.spark.file_parts import open_parts
    from recfusion.spark.prepare import spark_prepare

    whole = shop(tmp_path / "shop.csv")
    header, *lines = whole.read_bytes().splitlines(keepends=True)
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "a.csv").write_bytes(header + b"".join(lines[:140]))
    (tmp_path / "parts" / "b.csv").write_bytes(header + b"".join(lines[140:]))
    (tmp_path / "shop.csv.gz").write_bytes(gzip.compress(whole.read_bytes()))
    rules = Preparation(min_items_per_user=1, min_users_per_item=1)
    local = load(str(whole), rules)
    monkeypatch.setattr(open_parts, "__defaults__", (999,))  # of what is packed all is one piece
    for name in ("shop.csv.gz", "parts"):
        spark_prepare(session, Source(data=str(tmp_path / name)), rules, tmp_path / f"{name}.out")
        found = load(tmp_path / f"{name}.out")
        assert found.fingerprint == local.fingerprint
        assert found.steps == local.steps
    assert "line 12 has no item in 'b.csv'; 1 row left out, fill in the cell" in found.report.notes
    assert "line 152 has no item; 1 row left out, fill in the cell" in local.report.notes


def test_what_is_wrong_with_a_later_file_is_one_sentence(session: "SparkSession", tmp_path: Path) -> None:
    from recfusion.spark.prepare import spark_prepare

    (tmp_path / "parts").mkdir()
    table = pl.DataFrame({"user": [1, 2], "item": [3, 4]})
    table.write_parquet(tmp_path / "parts" / "a.parquet")
    table.rename({"item": "thing"}).write_parquet(tmp_path / "parts" / "b.parquet")
    with pytest.raises(InputError, match=r"Cannot read '.*b\.parquet' as a table: .*item"):
        spark_prepare(session, Source(data=str(tmp_path / "parts")), Preparation(), tmp_path / "out")
    assert not any((tmp_path / "out").iterdir())


@pytest.mark.skipif(os.name == "nt", reason="ends a process at once")
def test_a_task_that_dies_leaves_what_is_done(session: "SparkSession", tmp_path: Path) -> None:
    from recfusion.core.job_folder import stages_of
    from recfusion.spark.task_runner import run_tasks

    def job() -> None:
        with stages_of(tmp_path, {}) as stages:
            stages.mkdir()
            (stages / "done").touch()
            run_tasks(session, os._exit, [1])

    with pytest.raises(InputError, match=r"A Spark task failed: .*; what is done is kept"):
        job()
    assert [file.name for file in tmp_path.rglob("done")] == ["done"]
