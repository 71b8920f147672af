"""Files as shops export them: encodings, dates, numbers, headers, preambles, several files, and a condition on rows."""

import datetime as dt
import gzip
import zipfile
from pathlib import Path

import polars as pl
import pytest
from messy_shop import CANCELLED, write_shop

from recfusion.core.errors import InputError
from recfusion.data.column_roles import title_column
from recfusion.data.interactions import RawData
from recfusion.data.load import load, read
from recfusion.data.options import Preparation, Source
from recfusion.data.reading.item_file import read_items
from recfusion.data.reading.reader import read_table

LOOSE = Preparation(min_items_per_user=1, min_users_per_item=1)


def seconds(*when: int) -> int:
    return int(dt.datetime(*when, tzinfo=dt.UTC).timestamp())  # type: ignore[misc, arg-type]


def read_times(folder: Path, cells: list[str], **options: str) -> RawData:
    path = folder / "orders.csv"
    path.write_text("user;item;date\n" + "".join(f"{n};1;{cell}\n" for n, cell in enumerate(cells)), encoding="utf-8")
    return read_table(path, Source(**options))


@pytest.mark.parametrize(
    ("cells", "first"),
    [
        (["20200131", "20191201"], (2020, 1, 31)),
        (["20200131123000", "20191201000000"], (2020, 1, 31, 12, 30)),
        (["2020", "2019"], (2020, 1, 1)),
        (["43831", "43832"], (2020, 1, 1)),
        (["43831.5", "43832.25"], (2020, 1, 1, 12)),
        (["03.04.2020", "05.06.2020"], (2020, 4, 3)),
        (["3.4.2020", "5.6.2020"], (2020, 4, 3)),
        (["03.04.20 17:30", "05.06.20 08:00"], (2020, 4, 3, 17, 30)),
        (["03.04.2020, 17:30:05", "05.06.2020, 08:00:00"], (2020, 4, 3, 17, 30, 5)),
        (["03/04/2020", "13/04/2020"], (2020, 4, 3)),
        (["03/04/2020", "04/13/2020"], (2020, 3, 4)),
        (["03-04-2020 10:00", "04-13-2020 11:00"], (2020, 3, 4, 10)),
        (["3/4/20 5:30 PM", "4/13/20 11:00 AM"], (2020, 3, 4, 17, 30)),
        (["2020/04/03 10:00:00", "2020/04/05 10:00:00"], (2020, 4, 3, 10)),
        (["2020-04-03 10:00:00+02:00", "2020-04-05 10:00:00+02:00"], (2020, 4, 3, 8)),
        (["2020-04-03 10:00:00 UTC", "2020-04-05 10:00:00 UTC"], (2020, 4, 3, 10)),
        (["2020-04-03T10:00:00Z", "2020-04-05T10:00:00Z"], (2020, 4, 3, 10)),
        (["03.04.2020", "05.06.2020 12:00"], (2020, 4, 3)),
    ],
)
def test_the_cells_of_a_column_decide_what_its_times_mean(
    tmp_path: Path, cells: list[str], first: tuple[int, ...]
) -> None:
    found = read_times(tmp_path, cells)
    assert found.rows["time"][0] == seconds(*first)
    assert found.report.unparsable == 0


@pytest.mark.parametrize("kind", [pl.Int64, pl.Float64, pl.String])
@pytest.mark.parametrize("cell", [20200131, 43861, 2020])
def test_numbers_of_typed_columns_are_recognised_too(cell: int, kind: type[pl.DataType]) -> None:
    frame = pl.DataFrame({"user": [1], "item": [1], "time": pl.Series([cell]).cast(kind)})
    found = read_table(frame)
    assert found.rows["time"][0] == (seconds(2020, 1, 1) if cell == 2020 else seconds(2020, 1, 31))
    assert any(note.startswith("times are read as ") for note in found.report.notes)


def test_seconds_and_counters_stay_what_they_are(tmp_path: Path) -> None:
    for cells in (["1600000000", "978300760"], ["1", "2", "1999", "30000"]):
        assert read_times(tmp_path, cells).rows["time"].to_list() == [int(cell) for cell in cells]


def test_a_late_cell_decides_the_order_of_day_and_month(tmp_path: Path) -> None:
    found = read_times(tmp_path, ["03/04/2020"] * 1500 + ["04/13/2020"])
    assert found.rows["time"][0] == seconds(2020, 3, 4)


