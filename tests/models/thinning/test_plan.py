"""The mixture's parts by the size of the data."""

import pytest

from conftest import random_csr
from recfusion.models.base import Shape
from recfusion.models.thinning import plan as plans
from recfusion.models.thinning.mixture import Thinning
from recfusion.models.thinning.plan import plan

USUAL = ("thinning-pairs", "ials", "infinite-ae", "thinning-deep")


@pytest.mark.parametrize(
    ("items", "parts"),
    [
        (20_000, USUAL),
        (20_001, ("thinning-local", "low-pass", "ials", "infinite-ae", "thinning-deep")),
        (200_000, ("thinning-local", "ials", "infinite-ae")),
    ],
)
def test_parts_follow_from_counts_alone(items: int, parts: tuple[str, ...]) -> None:
    for users in (100, 10**7):
        found = plan(USUAL, Shape(users, items, 5 * users))
        assert found.parts == parts
        assert bool(found.reasons) == (parts != USUAL)


def test_two_exact_members_become_one_local_part_and_never_none() -> None:
    large = Shape(10, 10**6, 50)
    assert plan(("thinning-linear", "thinning-pairs"), large).parts == ("thinning-local",)
    assert plan(("thinning-deep",), large).parts == ("thinning-local",)
    assert plan(("thinning-pairs", "ials", "thinning-local"), large).parts == ("thinning-local", "ials")


def test_a_mixture_of_many_items_is_fitted_by_its_plan_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(plans, "EXACT_ITEMS", 10)
    monkeypatch.setattr(plans, "DENSE_ITEMS", 15)
    model = Thinning(tune_trials=0).fit(random_csr(60, 20, 0.2, seed=0), rng=0)
    assert set(model.parts_) == {"thinning-local", "ials"}
    assert "With 20 items, thinning-local replaces thinning-pairs" in caplog.text
    assert "thinning-deep is left out" in caplog.text
    again = Thinning(parts=model.chosen()["parts"], weights=model.weights_)
    again.load_state(model.state(), {}, 20)
    history = random_csr(5, 20, 0.2, seed=1)
    assert (again.score(history) == model.score(history)).all()


def test_signals_that_a_large_catalogue_cannot_use_are_named() -> None:
    reasons = plan(["thinning-pairs"], Shape(10**5, 30_000, 10**6, dislikes=5, item_features=9)).reasons
    assert "thinning-signals is not added, because it needs a matrix of items by items" in reasons[0]
    assert "thinning-features only places new items and users without history" in reasons[1]
    assert not plan(["ease"], Shape(10**5, 30_000, 10**6, dislikes=5)).reasons
