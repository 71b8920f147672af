"""Sizes at the edge: more rows than a matrix has places for, and ids as long as a book."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from conftest import raw
from recfusion.core.errors import InputError
from recfusion.data import rows
from recfusion.data.load import load
from recfusion.data.options import Preparation
from recfusion.data.prepare import prepare
from recfusion.data.reading import formats as tables
from recfusion.data.rows import Rows, check_row_count, drop_duplicates

LOOSE = Preparation(min_items_per_user=0, min_users_per_item=0)


def test_two_billion_rows_are_sent_to_spark() -> None:
    check_row_count(2**31 - 1, "shop.csv")
    with pytest.raises(InputError, match=r"fewer than 2,147,483,648 rows .* in 'shop\.csv'.*spark prepare"):
        check_row_count(2**31, "shop.csv")


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.jsonl"])
def test_every_kind_of_file_is_refused_by_its_rows(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pl.DataFrame({"user": ["a", "b", "c"], "item": [1, 2, 3]})
    writers: dict[str, Callable[[Path], object]] = {
        "t.csv": frame.write_csv,
        "t.parquet": frame.write_parquet,
        "t.jsonl": frame.write_ndjson,
    }
    writer = writers[name]
    writer(tmp_path / name)
    monkeypatch.setattr(rows, "MAX_ROWS", 3)
    with pytest.raises(InputError, match="spark prepare"):
        load(tmp_path / name, LOOSE)
    monkeypatch.setattr(rows, "MAX_ROWS", 4)
    assert load(tmp_path / name, LOOSE).n_interactions == 3


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_an_id_of_a_megabyte_is_an_id_as_any_other(tmp_path: Path, ending: str) -> None:
    long = "x" * 1_000_000
    frame = pl.DataFrame({"user": [long, long + "y", "z"], "item": ["a", long, "a"]})
    path = tmp_path / f"t.{ending}"
    frame.write_csv(path) if ending == "csv" else frame.write_parquet(path)
    data = load(path, LOOSE)
    assert data.users.to_list() == [long, long + "y", "z"]
    assert data.items.to_list() == ["a", long]
    assert data.matrix.toarray().tolist() == [[1, 0], [0, 1], [1, 0]]


@pytest.mark.parametrize("many", [1, 1 << 24])  # by the compiled loop, and by scipy's
def test_rows_are_put_in_order_with_all_that_belongs_to_them(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_MANY_ROWS", many)
    rng = np.random.default_rng(0)
    user, item = (rng.integers(9, size=500).astype(np.int32) for _ in range(2))
    time = np.arange(500)
    found = Rows(user.copy(), item.copy(), None, time.copy(), 9, 9)
    found.order()
    places = np.lexsort((time, item, user))  # rows of one pair keep their order
    assert (found.user == user[places]).all()
    assert (found.item == item[places]).all()
    assert found.time is not None
    assert (found.time == places).all()
    drop_duplicates(found, added=False)
    latest = {(u, i): t for u, i, t in zip(user, item, time, strict=True)}
    assert dict(zip(zip(found.user, found.item, strict=True), found.time, strict=True)) == latest


def test_counts_are_those_of_the_rows_that_are_left() -> None:
    found = Rows(np.array([0, 0, 2], np.int32), np.array([1, 3, 1], np.int32), None, None, 4, 5)
    assert found.per_user.tolist() == [2, 0, 1, 0]
    assert found.per_item.tolist() == [0, 2, 0, 1, 0]
    found.keep_users(found.per_user > 1)
    assert found.item.tolist() == [1, 3]
    assert (found.per_user.tolist(), found.per_item.tolist()) == ([2, 0, 0, 0], [0, 1, 0, 1, 0])
    part = found.subset(found.item == 3)
    assert (part.per_item.tolist(), found.per_item.tolist()) == ([0, 0, 0, 1, 0], [0, 1, 0, 1, 0])
    found.keep_items(found.per_item > 1)
    assert found.user.tolist() == []


def test_counts_of_ordered_rows_add_up_and_leave_the_table_as_it_was() -> None:
    table = raw({"user": [1, 1, 1, 2], "item": [1, 1, 2, 1], "quantity": [2.0, -1.0, 3.0, 4.0]})
    frame = table.rows.rename({"quantity": "rating"}).cast({"rating": pl.Float32})
    from dataclasses import replace

    counted = replace(table, rows=frame, report=replace(table.report, columns={"rating": "quantity"}))
    data = prepare(counted, LOOSE)
    assert data.grades is not None
    assert data.grades.tolist() == [1.0, 3.0, 4.0]
    assert frame["rating"].to_list() == [2.0, -1.0, 3.0, 4.0]


def test_ids_are_the_same_in_32_and_64_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "BATCH_ROWS", 2)  # so that the first batch has small ids and the second has not
    large = [3, 1, 2**40, -(2**40)]
    pl.DataFrame({"user": large, "item": [7, 2**31 - 1, 7, 2**31]}).write_parquet(
        tmp_path / "t.parquet", row_group_size=2
    )
    data = load(tmp_path / "t.parquet", preparation=LOOSE)
    assert data.users.to_list() == sorted(large)
    assert data.items.to_list() == [7, 2**31 - 1, 2**31]
    assert data.matrix.toarray().tolist() == [[0, 0, 1], [0, 1, 0], [1, 0, 0], [1, 0, 0]]
