"""What the protocol card says of assumptions: sentences with numbers that can be counted by hand."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from recfusion.core.errors import InputError
from recfusion.data.load import load
from recfusion.data.options import Preparation
from recfusion.data.rating_scale import changed_scale

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
            "ratings from 0.5 to 5 are taken for stars; 4 and more count (25% of the rows are ",
        ),
        ([1, 1, 1, 5], "75% of them are 1, as in quantities: --rating none ignores them"),
        ([1, 8, 10], "ratings from 1 to 10 are taken for ratings out of ten, as the name 'rating' says; 8 and"),
        ([1, 5, 100], "ratings from 1 to 100 are not taken for stars, so every row counts: --min-rating sets"),
        ([*[3] * 19, 80], "95.0% of the ratings are at most 5 and the highest is 80: two scales may be mixed"),
        ([3, 4, 60, 80], "50.0% of the ratings are at most 5 and the highest is 80: two scales may be mixed"),
        ([0, 7, 8], "ratings from 0 to 8 are taken for counts or flags, and those above 0 count"),
        ([0, 1, 1], "ratings from 0 to 1 are taken for counts or flags"),
    ],
)
def test_a_guessed_scale_is_said(values: list[float], words: str) -> None:
    assert words in notes(ratings(values))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            [5, 4, 7],
            "Ratings from 4 to 7 are taken for ratings out of ten, as the name 'rating' says; 8 and more count",
        ),
        ([1, 2, 3], r"Ratings from 1 to 3 are taken for stars; 4 and more count \(100% of the rows are dropped\)"),
    ],
)
def test_a_guessed_scale_that_leaves_nothing_is_said(values: list[float], words: str) -> None:
    with pytest.raises(InputError, match=rf"No interactions of 'frame' are left .*\. {words}"):
        load(ratings(values), ALL)
    with pytest.raises(InputError, match=r"users per item\. 100% of the rows are rated below 8") as asked:
        load(ratings(values), ALL.model_copy(update={"min_rating": 8}))
    assert "taken for" not in str(asked.value)  # nothing was guessed


def test_quantities_are_counts_by_their_name_and_not_stars() -> None:
    shop = pl.DataFrame({"user": [1, 1, 2], "item": [7, 8, 7], "quantity": [1, 2, 5]})
    found = load(shop, ALL)
    assert found.matrix.toarray().tolist() == [[1, 1], [1, 0]]
    assert "numbers from 1 to 5 in 'quantity' are taken for counts, as the name says" in "\n".join(found.report.notes)


def test_returns_cancel_what_was_bought_and_are_counted() -> None:
    shop = pl.DataFrame(
        {
            "user": [1, 1, 1, 2, 2, 3],
            "item": [7, 7, 7, 7, 8, 8],
            "quantity": [3, 2, -1, 6, 4, 1],
            "time": [10, 20, 30, 5, 6, 7],
        }
    )
    more = pl.DataFrame({"user": [2, 3], "item": [7, 7], "quantity": [-6, -2], "time": [8, 9]})
    found = load(pl.concat([shop, more]), ALL)
    assert found.matrix.toarray().tolist() == [[1, 0], [0, 1], [0, 1]]
    assert found.grades is not None
    assert found.grades.tolist() == [4, 4, 1]
    assert found.times is not None
    assert found.times.tolist() == [20, 6, 7]  # a return does not make a purchase younger
    assert found.disliked is not None
    assert found.disliked.toarray().tolist() == [[0, 0], [0, 0], [-2, 0]]
    assert found.disliked.nnz == 2  # given back in full: 0 is stored
    assert "3 rows have a number below 0 and count as returns" in "\n".join(found.report.notes)


def test_ratings_below_0_are_no_returns() -> None:
    found = "\n".join(load(ratings([-1, 7, 10]), ALL).report.notes)
    assert "returns" not in found
    assert "taken for counts or flags" in found


def test_rows_of_the_future_are_said() -> None:
    frame = pl.DataFrame({"user": [1, 2], "item": [1, 1], "time": [4_000_000_000, 1_000_000_000]})
    assert "times in the future, which come last in their histories: 1 of the rows" in notes(frame)


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
    assert "may hold ratings or counts: play_count (--rating" in "\n".join(load(path, ALL).report.notes)
    assert "may hold" not in "\n".join(
        load(path, ALL.model_copy(update={"min_rating": None}), rating="quantity").report.notes
    )
    path.write_text("user,item,rating,score\n1,2,3,4\n")
    assert "may hold ratings or counts: score (" in "\n".join(
        load(path, ALL.model_copy(update={"min_rating": 1})).report.notes
    )


def test_a_scale_that_changes_midway_is_noted() -> None:
    rng = np.random.default_rng(0)
    times, stars = np.arange(400, dtype=np.int64) * 86_400, rng.integers(1, 6, 400).astype(np.float32)
    assert changed_scale(stars, times) == []
    assert changed_scale(stars, None) == changed_scale(stars[:50], times[:50]) == []
    later = np.where(np.arange(400) < 150, stars, 2 * stars).astype(np.float32)
    (note,) = changed_scale(later, times)
    assert note.startswith("ratings up to 1970-0")
    assert "are at most 5 (38% of them), others up to 10: the scale may have changed" in note
    (note,) = changed_scale(later[::-1].copy(), times)
    assert note.startswith("ratings from 1970-0")
