"""Tables as people have them, small enough to read: what comes out, and what is counted."""

import datetime as dt
import gzip
import logging
from pathlib import Path

import polars as pl
import pytest

from recfusion.core.errors import InputError
from recfusion.data.interactions import RawData
from recfusion.data.options import Source
from recfusion.data.reading.item_file import read_items
from recfusion.data.reading.reader import read_table

GOOD = "".join(f"u{n},i{n},4,1000000000\n" for n in range(60))
HEADER = "user,item,rating,timestamp\n"
MOMENT = 1577934245  # 2020-01-02 03:04:05 UTC


def write(folder: Path, content: str | bytes | pl.DataFrame, name: str = "table.csv") -> Path:
    path = folder / name
    if isinstance(content, pl.DataFrame):
        content.write_parquet(path)
    else:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def counts(raw: RawData) -> tuple[int, int, int, int]:
    return raw.report.rows, len(raw.rows), raw.report.missing, raw.report.unparsable


@pytest.mark.parametrize("separator", [",", "\t", ";", "|", " "])
def test_a_text_table_is_read_whatever_its_separator(tmp_path: Path, separator: str) -> None:
    raw = read_table(write(tmp_path, (HEADER + GOOD).replace(",", separator)))
    assert raw.rows.columns == ["user", "item", "rating", "time"]
    assert raw.rows.row(0) == ("u0", "i0", 4.0, 1000000000)
    assert counts(raw) == (60, 60, 0, 0)
    assert raw.report.notes[1] == "columns guessed: user = user, item = item, rating = rating, time = timestamp"


def test_the_same_rows_come_out_of_every_kind_of_file(tmp_path: Path) -> None:
    frame = pl.DataFrame({"user": ["ann", "bob"], "item": [3, 1], "rating": [4.5, 2.0]})
    frame.write_csv(tmp_path / "a.csv")
    frame.write_parquet(tmp_path / "a.parquet")
    frame.write_ndjson(tmp_path / "a.jsonl")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes(), mtime=0))
    expected = frame.with_columns(pl.col("rating").cast(pl.Float32))
    for path in sorted(tmp_path.iterdir()):
        assert read_table(path).rows.equals(expected), path.name


def test_quoted_fields_may_hold_separators_and_quotes_and_bare_ones_quotes(tmp_path: Path) -> None:
    raw = read_table(write(tmp_path, 'user,item\r\nann,"a, b"\r\nann,"say ""hi"""\r\nbob,12" disc\r\n'))
    assert raw.rows["item"].to_list() == ["a, b", 'say "hi"', '12" disc']


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (["7", "-5", "0"], [7, -5, 0]),
        (["007", "7", "12"], ["007", "7", "12"]),
        (["12.0", "13.0"], [12, 13]),
        (["1e5", "7"], ["1e5", "7"]),
        (["-0", "0"], ["-0", "0"]),
        (["99999999999999999999", "1"], ["99999999999999999999", "1"]),
        (["12", "abc"], ["12", "abc"]),
        (["日本", "🎸", "e\u0301"], ["日本", "🎸", "e\u0301"]),
    ],
)
def test_ids_are_integers_only_where_nothing_is_lost(tmp_path: Path, ids: list[str], expected: list[object]) -> None:
    raw = read_table(write(tmp_path, "user,item\n" + "".join(f"u,{value}\n" for value in ids)))
    assert raw.rows["item"].to_list() == expected


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (pl.Series([1, 2], dtype=pl.Int8), [1, 2]),
        (pl.Series([2**64 - 1, 1], dtype=pl.UInt64), [str(2**64 - 1), "1"]),
        (pl.Series([1.0, 2.0]), [1, 2]),
        (pl.Series(["b", "a"], dtype=pl.Categorical), ["b", "a"]),
        (pl.Series(["b", "a"], dtype=pl.Enum(["a", "b"])), ["b", "a"]),
        (pl.Series(["01", "1"]), ["01", "1"]),
        (pl.Series([dt.date(2020, 1, 2), dt.date(2020, 1, 3)]), ["2020-01-02", "2020-01-03"]),
    ],
)
def test_ids_of_a_typed_file_keep_their_meaning(tmp_path: Path, ids: pl.Series, expected: list[object]) -> None:
    raw = read_table(write(tmp_path, pl.DataFrame({"user": ids, "item": [1, 2]}), "table.parquet"))
    assert raw.rows["user"].to_list() == expected


def test_blanks_around_ids_are_removed_and_counted(tmp_path: Path) -> None:
    raw = read_table(write(tmp_path, "user, item \n 1,lamp\n2 , book\n3,pen\n"))
    assert raw.rows.rows() == [(1, "lamp"), (2, "book"), (3, "pen")]
    assert raw.report.notes[-2:] == ("blanks around 2 user ids were removed", "blanks around 1 item ids were removed")


