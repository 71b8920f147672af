"""Conditions on the item table: what they mean by hand, and what they refuse."""

import contextlib

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recfusion.core.errors import InputError
from recfusion.data.conditions import LONGEST_CONDITION, matching

TABLE = pl.DataFrame(
    {
        "item": ["a", "b", "c", "d"],
        "stock": [0, 3, 5, None],
        "price": [1.5, float("nan"), 20.0, 7.25],
        "kind": ["Tea", "tea|Gift", None, 'It\'s "new"'],
        "new": [True, False, None, True],
        "unit price": [1, 2, 3, 4],
    }
)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("stock > 0", "bc"),
        ("stock >= 3 and stock < 5", "b"),
        ("stock == 0 or stock == 5", "ac"),
        ("stock = 0 or stock <> 0", "abc"),  # a missing value meets neither
        ("not stock > 0", "ad"),  # the test is false for a missing value, its opposite true
        ("stock is missing", "d"),
        ("stock is not missing and not (stock in (0, 3))", "c"),
        ("stock not in (0, 3)", "c"),
        ("price is missing", "b"),
        ("price > 1e1", "c"),
        ("price != 20", "ad"),
        ("kind == 'Tea'", "a"),
        ("kind contains 'TEA'", "ab"),
        ("kind not contains 'tea'", "d"),
        ("kind has 'tea'", "b"),  # whole and as it is written
        ("kind has 'Gift' or kind has ' Tea '", "ab"),
        ("kind has 'Tea|Gift'", ""),
        ("kind not has 'Gift'", "ad"),
        ("kind == 'It''s \"new\"'", "d"),
        ('kind contains "IT\'S"', "d"),
        ("kind in ('Tea', 'x')", "a"),
        ("kind > 'U'", "b"),
        ("new == true", "ad"),
        ("new != TRUE", "b"),
        ("`unit price` <= 2", "ab"),
        ("stock > 0 or stock == 0 and price < 0", "bc"),  # `and` binds closer
        ("(stock > 0 or stock == 0) and price < 2", "a"),
        ("stock > -1 and stock < +4", "ab"),
    ],
)
def test_a_condition_means_what_it_says(condition: str, expected: str) -> None:
    assert "".join(TABLE["item"].filter(pl.Series(matching(TABLE, condition)))) == expected


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("", "a column at place 1"),
        ("stock >", "a number, a text in quotes, true or false at place 8 of the condition, got its end"),
        ("stock 3", "a comparison"),
        ("stock > 0 stock", "'and', 'or' or the end at place 11"),
        ("stock > 0 and", "a column at place 14"),
        ("'in stock' > 0", "a column, in backquotes if its name has spaces, at place 1"),
        ("(stock > 0", "')' at place 11"),
        ("stock > 'x'", "holds numbers and cannot be compared with 'x'"),
        ("kind > 3", "holds texts"),
        ("new > true", "Expected == or !="),
        ("new == 1", "holds true or false"),
        ("stock contains '3'", "a column of texts before 'contains'"),
        ("new has 'x'", "a column of texts before 'has'"),
        ("nothing == 1", "choose one of item, stock, price, kind, new, `unit price`"),
        ("stock in ()", "a number"),
        ("stock is 3", "'missing'"),
        ("stock not 3", "'in', 'contains' or 'has'"),
        ("stock > 3; drop", "at place 10"),
        ("VK-Preis < 20", "got '-Preis < 20': put names with spaces or other signs in backquotes"),
        ("stock > 1.2.3", "at place 9"),
        ("stock > 99999999999999999999", "below 2^63"),
        ("__class__ == 1", "Unknown column"),
        ("stock.__class__ == 1", "a comparison"),
        ("read_csv('x') == 1", "Unknown column"),
        ("stock > stock", "a number"),
        ("kind == 'open", "at place 9"),
        ("\u202estock > 0", "at place 1"),
    ],
)
def test_what_is_no_condition_is_refused_with_its_place(condition: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        matching(TABLE, condition)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    "condition",
    [
        " or ".join(["stock > 0"] * 10_000),
        "(" * 900 + "stock > 0" + ")" * 900,
        "not " * 400 + "stock > 0",
        "stock in (" + ",".join("1" for _ in range(100_000)) + ")",
    ],
)
def test_what_is_too_long_or_too_deep_is_refused(condition: str) -> None:
    with pytest.raises(InputError, match="at most"):
        matching(TABLE, condition)


def test_the_longest_condition_is_evaluated() -> None:
    condition = " or ".join(["stock>0"] * (LONGEST_CONDITION // 11))
    assert matching(TABLE, condition).tolist() == [False, True, True, False]


@given(st.text(alphabet="stock pric()<>=!'\"`,.0123456789andoti\u202e\u0000|;*", max_size=60))
def test_any_text_is_a_condition_or_one_sentence(condition: str) -> None:
    with contextlib.suppress(InputError):
        assert matching(TABLE, condition).dtype == np.bool_


@pytest.mark.parametrize(
    ("condition", "met"), [("price in (1, 2)", [True, False]), ("stock in (1, 2.5)", [True, False])]
)
def test_whole_numbers_and_others_meet_in_a_list(condition: str, met: list[bool]) -> None:
    table = pl.DataFrame({"price": [1.0, 2.5], "stock": [1, 2]})
    assert matching(table, condition).tolist() == met
