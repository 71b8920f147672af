"""Ids across types: one that is looked up means what the reader of files would make of the same cell."""

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from recfusion.core.errors import InputError
from recfusion.data.interactions import to_columns
from recfusion.data.load import load
from recfusion.data.options import Preparation
from recfusion.data.reading.values import parse_ids

NUMBERS = pl.Series([7, 318, -5, 0])
TEXTS = pl.Series(["7", "318", "lamp", "a b", "318.0", "007"])


@pytest.mark.parametrize(
    ("wanted", "places"),
    [
        ([318, 7, 8], [1, 0, -1]),
        (np.array([318, 7], np.int32), [1, 0]),
        (np.array([318, 7], np.uint64), [1, 0]),
        (pl.Series([0, 7], dtype=pl.UInt8), [3, 0]),
        ([318.0, -5.0, None], [1, 2, -1]),
        (np.array([318.0, 7.0], np.float32), [1, 0]),
        ([318.7, 7.2, float("nan"), float("inf"), 1e300], [-1] * 5),
        (["318", " 318 ", "\t7", "-5", "0"], [1, 1, 0, 2, 3]),
        (["318.0", "7.00", "-5.0"], [1, 0, 2]),
        (["318.5", "007", "+7", "3e2", "-0", "lamp", "", "NaN", "7 318"], [-1] * 9),
        (["99999999999999999999", "9223372036854775807"], [-1, -1]),
        (pl.Series([2**64 - 1, 7], dtype=pl.UInt64), [-1, 0]),
        (pl.Series(["318", "7"], dtype=pl.Categorical), [1, 0]),
        (pl.Series([None, None]), [-1, -1]),
        (pl.Series([], dtype=pl.String), []),
    ],
)
def test_any_form_of_a_whole_number_finds_it(wanted: Any, places: list[int]) -> None:
    assert to_columns(NUMBERS, pl.Series("wanted", wanted)).tolist() == places
    assert to_columns(NUMBERS.cast(pl.Int32), pl.Series("wanted", wanted)).tolist() == places


@pytest.mark.parametrize(
    ("wanted", "places"),
    [
        (["lamp", " lamp ", "a b", "LAMP"], [2, 2, 3, -1]),
        (["318.0", "318", "007", "7"], [4, 1, 5, 0]),
        ([318, 7, 8], [1, 0, -1]),
        ([318.0, 7.0, 7.5], [1, 0, -1]),
        (np.array([318, 7], np.uint64), [1, 0]),
        (pl.Series(["lamp"], dtype=pl.Enum(["lamp"])), [2]),
    ],
)
def test_any_form_of_a_text_finds_it(wanted: Any, places: list[int]) -> None:
    assert to_columns(TEXTS, pl.Series("wanted", wanted)).tolist() == places


def test_dates_are_found_by_their_text() -> None:
    assert to_columns(pl.Series(["2020-01-02"]), pl.Series([dt.date(2020, 1, 2)])).tolist() == [0]


def test_an_id_that_stands_there_as_it_is_needs_no_reading() -> None:
    assert to_columns(pl.Series([" a", "a", "NaN"]), pl.Series([" a", "a ", "NaN"])).tolist() == [0, 1, 2]


@pytest.mark.parametrize("ids", [NUMBERS, TEXTS])
@pytest.mark.parametrize("wanted", [[True, False], [[1], [2]], [{"a": 1}], [b"7"], [dt.time(1)], [dt.timedelta(1)]])
def test_what_can_be_no_id_is_refused(ids: pl.Series, wanted: list[object]) -> None:
    with pytest.raises(InputError, match="Expected ids that are whole numbers or texts, got "):
        to_columns(ids, pl.Series(wanted))


def test_values_of_several_kinds_are_each_read_on_their_own() -> None:
    values = [318, np.int64(7), 318.0, np.float32(7), " 318 ", "318.0", "lamp", None, float("nan"), 7.5]
    assert parse_ids(values, pl.Int64()).to_list() == [318, 7, 318, 7, 318, 318, None, None, None, None]
    assert parse_ids(values, pl.String()).to_list() == [
        "318",
        "7",
        "318",
        "7",
        "318",
        "318.0",
        "lamp",
        None,
        None,
        None,
    ]
    for wrong in (True, np.bool_(False), [1], b"7"):
        with pytest.raises(InputError, match=f"whole numbers or texts, got {type(wrong).__name__}"):
            parse_ids([1, wrong], pl.Int64())


@pytest.mark.parametrize("ids", ["318,7", "318.0,7.0", " 318 ,7"])
def test_an_item_file_may_write_its_numbers_otherwise(tmp_path: Path, ids: str) -> None:
    one, two = ids.split(",")
    (tmp_path / "items.csv").write_text(f"item,title\n{one},Up\n{two},Heat\n", encoding="utf-8")
    loose = Preparation(min_items_per_user=0, min_users_per_item=0)
    data = load(pl.DataFrame({"user": [1, 1], "item": [7, 318]}), loose, items=tmp_path / "items.csv")
    assert data.item_table["title"].to_list() == ["Heat", "Up"]