def test_an_open_order_of_day_and_month_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'date'.*such as '03/04/2020': add --date-format '%d/%m/%Y' or") as error:
        read_times(tmp_path, ["03/04/2020", "05/06/2020"])
    assert error.value.field == "date_format"
    assert read_times(tmp_path, ["03/04/2020"], date_format="%m/%d/%Y").rows["time"][0] == seconds(2020, 3, 4)
    with pytest.raises(InputError, match="Expected dates of the form '%Y' "):
        read_times(tmp_path, ["03/04/2020"], date_format="%Y")


NAMES = "user,item\nJürgen,Käse\nAnaïs,Crème brûlée\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "cp1252"])
@pytest.mark.parametrize("packed", [False, True])
def test_the_encoding_is_found_from_the_bytes(tmp_path: Path, encoding: str, packed: bool) -> None:
    path = tmp_path / ("a.csv.gz" if packed else "a.csv")
    content = NAMES.encode(encoding)
    path.write_bytes(gzip.compress(content) if packed else content)
    found = read_table(path)
    assert found.rows["user"].to_list() == ["Jürgen", "Anaïs"]
    assert found.rows["item"].to_list() == ["Käse", "Crème brûlée"]
    assert any("in the encoding" in note for note in found.report.notes) == (not encoding.startswith("utf-8"))


def test_evidence_of_the_encoding_may_come_late(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"user,item\n" + b"someone,something\n" * 50_000 + "Jürgen,Käse\n".encode("cp1252"))
    assert read_table(path).rows["item"][-1] == "Käse"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [("user,item\nдмитрий,книга\n", "cp1251"), ("user,item\nłukasz,książka\n", "cp1250"), (NAMES, "cp850")],
)
def test_another_encoding_is_asked_for(tmp_path: Path, text: str, encoding: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode(encoding))
    with pytest.raises(InputError, match=r"in line 2.*name it with --encoding") as error:
        read_table(path)
    assert error.value.field == "encoding"
    user, item = text.splitlines()[1].split(",")
    assert read_table(path, Source(encoding=encoding)).rows.row(0) == (user, item)


def test_what_is_no_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(NAMES, encoding="utf-8")
    for name in ("utf-99", "base64", "rot13", "zip"):
        with pytest.raises(InputError, match="Expected an encoding such as utf-8"):
            read_table(tmp_path / "a.csv", Source(encoding=name))


@pytest.mark.parametrize(
    "above",
    [
        "# made by x, y\n",
        "# made by x\n# on Monday\n",
        "sep=,\n",
        "Orders of the shop\n",
        "\n",
        "// export, v2, 2020\n",
    ],
)
def test_lines_above_the_header_are_no_users(tmp_path: Path, above: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"{above}user,item,rating\nann,1,3\nbob,2,\n", encoding="utf-8")
    found = read_table(path, Source(max_bad_share=1))
    assert found.rows["user"].to_list() == ["ann"]
    assert any("line 4" in note or "line 5" in note for note in found.report.notes if "left out" in note)


def test_a_header_may_begin_with_a_hash(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("#user,item\nann,1\nbob,2\n", encoding="utf-8")
    assert read_table(tmp_path / "a.csv").rows["user"].to_list() == ["ann", "bob"]


def test_the_separator_of_the_first_line_counts(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("sep=|\nuser|item\na,b|1\nb,c|2\n", encoding="utf-8")
    assert read_table(tmp_path / "a.csv").rows["user"].to_list() == ["a,b", "b,c"]


def test_columns_that_differ_only_by_case_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("user,item,User\n1,2,3\n", encoding="utf-8")
    with pytest.raises(InputError, match="got 'User' and 'user': name it with --user"):
        read_table(tmp_path / "a.csv")
    assert read_table(tmp_path / "a.csv", Source(user="user")).rows.row(0) == (1, 2)


def test_a_lone_carriage_return_is_an_empty_line(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"1,2\r\n\r")
    found = read_table(tmp_path / "a.csv")
    assert (found.rows.rows(), found.report.blank) == ([(1, 2)], 1)


def test_json_lines_may_begin_with_a_mark_and_have_empty_lines(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"user":1,"item":2}\n\n \n{"user":1,"item":3}\n')
    found = read_table(tmp_path / "a.jsonl")
    assert (found.rows["item"].to_list(), found.report.rows, found.report.blank) == ([2, 3], 2, 2)


def test_a_json_line_with_a_name_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"user":1,"item":"a\\"b\\":"}\n{"user":1,"item":2,"item":3}\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"line 2 of .*got 'item' twice"):
        read_table(tmp_path / "a.jsonl")
    nested = '{"user":1,"item":2,"more":{"item":3}}\n'
    (tmp_path / "a.jsonl").write_text(nested, encoding="utf-8")
    assert read_table(tmp_path / "a.jsonl").rows.row(0) == (1, 2)


