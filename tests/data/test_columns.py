"""Guesses about small tables, each of which a person would make too."""

import gzip
from pathlib import Path

import pytest

from recfusion.core.errors import InputError
from recfusion.data.reading.columns import guess_columns, sniff_text

ALL: dict[str, str | None] = {"user": None, "item": None, "rating": None, "time": None}


def write(folder: Path, content: str | bytes, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("separator", [",", "\t", ";", "|", "::", " "])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_separator_and_header_are_seen(tmp_path: Path, separator: str, end: str, mark: str) -> None:
    lines = [["user", "item", "rating"], ["ann", "lamp", "5"], ["bob", "book", "4"]]
    layout = sniff_text(write(tmp_path, mark + end.join(separator.join(line) for line in lines) + end), None)
    assert (layout.separator, layout.header, layout.skip_lines) == (separator, True, 1)
    assert layout.columns == ("user", "item", "rating")


@pytest.mark.parametrize(
    ("content", "header"),
    [
        ("1,2,3\n4,5,6\n", False),
        ("ann,lamp\nbob,book\n", False),
        ("ann,034545104X\nbob,055061224\n", False),
        ("user_000001,2009-05-04T23:08:57Z,song\nuser_000002,2009-05-04T23:08:57Z,song\n", False),
        ("a,b\n1,2\n3,4\n", True),
        ("id,title\n1,Lamp\n,Book\n", True),
        ("Kunde,Artikel\nann,1\nbob,2\n", True),
        ("user,item\nann,lamp\nbob,book\n", True),
        ("user,item\n", True),
    ],
)
def test_a_header_is_told_from_a_row(tmp_path: Path, content: str, header: bool) -> None:
    layout = sniff_text(write(tmp_path, content), None)
    assert layout.header is header
    assert header or layout.columns[:2] == ("column 1", "column 2")


def test_a_header_may_follow_blank_lines(tmp_path: Path) -> None:
    layout = sniff_text(write(tmp_path, '\n\n"user","item, id"\nann,1\n'), None)
    assert layout.columns == ("user", "item, id")
    assert layout.skip_lines == 3


def test_titles_above_the_header_may_be_padded_with_separators(tmp_path: Path) -> None:
    rows = "Order No.;Customer;SKU\n#1;ann;Tea\n#2;bob;Mug\n"
    layout = sniff_text(write(tmp_path, f"Shop export;;\nMade 2025-11-01;;\n\n{rows}"), None)
    assert (layout.columns, layout.header, layout.skip_lines) == (("Order No.", "Customer", "SKU"), True, 4)
    for kept in ("ann;;\nbob;Tea;Mug\nbob;Mug;Tea\n", "Tea;;\nMug;;\n"):  # rows, not titles
        assert sniff_text(write(tmp_path, kept), None).skip_lines == 0


def test_separators_inside_quotes_do_not_count(tmp_path: Path) -> None:
    layout = sniff_text(write(tmp_path, 'user;item\nann;"a;b;c"\nbob;"d,e,f,g"\n'), None)
    assert layout.separator == ";"


def test_columns_without_a_name_get_one(tmp_path: Path) -> None:
    assert sniff_text(write(tmp_path, ",user,item,\n0,ann,1,\n"), None).columns == (
        "column 1",
        "user",
        "item",
        "column 4",
    )


def test_a_packed_file_is_seen_whatever_its_name(tmp_path: Path) -> None:
    assert sniff_text(write(tmp_path, gzip.compress(b"user,item\nann,1\n", mtime=0)), None).columns == ("user", "item")


@pytest.mark.parametrize(("given", "meant"), [(";", ";"), ("\\t", "\t"), ("::", "::"), ("é", "é")])
def test_a_separator_that_is_given_holds(tmp_path: Path, given: str, meant: str) -> None:
    assert sniff_text(write(tmp_path, "user,item\nann,1\n"), given).separator == meant


@pytest.mark.parametrize("given", ["", '"', ':"', "\n", "\0"])
def test_a_separator_has_no_quotes_and_no_line_ends(tmp_path: Path, given: str) -> None:
    with pytest.raises(InputError, match="Expected a separator"):
        sniff_text(write(tmp_path, "user,item\nann,1\n"), given)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty file"),
        (b"\n  \n\n", "empty file"),
        (b"\xef\xbb\xbf", "empty file"),
        (b"\x89PNG\0\0\0\r\n", "binary data"),
        (b"user,item\rann,1\r", "carriage returns"),
        (b"user,item,item\nann,1,2\n", "'item' twice"),
        (gzip.compress(b"user,item\n" * 1000, mtime=0)[:30], "damaged or incomplete"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    with pytest.raises(InputError, match=words):
        sniff_text(write(tmp_path, content), None)


@pytest.mark.parametrize("separator", [" ", ",", "\t"])
def test_lists_of_items_are_told_from_a_table(tmp_path: Path, separator: str) -> None:
    lines = ["0 0 1 2 3 4", "1 7 8 9", "2 1 5 9 11 12 13", "3 4", "4 8 9 21"]
    with pytest.raises(InputError, match=r"looks like a user and a list of items on each line.*one line per user and"):
        sniff_text(write(tmp_path, "\n".join(lines).replace(" ", separator)), None)
    sniff_text(write(tmp_path, "1,2,3\n1,3\n2,3,4\n2,4,5\n"), None)  # some lines lack a field


def test_wide_headers_are_read_whole_and_named_in_part(tmp_path: Path) -> None:
    names = [f"{'x' * 2000}{n}" for n in range(1000)]
    path = write(tmp_path, ",".join([*names, "user", "item"]) + "\n" + ",".join(["1"] * 1002) + "\n")
    assert sniff_text(path, None).columns[-2:] == ("user", "item")
    with pytest.raises(InputError, match="and 980 more") as error:
        guess_columns(names, ALL, where="a file", by_position=False)
    assert len(str(error.value)) < 2000


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (
            "userId,movieId,rating,timestamp",
            {"user": "userId", "item": "movieId", "rating": "rating", "time": "timestamp"},
        ),
        ("reviewerID,asin,overall", {"user": "reviewerID", "item": "asin", "rating": "overall"}),
        ("User-ID,ISBN,Book-Rating", {"user": "User-ID", "item": "ISBN", "rating": "Book-Rating"}),
        ("user_name,movie_title,user_id,movie_id", {"user": "user_id", "item": "movie_id"}),
        ("uid,iid,r", {"user": "uid", "item": "iid", "rating": "r"}),
    ],
)
def test_columns_are_known_by_their_names(columns: str, expected: dict[str, str]) -> None:
    assert guess_columns(columns.split(","), ALL, where="a file", by_position=False) == expected