@pytest.mark.parametrize(
    ("row", "missing", "unparsable"),
    [
        (",i,5,1", 1, 0),
        ("u,,5,1", 1, 0),
        ("u,i,,1", 1, 0),
        ("u,NaN,5,1", 1, 0),
        ("u", 1, 0),
        ("u,i,good,1", 0, 1),
        ("u,i,inf,1", 0, 1),
        ("u,i,5,yesterday", 0, 1),
        ("u,i,5,1,more,and more", 0, 1),
        ("u,\ufffd,5,1", 0, 1),
    ],
)
def test_a_bad_row_is_counted_and_left_out(tmp_path: Path, row: str, missing: int, unparsable: int) -> None:
    raw = read_table(write(tmp_path, f"{HEADER}{GOOD}{row}\n"))
    assert counts(raw) == (61, 60, missing, unparsable)


def test_bytes_that_are_no_utf_8_never_merge_ids(tmp_path: Path) -> None:
    path = write(tmp_path, (HEADER + GOOD + "u,caf\xe9,4,1\nu,caf\xe8,4,1\n").encode("latin-1"))
    raw = read_table(path, Source(encoding="utf-8"))
    assert counts(raw) == (62, 60, 0, 2)


def test_empty_lines_are_no_rows(tmp_path: Path) -> None:
    raw = read_table(write(tmp_path, "\n\nuser,item\n\nann,1\n   \nbob,2\n\n"))
    assert raw.rows.rows() == [("ann", 1), ("bob", 2)]
    assert raw.report.rows == 2
    assert raw.report.notes[-1] == "3 empty rows were skipped"


def test_a_footer_does_not_turn_integer_ids_into_text(tmp_path: Path) -> None:
    raw = read_table(write(tmp_path, "user,item\n" + "1,2\n" * 60 + "total 60,\n"))
    assert raw.rows.dtypes == [pl.Int64, pl.Int64]
    assert raw.report.missing == 1


def test_more_bad_rows_than_allowed_are_an_error_that_shows_the_first(tmp_path: Path) -> None:
    path = write(tmp_path, "user,item,rating\nann,1,5\nbob,2,good\ncy,3,\n")
    with pytest.raises(
        InputError, match=r"1 lack a value and 1 cannot be parsed.*line 3 has a rating that is not a number: 'good'"
    ):
        read_table(path)
    assert counts(read_table(path, Source(max_bad_share=0.7))) == (3, 1, 1, 1)
    assert len(read_table(path, Source(rating="none")).rows) == 3


def test_a_decimal_comma_is_read_where_semicolons_separate(tmp_path: Path) -> None:
    raw = read_table(write(tmp_path, "user;item;rating\nann;1;4,5\nbob;2;3\n"))
    assert raw.rows["rating"].to_list() == [4.5, 3.0]
    assert "decimal" in raw.report.notes[0]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (str(MOMENT), MOMENT),
        (f"{MOMENT}.75", MOMENT),
        (f"{MOMENT}000", MOMENT),
        (f"{MOMENT}000000", MOMENT),
        (f"{MOMENT}000000000", MOMENT),
        ("2020-01-02T03:04:05", MOMENT),
        ("2020-01-02 03:04:05.250", MOMENT),
        ("2020-01-02T03:04:05Z", MOMENT),
        ("2020-01-02 03:04:05+00:00", MOMENT),
        ("2020-01-02T05:04:05+02:00", MOMENT),
        ("2020-01-02T05:04:05+0200", MOMENT),
        ("2020-01-02T03:04", MOMENT - 5),
        ("2020-01-02 03:04", MOMENT - 5),
        ("2020-01-02", MOMENT - 5 - 4 * 60 - 3 * 3600),
    ],
)
def test_times_become_seconds_since_1970(tmp_path: Path, text: str, seconds: int) -> None:
    assert read_table(write(tmp_path, f"user,item,time\nann,1,{text}\n")).rows["time"].item() == seconds


