"""What the protocol card says of assumptions: sentences with numbers that can be counted by hand."""

from pathlib import Path

import polars as pl
import pytest

from recfusion.data.load import load
from recfusion.data.settings import Preparation

ALL = Preparation(min_items_per_user=1, min_users_per_item=1)


def notes(frame: pl.DataFrame, preparation: Preparation = ALL) -> str:
    return "\n".join(load(frame, preparation).report.notes)


def ratings(values: list[float]) -> pl.DataFrame:
    return pl.DataFrame(
        {"user": list(range(len(values))), "item": [1] * len(values), "rating": [float(value) for value in values]}
    )


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            [5, 4.5, 4, 0.5],
            "ratings from 0.5 to 5 are taken for stars, of which 4 and more count (25% of the rows are ",
        ),
        ([1, 1, 1, 5], "75% of them are 1, as in quantities: --rating none leaves them out"),
        ([1, 5, 10], "ratings from 1 to 10 are not taken for stars, so every row counts: --min-rating sets"),
        ([0, 7, 8], "ratings from 0 to 8 are taken for counts or flags, of which those above 0 count"),
        ([0, 1, 1], "ratings from 0 to 1 are taken for counts or flags"),
    ],
)
def test_a_guessed_scale_is_said(values: list[float], words: str) -> None:
    assert words in notes(ratings(values))


def test_what_is_no_guess_is_not_doubted() -> None:
    assert "quantities" not in notes(ratings([5, 4, 4, 2, 1]))
    asked = notes(ratings([5, 4, 2]), Preparation(min_rating=4, min_items_per_user=1, min_users_per_item=1))
    assert "taken for" not in asked
    assert "33% of the rows are rated below 4 and dropped: --min-rating none keeps them" in asked


def test_many_rare_users_or_items_are_said() -> None:
    users = [1, 1, 1, 2, 3, 4]
    found = notes(
        pl.DataFrame({"user": users, "item": [1, 2, 3, 1, 1, 1]}),
        Preparation(min_items_per_user=2, min_users_per_item=0),
    )
    assert (
        "75% of the users (50% of the rows) had fewer than 2 items and were dropped: --min-items-per-user 1 " in found
    )
    found = notes(
        pl.DataFrame({"user": users, "item": [1, 2, 3, 1, 1, 1]}),
        Preparation(min_items_per_user=0, min_users_per_item=2),
    )
    assert (
        "67% of the items (33% of the rows) had fewer than 2 users and were dropped: --min-users-per-item 1 " in found
    )
    assert "the users (" not in found


def test_repeated_rows_are_said() -> None:
    assert "50% of the rows repeat a user and an item" in notes(pl.DataFrame({"user": [1, 1], "item": [2, 2]}))


def test_little_is_dropped_without_a_note() -> None:
    frame = pl.DataFrame({"user": [1] * 10 + [2], "item": [*range(10), 1]})
    assert "dropped" not in notes(frame.head(10))


def test_columns_that_may_hold_ratings_and_are_not_used_are_named(tmp_path: Path) -> None:
    path = tmp_path / "shop.csv"
    path.write_text("user,item,quantity,play_count\n1,2,3,4\n")
    assert "may hold ratings or counts: quantity, play_count (--rating" in "\n".join(load(path, ALL).report.notes)
    assert "may hold" not in "\n".join(
        load(path, ALL.model_copy(update={"min_rating": None}), rating="quantity").report.notes
    )
    path.write_text("user,item,rating,score\n1,2,3,4\n")
    assert "may hold ratings or counts: score (" in "\n".join(
        load(path, ALL.model_copy(update={"min_rating": 1})).report.notes
    )
