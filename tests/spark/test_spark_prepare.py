"""Preparation on Spark: the same interactions as on one machine, to the last bit, also after an interruption."""

import itertools
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import polars as pl
import pytest

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.data.load import load
from recfusion.data.options import Preparation, Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")


def assert_same(found: Interactions, local: Interactions) -> None:
    """Compare all but the source, which is another file on purpose."""
    assert found.fingerprint == local.fingerprint
    assert found.name == local.name
    for part in ("data", "indices", "indptr"):
        ours, theirs = getattr(found.matrix, part), getattr(local.matrix, part)
        assert ours.dtype == theirs.dtype
        assert (ours == theirs).all()
    assert found.matrix.shape == local.matrix.shape
    assert found.users.equals(local.users, check_dtypes=True)
    assert found.items.equals(local.items, check_dtypes=True)
    assert found.item_table.equals(local.item_table)
    assert found.signals == local.signals
    for signal in ("times", "grades"):
        assert np.array_equal(getattr(found, signal), getattr(local, signal))
    assert (found.preparation, found.steps, found.report) == (local.preparation, local.steps, local.report)


def messy(path: Path, *, separator: str = ",", text_ids: bool = False) -> Path:
    """Write a table with duplicates, blanks, missing and broken cells, and lines too long or empty."""
    rng = np.random.default_rng(3)
    prefix = "é" if text_ids else ""
    lines = [separator.join(("userId", "movieId", "rating", "timestamp"))]
    for row in range(3000):
        user, item = rng.integers(60), int(rng.integers(40))
        rating, time = rng.integers(1, 11) / 2, 1_000_000_000 + int(rng.integers(50)) * 3600
        shown = str(rating).replace(".", ",") if separator == ";" else str(rating)
        lines.append(separator.join((f"{prefix}{user}", f'"{item}"' if row % 7 == 0 else str(item), shown, str(time))))
    lines[50] = separator.join(("7", "", "4", "1000000000"))
    lines[60] = separator.join(("7", "3", "great", "1000000000"))
    lines[70] = separator.join(("7", "3", "4", "1000000000", "more"))
    lines[80] = separator.join((" 7 ", "3", "5", "1900000000"))
    lines[90] = separator.join(("7", "3"))
    lines[100] = ""
    lines[110] = separator.join(('"7', "3", "4", "1000000000"))
    lines[120] = separator.join(('"7\\"', '"3"', "4", "1000000000"))
    path.write_bytes("\n".join(lines).encode() + b"\n\n")
    return path


@pytest.mark.parametrize(
    ("separator", "text_ids", "options"),
    [
        (",", False, {}),
        (";", True, {"k_core": True, "even_items": True, "min_rating": 3.5, "min_users_per_item": 9}),
    ],
)
def test_prepared_text_loads_to_the_very_same_interactions(
    session: "SparkSession",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    separator: str,
    text_ids: bool,
    options: dict[str, object],
) -> None:
    from recfusion.spark.file_parts import open_parts
    from recfusion.spark.prepare import spark_prepare

    file = messy(tmp_path / "shop.csv", separator=separator, text_ids=text_ids)
    titles = tmp_path / "titles.csv"
    titles.write_text("movieId,title\n" + "".join(f"{n},Film {n}\n" for n in range(30)))
    source = Source(data=str(file), items=str(titles))
    preparation = Preparation.model_validate(options)
    monkeypatch.setattr(open_parts, "__defaults__", (20_000,))
    assert spark_prepare(session, source, preparation, tmp_path / "out", parts=2)
    assert [file.name for file in sorted((tmp_path / "out").glob("*.parquet"))] == [
        *("_items.parquet", "part-00000.parquet", "part-00001.parquet")
    ]
    local = load(source, preparation)
    assert local.n_interactions > 100
    assert_same(load(tmp_path / "out"), local)
    assert load(tmp_path / "out").report.unparsable == local.report.unparsable > 0
    assert not spark_prepare(session, source, preparation, tmp_path / "out", parts=2)  # it is there


def test_a_folder_of_parquet_is_one_table(session: "SparkSession", tmp_path: Path) -> None:
    from recfusion.spark.prepare import spark_prepare

    rng = np.random.default_rng(0)
    table = pl.DataFrame(
        {
            "user": rng.integers(0, 50, 1500).astype(np.uint32),
            "item": rng.integers(0, 30, 1500).astype(np.int32),
            "time": pl.Series(rng.integers(0, 10**6, 1500) * 10**6).cast(pl.Datetime("us")),
        }
    )
    table.write_parquet(tmp_path / "whole.parquet")
    (tmp_path / "parts").mkdir()
    for number in range(3):
        table[number::3].write_parquet(tmp_path / "parts" / f"{number}.parquet")
    spark_prepare(session, Source(data=str(tmp_path / "parts")), Preparation(), tmp_path / "out")
    found, local = load(tmp_path / "out"), load(tmp_path / "whole.parquet")
    assert found.fingerprint == local.fingerprint
    assert found.steps == local.steps