def test_forms_of_time_may_be_mixed(tmp_path: Path) -> None:
    raw = read_table(write(tmp_path, f"user,item,time\nann,1,{MOMENT}\nann,2,2020-01-02T03:04:05Z\n"))
    assert raw.rows["time"].to_list() == [MOMENT, MOMENT]


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_typed_times_become_seconds_since_1970(tmp_path: Path, unit: pl._typing.TimeUnit, zone: str | None) -> None:
    moment = pl.Series([dt.datetime(2020, 1, 2, 3, 4, 5)], dtype=pl.Datetime(unit)).dt.replace_time_zone(zone)
    frame = pl.DataFrame({"user": [1], "item": [1], "time": moment})
    found = read_table(write(tmp_path, frame, "table.parquet")).rows["time"].item()
    assert found == MOMENT - 3600 * (zone is not None)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("user", [[1], [2]]),
        ("user", [b"a", b"b"]),
        ("rating", [dt.date(2020, 1, 1)] * 2),
        ("time", [dt.time(3, 4)] * 2),
        ("time", [True, False]),
    ],
)
def test_columns_of_a_wrong_type_are_named(tmp_path: Path, column: str, values: list[object]) -> None:
    frame = pl.DataFrame({"user": [1, 2], "item": [1, 2]}).with_columns(pl.Series(column, values))
    with pytest.raises(InputError, match=f"the column '{column}'.* name another column with --{column}"):
        read_table(write(tmp_path, frame, "table.parquet"))


def test_floats_that_are_no_whole_numbers_are_no_ids(tmp_path: Path) -> None:
    frame = pl.DataFrame({"user": [1.0, 2.5, float("nan"), None, 1e300], "item": [1] * 5})
    raw = read_table(write(tmp_path, frame, "table.parquet"), Source(max_bad_share=1))
    assert raw.rows["user"].to_list() == [1]
    assert counts(raw) == (5, 1, 2, 2)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", b"", "empty file"),
        ("a.csv", b"user,item\n", "got none below"),
        ("a.csv", b'user,item\nann,"1\nbob,2\ncy,3\n', "line 2 has a double quote that is not closed"),
        ("a.csv", b"user;item\nann;1\n", None),
        ("a.parquet", b"user,item\n1,2\n", "Cannot read"),
        ("a.jsonl", b'{"user":1,"item":2}\n{"user":2,"it', "a line is no JSON object"),
        ("a.jsonl", b'[{"user":1,"item":2}]', "a line is no JSON object"),
        ("a.xls", b"PK", "Cannot tell the format"),
        ("a", b"user,item\n1,2\n", "Cannot tell the format"),
        ("a.csv.gz", gzip.compress(b"user,item\n" + b"1,2\n" * 1000, mtime=0)[:20], "damaged or incomplete"),
    ],
)
def test_a_broken_file_is_one_clear_error(tmp_path: Path, name: str, content: bytes, words: str | None) -> None:
    path = write(tmp_path, content, name)
    if words is None:
        assert len(read_table(path).rows) == 1
        return
    with pytest.raises(InputError, match=words) as error:
        read_table(path)
    assert name in str(error.value)
    assert "\n" not in str(error.value)


def test_a_folder_or_a_missing_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="got a folder"):
        read_table(tmp_path)
    with pytest.raises(InputError, match="got nothing"):
        read_table(tmp_path / "none.csv")


@pytest.mark.parametrize("name", ["a[1].csv", "a*.csv", "a?.jsonl"])
def test_a_name_is_never_a_pattern(tmp_path: Path, name: str) -> None:
    text = '{"user": 9, "item": 9}\n' if name.endswith("jsonl") else "user,item\n9,9\n"
    write(tmp_path, text, name.replace("[1]", "1").replace("*", "x").replace("?", "x"))
    path = write(tmp_path, text.replace("9", "1"), name)
    assert read_table(path).rows.rows() == [(1, 1)]


def test_an_item_file_gives_one_row_per_item(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path, "title,movieId\nHeat, 1 \nUp,2\nHeat again,1\nNobody,\n")
    with caplog.at_level(logging.WARNING):
        items = read_items(path, "movieId")
    assert items.rows() == [("1", "Heat"), ("2", "Up")]
    assert "Left out 1 of 4 rows" in caplog.text
    assert "which lack the id" in caplog.text
    assert "which repeat the id of the item (such as 1)" in caplog.text


def test_texts_of_an_item_file_may_go_over_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path, 'item,title,about\n1,Heat,"two\n\nlines, ""long"""\n2,"Up"\n\n3,*,"x"\n')
    assert read_items(path, "item").rows() == [
        ("1", "Heat", 'two\n\nlines, "long"'),
        ("2", "Up", None),
        ("3", "*", "x"),
    ]
    assert not caplog.text


def test_lines_of_an_item_file_with_stray_quotes_are_left_out_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, 'item;title\n1;"Heat"\n2;"\\"Up\\" again"\n3;"Big\n4;"Alien"\n5;12" Disc;6\n')
    assert read_items(path, "item").rows() == [("1", "Heat"), ("4", "Alien"), ("5", '12" Disc')]
    assert "2 lines" in caplog.text
    assert "line 3" in caplog.text
    assert "1 rows" in caplog.text