@pytest.mark.parametrize(
    ("header", "roles"),
    [
        ("Kunden-Nr.;Artikelnummer;Menge;Bestelldatum", "user item rating time"),
        ("E-Mail;Art.-Nr.;Anzahl;Datum", "user item rating time"),
        ("client;référence;quantité;date", "user item rating time"),
        ("Cliente;Artículo;Cantidad;Fecha", "user item rating time"),
        ("cliente;prodotto;quantità;data", "user item rating time"),
        ("Klant;Artikel;Aantal;Besteldatum", "user item rating time"),
        ("Klient;Produkt;Ilość;Data", "user item rating time"),
        ("Cliente;Produto;Quantidade;Data", "user item rating time"),
    ],
)
def test_headers_of_european_languages_are_known(tmp_path: Path, header: str, roles: str) -> None:
    (tmp_path / "a.csv").write_text(f"{header}\nx;1;2;31.12.2020\ny;2;1,5;30.12.2020\n", encoding="utf-8")
    found = read_table(tmp_path / "a.csv")
    assert list(found.report.columns.values()) == header.split(";")
    assert list(found.report.columns) == roles.split()
    assert found.rows["rating"].to_list() == [2.0, 1.5]


def test_a_guessed_column_without_times_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("user,item,data\n1,2,blue\n3,4,red\n", encoding="utf-8")
    found = read_table(tmp_path / "a.csv")
    assert found.rows.columns == ["user", "item"]
    assert "not used, since it holds no times: data" in found.report.notes


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["1.208,06", "12,50", "3"], [1208.06, 12.5, 3.0]),
        (["1,208.06", "12.50", "3"], [1208.06, 12.5, 3.0]),
        (["1 208,06", "12,5", "1.000.000"], [1208.06, 12.5, 1e6]),
        (["1\u00a0208,06 €", "€ 12,50", "-3"], [1208.06, 12.5, -3.0]),
        (["1'208.06", "12.50", "3"], [1208.06, 12.5, 3.0]),
        (["1.208.000", "12.500", "3"], [1208000.0, 12500.0, 3.0]),
    ],
)
def test_numbers_have_decimal_commas_and_thousands_separators(
    tmp_path: Path, cells: list[str], numbers: list[float]
) -> None:
    rows = "".join(f'u,{n},"{cell}"\n' for n, cell in enumerate(cells))
    (tmp_path / "a.csv").write_text(f"user,item,price\n{rows}", encoding="utf-8")
    assert read_items(tmp_path / "a.csv", "item")["price"].to_list() == numbers
    found = read_table(tmp_path / "a.csv", Source(rating="price", max_bad_share=1)).rows["rating"]
    assert found.to_list() == pytest.approx(numbers)


def test_a_text_among_numbers_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cells = [*(f"{n},50" for n in range(20)), "auf Anfrage"]
    rows = "".join(f"{n};{cell}\n" for n, cell in enumerate(cells))
    (tmp_path / "a.csv").write_text(f"item;price\n{rows}", encoding="utf-8")
    assert read_items(tmp_path / "a.csv", "item")["price"].dtype == pl.String
    assert "1 of its 21 cells are no numbers; the first is 'auf Anfrage'" in caplog.text