def test_a_job_goes_on_after_its_last_finished_stage(
    session: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recfusion.spark import prepare
    from recfusion.spark import task_runner as tasks

    source = Source(data=str(messy(tmp_path / "shop.csv")))

    def broken(*_: object) -> None:
        raise KeyboardInterrupt

    def nothing_to_do(_session: object, _work: object, given: list[object]) -> list[object]:
        assert not given
        return []

    with monkeypatch.context() as patch:
        patch.setattr(prepare, "_filter", broken)
        with pytest.raises(KeyboardInterrupt):
            prepare.spark_prepare(session, source, Preparation(), tmp_path / "out")
    stages = tmp_path / "out" / "_stages"
    assert len(list(stages.glob("distinct/*.arrow"))) == 2
    with monkeypatch.context() as patch:
        patch.setattr(tasks, "run_tasks", nothing_to_do)  # that of files, which are there
        prepare.spark_prepare(session, source, Preparation(), tmp_path / "out")
    assert not stages.exists()
    assert_same(load(tmp_path / "out"), load(source))
    with pytest.raises(InputError, match="another job"):
        prepare.spark_prepare(session, source, Preparation(k_core=True), tmp_path / "out")
    with pytest.raises(InputError, match="was prepared with"):
        load(tmp_path / "out", Preparation(k_core=True))


def test_tables_that_spark_cannot_read_are_refused(session: "SparkSession", tmp_path: Path) -> None:
    from recfusion.spark.prepare import spark_prepare

    file = tmp_path / "quoted.csv"
    file.write_text('user,item,title\n1,2,"two\nlines"\n' + "1,3,x\n" * 30)
    with pytest.raises(InputError, match="line 2 has a double quote that is not closed"):
        spark_prepare(session, Source(data=str(file)), Preparation(), tmp_path / "a")
    file = tmp_path / "bad.csv"
    file.write_text("user,item,rating\n" + "1,2,x\n" * 30)
    with pytest.raises(InputError, match="line 2 has a rating that is not a number: 'x'"):
        spark_prepare(session, Source(data=str(file)), Preparation(), tmp_path / "b")
    with pytest.raises(InputError, match="mount the storage"):
        spark_prepare(session, Source(data="s3://bucket/x.csv"), Preparation(), tmp_path / "c")


def test_a_refused_job_leaves_its_folder_to_the_corrected_one(session: "SparkSession", tmp_path: Path) -> None:
    from recfusion.spark.prepare import spark_prepare

    table, out = tmp_path / "table.csv", tmp_path / "prepared"
    table.write_text("user,item\n" + "".join(f"u{user},i{item}\n" for user in range(6) for item in range(user + 1)))
    source = Source(data=str(table), time="none")
    with pytest.raises(InputError, match="No interactions"):
        spark_prepare(session, source, Preparation(min_items_per_user=50), out)
    with pytest.raises(InputError, match=r"nowhere\.csv"):
        spark_prepare(session, source.model_copy(update={"items": str(tmp_path / "nowhere.csv")}), Preparation(), out)
    assert spark_prepare(session, source, Preparation(min_items_per_user=2, min_users_per_item=2), out)


@pytest.mark.parametrize("seed", range(24))
def test_random_tables_in_random_pieces_and_buckets_are_prepared_as_on_one_machine_also_after_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed (the extra spark)")
    from recfusion.spark import file_parts as pieces
    from recfusion.spark import prepare
    from recfusion.spark import task_runner as tasks

    rng = np.random.default_rng(seed)
    stops = set(rng.integers(0, 30, 3).tolist())  # tasks before which the job is killed
    number = itertools.count()

    def run_here(_session: object, work: Callable[[Any], object], given: Iterable[Any]) -> list[object]:
        done = []
        for task in given:
            if next(number) in stops:
                raise KeyboardInterrupt
            done.append(work(task))
        return done

    size = int(rng.integers(1, 400))
    columns = {"user": rng.integers(-5, 15, size), "item": rng.integers(0, 12, size)}
    if seed % 4:
        name, low = [("", 0), ("rating", 1), ("quantity", -2), ("value", -1)][seed % 4]
        columns[name] = rng.integers(low, 6, size)
    if rng.random() < 0.5:
        columns["time"] = rng.integers(10**9, 10**9 + 30, size)
    table = pl.DataFrame(columns)
    if rng.random() < 0.5:
        table = table.with_columns(pl.format("u{}", "user").alias("user"))
    if rng.random() < 0.3:
        table.write_parquet(file := tmp_path / "table.parquet", row_group_size=50)
    else:
        table.write_csv(file := tmp_path / "table.csv", include_bom=bool(rng.random() < 0.5))
    choices = Preparation(
        min_items_per_user=int(rng.integers(0, 8)),
        min_users_per_item=int(rng.integers(0, 8)),
        k_core=bool(rng.random() < 0.5),
        even_items=bool(rng.random() < 0.5),
    )
    source, session = Source(data=str(file)), cast("SparkSession", None)
    for module in (prepare, tasks):
        monkeypatch.setattr(module, "run_tasks", run_here)
    monkeypatch.setattr(prepare, "count_buckets", lambda *_: int(rng.integers(1, 7)))
    monkeypatch.setattr(pieces.open_parts, "__defaults__", (int(rng.integers(1, 2000)),))
    monkeypatch.setattr("recfusion.data.reading.text_lines.BLOCK_BYTES", int(rng.integers(20, 1000)))
    monkeypatch.setattr("recfusion.data.reading.formats.BATCH_ROWS", 64)
    wrong, local = said(lambda: load(source, choices))
    parts = None if seed % 2 else 2
    for _ in range(3):
        with suppress(KeyboardInterrupt, InputError):
            prepare.spark_prepare(session, source, choices, tmp_path / "out", parts=parts)
    stops.clear()
    assert said(lambda: prepare.spark_prepare(session, source, choices, tmp_path / "out", parts=parts))[0] == wrong
    if local is not None:
        assert_same(load(tmp_path / "out"), local)


def said(call: Callable[[], T]) -> tuple[str, T | None]:
    """Return what is wrong in a call, files by their names, and what comes of it."""
    try:
        return "", call()
    except InputError as error:
        return re.sub(r"'/[^']*/", "'", str(error)), None