@pytest.mark.parametrize(
    ("columns", "user", "item"),
    [
        ("Beleg-Nr.;E-Mail;Artikel;Art.-Nr.;Menge", "E-Mail", "Art.-Nr."),
        ("Kunde;Kundennr;Produkt;Artikelnummer", "Kundennr", "Artikelnummer"),
        ("Customer;Customer No;Product;Product code", "Customer No", "Product code"),
        ("user;user_id;Artikel;Artikel-Nr", "user_id", "Artikel-Nr"),
        ("client;article;Réf. article", "client", "Réf. article"),
        ("order number;customer;item", "customer", "item"),
        ("customer_id;postcode;sku;product name", "customer_id", "sku"),
    ],
)
def test_a_column_of_numbers_has_the_ids_beside_one_of_names(columns: str, user: str, item: str) -> None:
    asked = dict.fromkeys(("user", "item"))
    assert guess_columns(columns.split(";"), asked, where="a file", by_position=False) == {"user": user, "item": item}


def test_without_a_header_the_order_is_user_item_rating_time() -> None:
    found = guess_columns(["column 1", "column 2", "column 3"], ALL, where="a file", by_position=True)
    assert found == {"user": "column 1", "item": "column 2", "rating": "column 3"}


def test_a_named_column_comes_before_any_guess() -> None:
    found = guess_columns(["user", "item", "friend"], ALL | {"user": "friend"}, where="a file", by_position=False)
    assert found == {"user": "friend", "item": "item"}


@pytest.mark.parametrize("by_position", [False, True])
def test_a_rating_or_time_can_be_left_out(by_position: bool) -> None:
    asked = ALL | {"rating": "none", "time": "none"}
    found = guess_columns(["user", "item", "score", "date"], asked, where="a file", by_position=by_position)
    assert found == {"user": "user", "item": "item"}


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"user": "nobody"}, "Expected a column 'nobody'"),
        ({"user": "a", "item": "a"}, "a separate column for --item"),
        ({"user": "a"}, "a column for the item in a file, found 2 columns: a, b"),
    ],
)
def test_columns_that_cannot_be_told_are_an_error(asked: dict[str, str | None], words: str) -> None:
    with pytest.raises(InputError, match=words):
        guess_columns(["a", "b"], ALL | asked, where="a file", by_position=False)


@pytest.mark.parametrize(
    ("columns", "user"),
    [
        (["Email", "Product"], "Email"),
        (["e-mail", "sku"], "e-mail"),
        (["mail", "buyer", "sku"], "buyer"),
        (["email", "customer_id", "sku"], "customer_id"),
    ],
)
def test_addresses_are_users_where_nothing_else_is(columns: list[str], user: str) -> None:
    chosen = guess_columns(columns, dict.fromkeys(("user", "item")), where="a table", by_position=False)
    assert chosen["user"] == user
