"""The mixture with features: new items, items that are added after the fit, and users without a history."""

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from conftest import csr
from recfusion.core.arrays import Csr
from recfusion.data.interactions import Features
from recfusion.data.signals import Extra
from recfusion.data.split import Fold
from recfusion.models.abilities import adding_part, with_part
from recfusion.models.thinning.mixture import Thinning
from recfusion.models.thinning.new_items import place_new_items
from recfusion.models.thinning.signals import ThinningSignals

N, NEW = 9, 8  # items 0 to 3 and the new item 8 are of the first kind, items 4 to 7 of the second
KINDS = np.array([0, 0, 0, 0, 1, 1, 1, 1, 0])
CHEAP: dict[str, Any] = {"members": "thinning-linear,ease", "tune_trials": 0}


def kinds(of: np.ndarray[Any, np.dtype[np.int64]] = KINDS) -> Features:
    return Features(csr_array(np.eye(2, dtype=np.float32)[of]), ("first", "second"))


def rows(n_users: int, seed: int) -> Csr:
    """Return users who each have three of the four items of one kind."""
    draws = np.random.default_rng(seed)
    return csr([sorted((draws.permutation(4)[:3] + 4 * (user % 2)).tolist()) for user in range(n_users)], N)


def fold(n_users: int, seed: int) -> Fold:
    whole = rows(n_users, seed)
    held_out = csr([[int(row.indices[0])] for row in whole], N)
    return Fold(np.arange(n_users), csr([row.indices[1:].tolist() for row in whole], N), held_out)


def fitted(extra: Extra | None = None, **settings: Any) -> Thinning:
    extra = Extra(item_features=kinds()) if extra is None else extra
    return Thinning(**(CHEAP | settings)).fit(rows(60, 0), fold(30, 1), rng=0, extra=extra)


def ask(*histories: list[int], items: int = N) -> Csr:
    return csr([sorted(each) for each in histories], items)


def test_a_new_item_is_found_by_its_features() -> None:
    scores = fitted().score(ask([0, 1], [4, 5]))
    assert scores[0, NEW] > scores[0, [4, 5, 6, 7]].max()
    assert scores[1, NEW] < scores[1, [6, 7]].min()


def test_a_new_item_has_the_place_that_its_part_gives_it_among_known_items() -> None:
    model, histories = fitted(), ask([0, 1], [4, 5], [0, 4])
    own, scores = model.parts_["thinning-features"].score(histories), model.score(histories)
    for theirs, mixed, seen in zip(own, scores, ([0, 1], [4, 5], [0, 4]), strict=True):
        known = np.setdiff1d(np.arange(N), [*seen, NEW])
        assert np.sum(mixed[known] > mixed[NEW]) == np.sum(theirs[known] > theirs[NEW])


def test_new_items_keep_their_order_between_and_above_known_items() -> None:
    guide = np.array([[3.0, 1.0, 2.0, 9.0, 5.0, 2.5, 2.75, 4.0]], np.float32)  # item 3 is in the history
    scores = np.array([[10.0, -1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0]], np.float32)
    new = np.arange(8) >= 4
    place_new_items(scores, guide, csr([[3]], 8), new)
    assert scores[0, :4].tolist() == [10, -1, 2, 0]
    assert 2 < scores[0, 5] < scores[0, 6] < 10 < scores[0, 7] < scores[0, 4]


@pytest.mark.parametrize("weights", [{"thinning-linear": 1.0}, {"thinning-linear": 1.0, "thinning-features": 0.0}])
def test_the_part_that_knows_new_items_stays_with_any_weight(weights: dict[str, float]) -> None:
    model = fitted(weights=weights)
    assert model.weights_ == {"thinning-linear": 1.0, "thinning-features": 0.0}
    assert model.score(ask([0, 1]))[0, NEW] > 0
    again = Thinning(**CHEAP, weights=weights)
    again.load_state(model.state(), model.chosen(), N)
    assert np.array_equal(again.score(ask([0, 1])), model.score(ask([0, 1])))


@pytest.mark.parametrize("members", ["thinning-linear,ease", "thinning-local,thinning-pairs,ials"])
def test_items_are_added_after_the_fit(members: str) -> None:
    model = fitted(members=members)
    name, part = adding_part(model) or ("", None)
    assert name == "thinning-features"
    assert isinstance(part, ThinningSignals)
    more = ThinningSignals(**part.chosen())
    more.load_state(part.state(), part.chosen(), N)
    for key, value in part.with_added(part.__getattribute__, kinds(np.array([1])).matrix, part.features_).items():
        setattr(more, key, value)
    larger = with_part(model, name, more)
    scores = larger.score(ask([0, 1], [4, 5], [N], items=N + 1))
    assert scores.shape == (3, N + 1)
    assert scores[1, N] > scores[1, :4].max()
    assert scores[2, 4:8].min() > scores[2, :4].max()  # the added item is the history
    plain = model.score(ask([0, 1], [4, 5]))
    assert (np.argsort(scores[0, [2, 3, 4, 5, 6, 7]]) == np.argsort(plain[0, [2, 3, 4, 5, 6, 7]])).all()
    again = Thinning(**CHEAP)
    again.load_state(larger.state(), larger.chosen(), N + 1)
    assert np.array_equal(again.score(ask([0, 1], items=N + 1)), larger.score(ask([0, 1], items=N + 1)))


def test_reasons_of_a_new_item_are_its_features() -> None:
    model = fitted()
    items = np.array([2, NEW])
    reasons = model.reasons(ask([0, 1]), items, extra=None)
    by_feature = np.array([source[0] >= N for source in reasons.sources])
    assert reasons.parts[1, by_feature].any()
    assert not reasons.parts[1, ~by_feature].any()
    assert reasons.parts[0, ~by_feature].any()


def test_a_user_without_history_is_placed_by_features() -> None:
    people = Features(csr_array(np.eye(2, dtype=np.float32)[np.arange(60) % 2]), ("first", "second"))
    model = fitted(Extra(user_features=people))
    assert "thinning-features" in model.parts_
    nobody = csr_array((2, N), dtype=np.float32)
    asked = Extra(user_features=Features(csr_array(np.eye(2, dtype=np.float32)), people.names))
    scores = model.score(nobody, extra=asked)
    assert scores[0, :4].min() > scores[0, 4:8].max()
    assert scores[1, 4:8].min() > scores[1, :4].max()
