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
from recfusion.data.options import Preparation, Source
from recfusion.data.reading.ids import id_text, parse_ids, parse_texts
from recfusion.data.reading.reader import read_table

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
        "318",
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


FORMS = [
    "318",
    "318.0",
    " 318 ",
    "318.00",
    "-5.0",
    "0.0",
    "007",
    "007.0",
    "318.7",
    "1e5",
    "a b",
    " a ",
    "12.0.0",
    "",
    "+7",
]
FORMS += [
    "9007199254740991.0",
    "9007199254740993.0",
    "1.2345678901234568e+16",
    "\u00a0x\u3000",
    "\x1cx",
    "9007199254740993",
]


@pytest.mark.parametrize("text", FORMS)
def test_a_request_and_a_file_make_the_same_id_of_a_text(text: str) -> None:
    assert [id_text(text)] == parse_texts(pl.Series([text]))["ids"].to_list()


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("318.0", "318"),
        (" 318 ", "318"),
        ("007", "007"),
        ("318.7", "318.7"),
        (" a b ", "a b"),
        ("9007199254740991.0", "9007199254740991"),
    ],
)
def test_one_id_has_one_text(text: str, same: str) -> None:
    assert id_text(text) == same


@pytest.mark.parametrize("merged", ["9007199254740993.0", "1.2345678901234568e+16", 2.0**53, 12345678901234567.0])
def test_a_float_that_may_stand_for_several_whole_numbers_is_no_id(merged: object) -> None:
    assert id_text(merged) is None


def test_the_export_of_a_column_with_gaps_has_the_ids_of_the_original(tmp_path: Path) -> None:
    plain, floats = tmp_path / "plain.csv", tmp_path / "floats.csv"
    plain.write_text("user,item\n1,318\n2,7\n3,318\n", encoding="utf-8")
    floats.write_text("user,item\n1.0,318.0\n2.0, 7 \n3,318\n", encoding="utf-8")
    assert read_table(floats).rows.equals(read_table(plain).rows)
    assert read_table(plain).rows["item"].to_list() == [318, 7, 318]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_floats_beyond_2_53_are_counted_and_never_merge(tmp_path: Path, suffix: str) -> None:
    ids = ["12345678901234567.0", "12345678901234568.0", "7"]
    lines = ["user,item"] * (suffix == ".csv")
    lines += [f"1,{one}" if lines else f'{{"user": 1, "item": {one}}}' for one in ids]
    file = tmp_path / f"orders{suffix}"
    file.write_text("\n".join(lines), encoding="utf-8")
    found = read_table(file, Source(data="x", max_bad_share=1))
    assert found.rows["item"].to_list() == [7]
    assert found.report.unparsable == 2
