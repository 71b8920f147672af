"""The headline in words, and how numbers are written."""

import pytest
from stored import compared, ordinary, result, single

from recfusion.experiments.comparison import Comparison
from recfusion.report.formats import points
from recfusion.report.sections import base_tests, headline, listed, meaning, seconds


def said(comparison: Comparison) -> str:
    return "".join(headline(comparison)).replace("\u00a0", " ")


def test_the_headline_sets_the_best_beside_ease_and_popularity() -> None:
    found = compared({"mine": 0.448, "ease": 0.428, "popularity": 0.221, "third": 0.43})
    assert said(found) == (
        "mine reaches 44.8 ndcg@100 on 1 split: 2.0 points above ease (95 % interval 2.0 to 2.0) and "
        "22.7 above popularity (22.7 to 22.7). Its lead over all 3 others is significant."
    )


def test_where_ease_is_the_best_or_missing_the_next_one_is_named() -> None:
    assert "1.0 points above slim (95 % interval 1.0 to 1.0)." in said(compared({"ease": 0.42, "slim": 0.41}))
    assert "1.0 points above b (" in said(compared({"a": 0.42, "b": 0.41, "c": 0.1}))
    assert said(compared({"a": 0.42, "b": 0.41})).endswith("The difference is significant.")


def test_what_cannot_be_told_apart_is_named() -> None:
    assert said(ordinary()).endswith("The difference to near is not significant.")


def test_equal_models_are_not_told_apart() -> None:
    assert "0.00 points above b (95 % interval 0.00 to 0.00). The difference to b is not" in said(
        compared({"a": 0.3, "b": 0.3})
    )


def test_a_model_alone_and_one_that_shares_no_split_are_plainly_said_to_be_so() -> None:
    assert said(compared({"a": 0.042})) == "a reaches 4.20 ndcg@100 on 1 split. No other model was compared with it."
    apart = Comparison.of([result("a", 0.3), result("b", 0.2, seed=1)])
    assert said(apart).endswith("10.0 points above b, which shares no split with it. The difference was not tested.")
    three = Comparison.of([result("a", 0.3), result("c", 0.1), result("b", 0.2, seed=1)])
    assert said(three).endswith("Its lead over all others but b (not tested) is significant.")


def test_a_single_test_user_is_said_to_tell_nothing() -> None:
    assert said(single()) == (
        "ease reaches 35.0 ndcg@100 on 2 splits: 10.0 points above popularity. "
        "With a single test user, significance cannot be tested."
    )


def test_models_are_compared_with_the_reference_else_with_the_best() -> None:
    base, tests = base_tests(ordinary())
    assert (base, set(tests)) == ("ease", {"slim", "near"})
    assert tests["slim"].of("slim")[0] == pytest.approx(-0.039, abs=1e-6)
    base, tests = base_tests(compared({"a": 0.2, "b": 0.3}))
    assert base == "b"
    assert tests["a"].of("a")[0] == pytest.approx(-0.1, abs=1e-6)


def test_numbers_are_written_for_people() -> None:
    assert (points(-0.1234, 1), points(0.0203, signed=True), points(-0.2, signed=True)) == ("−12.3", "+2.03", "−20.00")
    assert (seconds(0.004), seconds(3.456), seconds(12_345.6)) == ("<0.01", "3.46", "12,346")
    assert (listed(["a"]), listed(["a", "b", "c"])) == ("a", "a, b and c")
    assert meaning("hit_rate@7") == "share of users with a hit in the first 7"
