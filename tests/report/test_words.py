"""The advice in words, and how numbers are written."""

import pytest
from stored import compared, ordinary, result, single

from recfusion.experiments.comparison import Comparison
from recfusion.report.formats import points
from recfusion.report.sections import base_tests, meaning, seconds


def test_the_advice_says_how_far_the_best_is_ahead_of_the_next() -> None:
    assert compared({"mine": 0.448, "ease": 0.428, "popularity": 0.221, "third": 0.43}).advice() == (
        "Use mine: its ndcg@100 is 44.80, 1.80 points (1.80 to 1.80) more than the next, third, and no other model "
        "comes close (p < 0.05 with Holm's correction)."
    )


def test_what_cannot_be_told_apart_is_named() -> None:
    assert "the highest, but near does not differ significantly" in ordinary().advice()
    assert "the highest, but b does not differ significantly" in compared({"a": 0.3, "b": 0.3}).advice()


def test_a_model_alone_and_one_that_shares_no_split_are_plainly_said_to_be_so() -> None:
    alone = compared({"a": 0.042}).advice()
    assert alone == "Use a: its ndcg@100 is 4.20, and there is no other model to compare it with."
    apart = Comparison.of([result("a", 0.3), result("b", 0.2, seed=1)])
    assert apart.advice().endswith("no other model to compare it with. It shares no split with b.")
    three = Comparison.of([result("a", 0.3), result("c", 0.1), result("b", 0.2, seed=1)])
    assert three.advice().endswith("correction). It shares no split with b.")


def test_a_single_test_user_tells_nothing() -> None:
    assert "the highest, but popularity, slim do not differ significantly" in single().advice()


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
    assert meaning("hit_rate@7") == "share of users with a hit in the first 7"
