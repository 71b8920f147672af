"""Search by name: typos, swapped letters and word beginnings."""

import itertools

import numpy as np
import pytest

from recfusion.inference.name_search import NameSearch, typos

FILMS = {
    "Matilda (1996)": 6,
    "Matrix, The (1999)": 158,
    "Matrix Reloaded, The (2003)": 22,
    "Star Trek II: The Wrath of Khan (1982)": 38,
    "Star Wars: Episode IV - A New Hope (1977)": 193,
    "Amélie (2001)": 70,
    "Terminator, The (1984)": 104,
    "Wrestler, The (2008)": 20,
}


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("matirx", "Matrix, The (1999)"),
        ("star wras", "Star Wars: Episode IV - A New Hope (1977)"),
        ("satr wars", "Star Wars: Episode IV - A New Hope (1977)"),
        ("matir", "Matrix, The (1999)"),  # while it is typed
        ("terminaotr", "Terminator, The (1984)"),
        ("treminatro", "Terminator, The (1984)"),  # two typos in a long word
        ("amelei", "Amélie (2001)"),
        ("matil", "Matilda (1996)"),
        ("wrath", "Star Trek II: The Wrath of Khan (1982)"),
        ("matrix reloadde", "Matrix Reloaded, The (2003)"),
    ],
)
def test_a_typo_finds_the_title(query: str, first: str) -> None:
    search = NameSearch(list(FILMS), np.array(list(FILMS.values())))
    found = [list(FILMS)[place] for place in search.find(query, 3)]
    assert found[0] == first


def test_a_text_that_is_no_title_finds_nothing() -> None:
    search = NameSearch(list(FILMS), np.array(list(FILMS.values())))
    for query in ("qwertzuiop", "zzzz", "x" * 200, "🎬", "%"):
        assert len(search.find(query, 3)) == 0
    assert len(search.find(" ", 3)) == 3  # the most popular ones
    assert len(NameSearch([], np.array([], int)).find("matrix", 3)) == 0


def distance(a: str, b: str) -> int:
    """The number of typos by the recursive definition."""
    if not a or not b:
        return len(a) + len(b)
    ways = [distance(a[:-1], b) + 1, distance(a, b[:-1]) + 1, distance(a[:-1], b[:-1]) + (a[-1] != b[-1])]
    if len(a) > 1 and len(b) > 1 and a[-2:] == b[-2:][::-1]:
        ways.append(distance(a[:-2], b[:-2]) + 1)
    return min(ways)


def test_typos_are_counted_as_the_definition_says() -> None:
    words = ["".join(word) for n in range(1, 5) for word in itertools.product("abc", repeat=n)]
    for typed in ("abc", "acb", "baca", "cc"):
        whole, start = typos(typed, np.array(words))
        for place, word in enumerate(words):
            assert whole[place] == distance(typed, word)
            assert start[place] == min(distance(typed, word[:n]) for n in range(len(word) + 1))
