"""Tables in memory go in wherever a file goes in, and come out the same."""

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from recfusion.core.errors import InputError
from recfusion.data.load import load
from recfusion.data.options import Preparation, Source
from recfusion.data.reading.formats import as_frame
from recfusion.data.reading.reader import read_table

LOOSE = Preparation(min_rating=None, min_items_per_user=0, min_users_per_item=0)
MOMENT = 1577934245  # 2020-01-02 03:04:05 UTC
SMALL = pl.DataFrame({"user": ["a", "a", "b"], "item": [3, 1, 1], "rating": [4.0, 5.0, 1.0], "time": [1, 2, 3]})


class Foreign:
    """A table of a library that is not known here, such as a relation of DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return SMALL.to_arrow().__arrow_c_stream__(requested_schema)


@pytest.fixture
def pd() -> Any:
    return pytest.importorskip("pandas", reason="pandas is not installed (the extra spark)")


@pytest.mark.parametrize("kind", ["polars", "pyarrow", "batches", "foreign", "pandas"])
def test_every_kind_of_frame_gives_what_a_file_gives(tmp_path: Path, kind: str, request: Any) -> None:
    SMALL.write_parquet(tmp_path / "small.parquet")
    table = SMALL.to_arrow()
    frames: dict[str, Callable[[], Any]] = {
        "polars": lambda: SMALL,
        "pyarrow": lambda: table,
        "batches": lambda: pa.RecordBatchReader.from_batches(table.schema, table.to_batches()),
        "foreign": Foreign,
        "pandas": lambda: request.getfixturevalue("pd").DataFrame(SMALL.to_dict(as_series=False)),
    }
    found, expected = load(frames[kind](), LOOSE), load(tmp_path / "small.parquet", LOOSE)
    assert found.fingerprint == expected.fingerprint
    assert (found.steps, found.report) == (expected.steps, expected.report)
    assert found.name == "frame"
    assert found.source == Source(data="frame")


def test_columns_can_be_named_for_frames_and_for_files(tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": [1, 2], "y": [1, 1], "z": [5, 6], "when": [7, 8]})
    frame.write_csv(tmp_path / "odd.csv")
    for data in (frame, tmp_path / "odd.csv", str(tmp_path / "odd.csv"), Source(data=str(tmp_path / "odd.csv"))):
        found = load(data, LOOSE, user="x", item="y", rating="z", time="when")
        assert found.report.columns == {"user": "x", "item": "y", "rating": "z", "time": "when"}
        assert found.times is not None
        assert found.times.tolist() == [7, 8]
        assert (found.source.user, found.source.item, found.source.time) == ("x", "y", "when")


def test_bad_rows_of_a_frame_are_counted_and_left_out() -> None:
    frame = pl.DataFrame({"user": ["a", None, "b", " c "], "item": ["1", "2", "", "4"]})
    with pytest.raises(InputError, match=r"Of 4 rows in 'shop', 2 lack a value.*row 2 has no user"):
        load(frame, LOOSE, name="shop")
    found = load(frame, LOOSE, name="shop", max_bad_share=0.5)
    assert (found.name, found.users.to_list(), found.items.to_list()) == ("shop", ["a", "c"], [1, 4])
    assert (found.report.rows, found.report.missing) == (4, 2)
    assert "blanks around 1 user ids were removed" in found.report.notes


def test_a_frame_of_items_describes_them(tmp_path: Path) -> None:
    titles = pl.DataFrame({"id": ["1", "3"], "title": ["one", "three"], "price": [0.5, float("nan")]})
    titles.write_csv(tmp_path / "titles.csv")
    SMALL.write_parquet(tmp_path / "small.parquet")
    for data in (SMALL, tmp_path / "small.parquet"):
        found = load(data, LOOSE, items=titles)
        assert found.item_table.rows() == [(1, "one", 0.5), (3, "three", None)]
        assert found.source.items is None
        assert load(data, LOOSE, items=tmp_path / "titles.csv").item_table["title"].to_list() == ["one", "three"]


def test_a_frame_of_other_items_is_refused() -> None:
    names = pl.DataFrame({"id": ["lamp", "book"], "title": ["Lamp", "Book"]})
    with pytest.raises(InputError, match=r"ids of items in the item file such as '1', got others .*--item"):
        load(SMALL, LOOSE, items=names)


@pytest.mark.parametrize(
    ("values", "ids"),
    [
        ([318.0, np.nan, 7.0], [318, 7]),
        (["x", None, "y"], ["x", "y"]),
        ([318, None, "A7"], ["318", "A7"]),
        ([318, np.nan, 7], [318, 7]),
    ],
)
def test_ids_of_pandas_mean_what_they_mean_in_files(pd: Any, values: list[object], ids: list[object]) -> None:
    raw = read_table(as_frame(pd.DataFrame({"user": values, "item": [1, 2, 3]})), Source(max_bad_share=0.5))
    assert raw.rows["user"].to_list() == ids
    assert (raw.report.rows, raw.report.missing) == (3, 1)


def test_categories_and_extension_types_of_pandas_are_read(pd: Any) -> None:
    frame = pd.DataFrame(
        {
            "user": pd.Categorical(["b", "a"]),
            "item": pd.array([1, 2], dtype="Int64"),
            "rating": pd.Series([4, "5"], dtype=object),
        }
    )
    assert read_table(as_frame(frame)).rows.rows() == [("b", 1, 4.0), ("a", 2, 5.0)]


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_times_of_pandas_become_seconds_since_1970(pd: Any, zone: str | None) -> None:
    moment = pd.Series([dt.datetime(2020, 1, 2, 3, 4, 5)]).dt.tz_localize(zone)
    raw = read_table(as_frame(pd.DataFrame({"user": [1], "item": [1], "time": moment})))
    assert raw.rows["time"].item() == MOMENT - 3600 * (zone == "Europe/Berlin")


def test_an_index_is_a_column_where_it_has_a_name(pd: Any) -> None:
    frame = pd.DataFrame({"user": [1, 2], "item": [3, 4]}, index=[8, 9])
    assert as_frame(frame).columns == ["user", "item"]
    assert sorted(as_frame(frame.set_index("user")).columns) == ["item", "user"]


def test_numbers_are_not_copied() -> None:
    values = pa.array([1, 2, 3])
    series = as_frame(pa.table({"user": values}))["user"]
    assert series.to_numpy(allow_copy=False).ctypes.data == values.buffers()[1].address


@pytest.mark.parametrize("thing", [42, None, {"user": [1]}, [[1, 2]]])
def test_what_is_no_table_is_refused_in_one_sentence(thing: Any) -> None:
    with pytest.raises(InputError, match=f"Expected a table in memory .* got {type(thing).__name__}"):
        load(thing)


def test_a_frame_that_lacks_something_is_refused_in_one_sentence(pd: Any) -> None:
    with pytest.raises(InputError, match=r"Expected a column 'who' \(--user\) in 'frame', which has: user, item"):
        load(SMALL, user="who")
    with pytest.raises(InputError, match="Expected a column for the item in 'frame'"):
        load(pl.DataFrame({"user": [1]}))
    with pytest.raises(InputError, match="Expected rows of interactions in 'frame', got none"):
        load(SMALL.clear())
    with pytest.raises(
        InputError,
        match=r"Expected a table with named columns, got one column of Int64|Cannot take the Series as a table",
    ):
        load(pl.Series([1, 2]))
    with pytest.raises(InputError, match=r"Cannot take the DataFrame as a table: .*'a'"):
        load(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    with pytest.raises(InputError, match=r"Expected a valid source: max_bad_share: .* got .7"):
        load(SMALL, max_bad_share=7)


def test_a_frame_takes_the_name_of_no_other_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    SMALL.write_csv("small.csv")
    for taken in ("ml-1m", "small.csv"):
        with pytest.raises(InputError, match="a name for the frame that no data set and no file has"):
            load(SMALL, name=taken)


def test_the_source_of_a_frame_cannot_be_read_again() -> None:
    source = load(SMALL, LOOSE, name="shop").source
    with pytest.raises(InputError, match=r"^'shop' .* made from a frame in memory: pass the frame again\.$"):
        load(source)


def test_a_known_data_set_takes_no_columns_and_no_items() -> None:
    with pytest.raises(InputError, match="leave out --user"):
        load("ml-latest-small", user="who")
    with pytest.raises(InputError, match="leave out --items"):
        load("ml-latest-small", items=pl.DataFrame({"item": [1]}))