def test_the_condition_on_rows_leaves_rows_out_and_counts_them(tmp_path: Path) -> None:
    lines = ["1;2;paid;12,50;31.12.2019", "1;3;cancelled;9,00;01.01.2020", "2;3;paid;1.208,06;02.01.2020"]
    (tmp_path / "a.csv").write_text("\n".join(["user;item;status;price;date", *lines]), encoding="utf-8")

    def items(condition: str) -> list[int]:
        found = read_table(tmp_path / "a.csv", Source(rows=condition, rating="none"))
        left_out = found.report.rows - len(found.rows)
        assert f"{left_out} rows do not meet --rows and are left out" in found.report.notes
        return [item for _, item in found.rows.select("user", "item").rows()]

    assert items("status != 'cancelled'") == [2, 3]
    assert items("price > 1000") == [3]
    (tmp_path / "b.csv").write_text(
        "\n".join(["user;item;n;date", *(f"1;{n};{n};02.01.2020" for n in range(30))]) + "\n1;98;zwei;31.02.2020\n",
        encoding="utf-8",
    )
    few = read_table(tmp_path / "b.csv", Source(rows="n > 27 and date > '2020-01-01'", rating="none", time="none"))
    assert few.rows["item"].to_list() == [28, 29]
    assert items("date >= '2020-01-01' and price < 10") == [3]
    with pytest.raises(InputError, match=r"--rows: Unknown column of the table .*'colour'") as error:
        items("colour == 'red'")
    assert error.value.field == "rows"
    with pytest.raises(InputError, match=r"Expected some of the 3 rows .* to meet --rows, got none"):
        items("price < 0")
    with pytest.raises(InputError, match="compare it with one such as '2020-01-31'"):
        items("date > 'yesterday'")


def test_several_files_are_read_as_one(tmp_path: Path) -> None:
    (tmp_path / "orders-1.csv").write_text("user,item\nann,1\nbob,\n", encoding="utf-8")
    (tmp_path / "orders-2.csv").write_bytes("item;user\n2;Jürgen\n1;ann\n\n;x\n".encode("cp1252"))
    pattern, listed = f"{tmp_path}/orders-*.csv", f"{tmp_path}/orders-1.csv,{tmp_path}/orders-2.csv"
    for name in (pattern, listed):
        found = read(Source(data=name, max_bad_share=1))
        assert sorted(found.ids["user"]) == ["Jürgen", "ann"]
        assert (found.report.rows, found.report.missing, found.report.blank) == (5, 2, 1)
        assert "line 3 has no item in 'orders-1.csv'; 2 rows left out, fill in the cell" in found.report.notes
        assert str(tmp_path) not in found.source.data
    assert load(pattern, LOOSE, max_bad_share=1).n_interactions == 2
    with pytest.raises(InputError, match=r"Expected a file at '.*none.csv'"):
        load(f"{tmp_path}/orders-1.csv,{tmp_path}/none.csv")
    (tmp_path / "orders-3.csv").write_text("user,item,rating\nann,1,2\n", encoding="utf-8")
    with pytest.raises(InputError, match="Expected the same kinds of columns"):
        load(pattern)


def test_the_export_of_a_shop_is_read_as_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    true = write_shop(tmp_path, seed=1, lines=3000)
    rows = f"Status != '{CANCELLED}'"
    source = Source(data=str(tmp_path / "orders.csv"), items=str(tmp_path / "products.csv"), rows=rows)
    found = read(source)
    report = found.report
    assert report.columns == {
        "user": "Kunden-E-Mail",
        "item": "Artikelnummer",
        "rating": "Menge",
        "time": "Bestelldatum",
    }
    assert report.rows == true.lines
    filtered = next(int(note.split()[0].replace(",", "")) for note in report.notes if "do not meet --rows" in note)
    assert report.missing + report.unparsable == true.broken
    assert filtered == true.cancelled
    assert len(found.rows) == true.lines - true.broken - true.cancelled
    assert found.items is not None
    assert len(found.items) == true.products
    assert f"Left out {true.duplicates} of {true.products + true.duplicates} rows" in caplog.text
    assert found.items["Preis"][0] == 1208.06
    assert found.items["Neu seit"].dtype == pl.Date
    assert not any("\ufffd" in name for name in found.items["Bezeichnung"])
    assert title_column(found.items) == "Bezeichnung"
    assert (found.items["Bestand"] == 0).sum() == true.sold_out
    data = load(source, LOOSE)
    assert data.n_users <= true.customers
    assert data.n_items <= true.sold