def test_an_item_file_may_have_long_separators(tmp_path: Path) -> None:
    path = write(tmp_path, "movieId::title\n1::Heat (1995)\n2::Up: a film\n", "movies.dat")
    assert read_items(path, "movieId").rows() == [("1", "Heat (1995)"), ("2", "Up: a film")]


@pytest.mark.parametrize("header", ["movieId,title", "id,title", "item,title", "movie_id,movie_title"])
def test_the_ids_of_an_item_file_are_found(tmp_path: Path, header: str) -> None:
    assert read_items(write(tmp_path, f"{header}\n1,Heat\n"), "movieId")["item"].to_list() == ["1"]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["3", "-12", "0"], [3, -12, 0]),
        (["3", "", "NA"], [3, None, None]),
        ([" 3", "4 ", "nan"], [3, 4, None]),
        (["9.50", "10", "-0.5"], [9.5, 10.0, -0.5]),
        (["0.25", "1e-05", "1.5E3"], [0.25, 1e-05, 1500.0]),
        (["00123", "00456"], ["00123", "00456"]),
        (["12", "012"], ["12", "012"]),
        (["1e5", "2e5"], ["1e5", "2e5"]),
        (["1.5", "inf"], ["1.5", "inf"]),
        (["+4912", "5"], ["+4912", "5"]),
        (["0x1F", "1_000"], ["0x1F", "1_000"]),
        (["1.2.3", "4"], ["1.2.3", "4"]),
        (["12345678901234567890", "1"], ["12345678901234567890", "1"]),
        (["1234567890123456", "0.5"], ["1234567890123456", "0.5"]),
        (["true", "false"], ["true", "false"]),
        (["2024-01-02", "2024-01-03"], [dt.date(2024, 1, 2), dt.date(2024, 1, 3)]),
        (["", ""], [None, None]),
        (["NA", "NA"], ["NA", "NA"]),
    ],
)
def test_numbers_of_an_item_file_stay_numbers(tmp_path: Path, cells: list[str], expected: list[object]) -> None:
    lines = "".join(f"i{place},title {place},{cell}\n" for place, cell in enumerate(cells))
    found = read_items(write(tmp_path, f"item,title,stock\n{lines}"), "item")["stock"].to_list()
    assert found == expected
    assert [type(value) for value in found] == [type(value) for value in expected]


def test_a_decimal_comma_of_an_item_file_is_read_where_semicolons_separate(tmp_path: Path) -> None:
    items = read_items(write(tmp_path, "item;price;sizes\n7;9,50;1,2,3\n8;10;4\n"), "item")
    assert items.to_dicts() == [
        {"item": "7", "price": 9.5, "sizes": "1,2,3"},
        {"item": "8", "price": 10.0, "sizes": "4"},
    ]
    items = read_items(write(tmp_path, 'item,price\n7,"9,50"\n8,"10"\n'), "item")
    assert items["price"].to_list() == [9.5, 10.0]


def test_the_types_of_a_typed_item_file_are_kept(tmp_path: Path) -> None:
    frame = pl.DataFrame({"item": ["a", "b"], "zip": ["10115", "80331"], "price": [1, None]})
    items = read_items(write(tmp_path, frame, "items.parquet"), "item")
    assert items.schema == {"item": pl.String, "zip": pl.String, "price": pl.Int64}


def test_a_second_column_named_item_is_kept(tmp_path: Path) -> None:
    items = read_items(write(tmp_path, "movieId,item\n1,Heat\n"), "movieId")
    assert items.to_dicts() == [{"item": "1", "item_2": "Heat"}]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("1,Heat\n2,Up\n", "Expected a header"),
        ("title,year\nHeat,1995\n", "Expected a column 'movieId'"),
        ("movieId,title\n", "Expected a row per item"),
    ],
)
def test_an_item_file_without_ids_is_refused(tmp_path: Path, content: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_items(write(tmp_path, content), "movieId")


def test_rows_without_a_time_are_kept_as_the_oldest_of_their_user(tmp_path: Path) -> None:
    path = tmp_path / "some.csv"
    path.write_text("user,item,timestamp\na,1,1600000300\na,2,\na,3,1600000200\nb,1,\nb,2,1600000900\nc,3,\n")
    found = read_table(path)
    assert found.rows["time"].to_list() == [1600000300, 1600000200, 1600000200, 1600000900, 1600000900, 1600000200]
    assert "3 of 6 rows have no time: they count as old as the oldest row of their user" in found.report.notes
    assert counts(found) == (6, 6, 0, 0)
    path.write_text("user,item,timestamp\na,1,\na,2,\n")
    assert read_table(path).rows.columns == ["user", "item"]
