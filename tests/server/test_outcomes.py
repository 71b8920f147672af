"""Click-through, conversion and revenue of the served models: hand-made counts, and intervals under daily checks."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from recfusion.server import outcomes
from recfusion.server.event_store import Event, Store
from recfusion.server.loaded_models import model_tag
from recfusion.server.outcomes import compare_outcomes


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "events.sqlite")
    yield store
    store.close()


def list_id(model: str, bucket: int, number: int) -> str:
    return f"{model_tag(model)}{bucket:02x}{number:024x}"


def test_a_list_counts_once_and_returns_are_subtracted_from_the_revenue(store: Store) -> None:
    first, second, third = (list_id("a", 1, number) for number in range(3))
    with store.writing():
        store.add_shown({(1, "a", "", 1): 8, (1, "a", "", 2): 2}, {})
        store.add([Event("u", "i", "click", recommendation=first)] * 3)
        store.add([Event("u", "i", "purchase", recommendation=first, quantity=3, price=10)])
        store.add([Event("u", "j", "have", recommendation=first, price=5)])
        store.add([Event("u", "i", "return", recommendation=first, quantity=1, price=10)])
        store.add([Event("u", "i", "skip", recommendation=second), Event("u", "i", "view", recommendation=third)])
        store.add([Event("u", "i", "purchase", price=1000)])  # no list led to it
    found = {one.measure: one for one in compare_outcomes(store)[0]}
    assert [one.lists for one in found.values()] == [10, 10, 10]
    assert {name: one.total for name, one in found.items()} == {"click-through": 2, "conversion": 1, "revenue": 25}
    assert found["revenue"].rate == 2.5


def test_intervals_cover_the_truth_and_have_the_width_of_their_formula(store: Store) -> None:
    """Two models with rates of .10 and .20, 5,000 lists each."""
    rng = np.random.default_rng(0)
    shown: dict[tuple[int, str, str, int], int] = {}
    events = []
    for model, rate in (("a", 0.1), ("b", 0.2)):
        for number, bucket in enumerate(rng.integers(0, 256, 5000).tolist()):
            shown[1, model, "", bucket] = shown.get((1, model, "", bucket), 0) + 1
            if rng.random() < rate:
                events.append(Event("u", "i", "click", recommendation=list_id(model, bucket, number)))
    with store.writing():
        store.add_shown(shown, {})
        store.add(events)
    (a, b, *_), (difference, *_) = compare_outcomes(store)
    assert a.ci95[0] < 0.1 < a.ci95[1] < b.ci95[0] < 0.2 < b.ci95[1]
    assert (difference.name, difference.than) == ("b", "a")
    assert difference.ci95[0] < 0.1 < difference.ci95[1]
    error = np.hypot(np.sqrt(0.1 * 0.9 / 5000), np.sqrt(0.2 * 0.8 / 5000))
    assert (difference.ci95[1] - difference.ci95[0]) / 2 == pytest.approx(3.03 * error, rel=0.1)


def test_no_click_in_a_few_lists_proves_nothing(store: Store) -> None:
    with store.writing():
        store.add_shown({(1, "a", "", 1): 5, (1, "b", "", 2): 5}, {})
        store.add([Event("u", "i", "click", recommendation=list_id("a", 1, number)) for number in range(5)])
    (a, b, *_), _ = compare_outcomes(store)
    assert (a.rate, b.rate) == (1.0, 0.0)
    assert b.ci95[1] > 0.5


def test_two_equal_models_seldom_differ_however_often_one_looks() -> None:
    """An A/A test over 100 days: users differ in their rates, come back, and the report is read every day.

    A usual 95 % interval excludes zero on some day in a third of the experiments; these in at most 5 %.
    """
    rng = np.random.default_rng(1)
    wrong = usual = 0
    for _ in range(200):
        lists, clicks = np.zeros((2, 256)), np.zeros((2, 256))
        rates = rng.beta(1, 9, (2, 256))  # of the users of each bucket
        excluded = usually = False
        for _day in range(100):
            new = rng.poisson(1.0, (2, 256))
            lists += new
            clicks += rng.binomial(new, rates)
            errors = [outcomes._standard_error(lists[m], clicks[m], is_share=True) for m in (0, 1)]
            value, error = (
                clicks[1].sum() / lists[1].sum() - clicks[0].sum() / lists[0].sum(),
                np.hypot(errors[0], errors[1]),
            )
            low, high = outcomes._interval(value, float(error), int(lists.sum()))
            excluded |= not low <= 0 <= high
            usually |= abs(value) > 1.96 * error
        wrong += excluded
        usual += usually
    assert wrong <= 10
    assert usual > 30