def test_each_fault_of_an_export_is_reported_with_line_cell_and_remedy(tmp_path: Path) -> None:
    """Cells of users, and what may hold them, stay out of the report, which goes into model folders."""
    lines = ["ann;7;1;31.01.2024;paid"] * 500
    lines[3], lines[7] = "ann", "bob;;1;31.01.2024;paid"
    lines[5] = lines[9] = "bob;7;1;31.02.2024;paid"
    lines[11], lines[13] = 'bob;"7;1;31.01.2024;paid', "bob;7;1;31.01.2024;paid;secret"
    lines[15], lines[17] = "bob;7;zwei;31.01.2024;paid", "bob;7;1;31.01.2024;cancelled"
    (tmp_path / "a.csv").write_text("\n".join(["user;item;quantity;date;status", *lines]), encoding="utf-8")
    report = read_table(tmp_path / "a.csv", Source(rows="status != 'cancelled'")).report
    assert (report.missing, report.unparsable) == (2, 5)
    assert [note for note in report.notes if " left out" in note] == [
        "line 5 has no item; 2 rows left out, fill in the cell",
        "line 7 has a time that is not a date or time in the form of the column: '31.02.2024'; 2 rows left out, "
        "correct the cell or name the form with --date-format",
        "line 13 has a double quote that is not closed, or stands inside a quoted field, where a row is one line; 1 "
        "row left out, double the quote or remove it",
        "line 15 has too many fields; 1 row left out, quote the cells that hold the separator",
        "line 17 has a rating that is not a number: 'zwei'; 1 row left out, correct the cell or name another column "
        "with --rating",
        "1 rows do not meet --rows and are left out",
    ]


def test_the_ids_of_products_may_be_in_a_column_of_any_name(tmp_path: Path) -> None:
    orders = pl.DataFrame({"user": [1, 1, 2], "item": ["a-1", "b-2", "b-2"]})
    products = pl.DataFrame({"colour": ["red", "blue"], "Kennzahl": ["b-2", "a-1"], "stock": [1, 2]})
    products.write_csv(tmp_path / "products.csv")
    data = load(orders, LOOSE, items=tmp_path / "products.csv")
    assert data.item_table["colour"].to_list() == ["blue", "red"]


def write_workbook(path: Path, rows: list[list[str | float]]) -> None:
    """Write a workbook with one sheet; the last number of a row is a date."""
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"

    def cell(value: str | float, last: bool) -> str:
        if isinstance(value, str):
            return f'<c t="inlineStr"><is><t>{value}</t></is></c>'
        return f'<c s="{int(last)}"><v>{value}</v></c>'

    lines = ("".join(cell(value, place == len(row) - 1) for place, value in enumerate(row)) for row in rows)
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types"><Default Extension="xml" '
        'ContentType="application/xml"/><Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
        f'Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets><sheet name="Orders" sheetId="1" '
        'r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
        f'Type="{office}/worksheet" Target="worksheets/sheet1.xml"/><Relationship Id="r2" Type="{office}/styles" '
        'Target="styles.xml"/></Relationships>',
        "xl/styles.xml": f'<styleSheet xmlns="{main}"><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/></cellXfs>'
        "</styleSheet>",
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{main}"><sheetData>'
        + "".join(f"<row>{line}</row>" for line in lines)
        + "</sheetData></worksheet>",
    }
    with zipfile.ZipFile(path, "w") as book:
        for name, text in parts.items():
            book.writestr(name, f'<?xml version="1.0" encoding="UTF-8"?>{text}')


def test_a_workbook_is_a_table(tmp_path: Path) -> None:
    pytest.importorskip("fastexcel")
    path = tmp_path / "orders.xlsx"
    write_workbook(path, [["Kunde", "Artikelnummer", "Datum"], ["Jürgen", 318, 43831], ["ann", 7, 43832.5]])
    found = read_table(path)
    assert found.rows.rows() == [("Jürgen", 318, seconds(2020, 1, 1)), ("ann", 7, seconds(2020, 1, 2, 12))]
    write_workbook(path, [["Artikelnummer", "Bezeichnung", "Preis", "Neu"], [318, "Käse", 12.5, 43831]])
    assert read_items(path, "item").row(0)[:3] == (318, "Käse", 12.5)


@pytest.mark.parametrize("content", [b"user,item\n1,2\n", b"PK\x03\x04 not a workbook"])
def test_what_is_no_workbook_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("fastexcel")
    (tmp_path / "orders.xlsx").write_bytes(content)
    with pytest.raises(InputError, match="Expected an Excel workbook at "):
        read_table(tmp_path / "orders.xlsx")


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recfusion.core.extras.find_spec", lambda _: None)
    write_workbook(tmp_path / "orders.xlsx", [["user", "item"], [1, 2]])
    with pytest.raises(InputError, match=r"pip install 'recfusion\[xlsx\]'"):
        read_table(tmp_path / "orders.xlsx")
