"""Updates of thinning-signals: any sequence of users with likes and dislikes equals a fit on what remains."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from test_updates import SETTINGS, kinds, means, rows_of

from recfusion.data.signals import Extra
from recfusion.models.thinning import signal_updates, updates
from recfusion.models.thinning.signals import ThinningSignals
from recfusion.models.updating import TOLERANCE, Change, UserRows, probe_rows, updater_of

Opinions = tuple[set[int], set[int]]  # what a user likes and dislikes
NOTHING: Opinions = (set(), set())


def opinions(n_items: int, most_disliked: int = 4) -> st.SearchStrategy[Opinions]:
    """Users with some likes and other dislikes."""
    items = st.integers(0, n_items - 1)
    both = st.tuples(st.sets(items, min_size=1, max_size=4), st.sets(items, max_size=most_disliked))
    return both.map(lambda pair: (pair[0], pair[1] - pair[0]))


def rows_with(users: list[Opinions], n_items: int) -> UserRows:
    likes, dislikes = (rows_of([user[side] for user in users], n_items) for side in (0, 1))
    return UserRows(likes, Extra(disliked=dislikes))


def brute_weights(shop: "Shop") -> NDArray[Any]:
    """The weights by definition in 64 bits: one ridge regression per item, without the item's own like and dislike."""
    x, d = (m.toarray().astype(np.float64) for m in (shop.rows.matrix, shop.rows.extra.disliked))  # type: ignore[union-attr]
    scale, mean, mean_count = shop.fixed
    z, n_items = np.hstack([x, d]), x.shape[1]
    g = (z * (scale * x.sum(1) ** -SETTINGS["b"])[:, None]).T @ z
    n = np.diag(g)
    a = g + np.diag(SETTINGS["l2"] * np.maximum(n / mean, 1e-3) ** SETTINGS["nu"] + SETTINGS["kappa"] * n)
    found = np.zeros((2 * n_items, n_items))
    for j in range(n_items):
        free = np.setdiff1d(np.arange(2 * n_items), [j, n_items + j])
        found[free, j] = np.linalg.solve(a[np.ix_(free, free)], g[free, j])
    trends = np.append(shop.trends, np.ones(n_items - len(shop.trends)))
    return np.asarray(found * np.maximum(x.sum(0) / mean_count, 1e-3) ** -SETTINGS["c"] * trends**0.5)


@dataclass
class Shop:
    """Users, a fitted model and its kept arrays; the trends of the first items are made up."""

    users: list[Opinions]
    n_items: int = 6
    trends: NDArray[np.float32] = field(default_factory=lambda: np.linspace(0.5, 1.5, 6, dtype=np.float32))

    def __post_init__(self) -> None:
        self.rows = rows_with(self.users, self.n_items)
        self.model = ThinningSignals(**SETTINGS, recency=0.0, trend=0.0, tune_trials=0)
        self.model.fit(self.rows.matrix, extra=self.rows.extra)
        found = updater_of(self.model)
        assert isinstance(found, signal_updates.SignalsUpdater)
        self.updater, self.fixed = found, means(self.rows.matrix.toarray(), SETTINGS["b"])
        self.kept = found.keep(self.model, self.rows) | {"trends": self.trends}
        self.model.trend_ = 0.5
        self.model.weights_ = self.model.weights_ * self.trends**0.5

    def apply(self, place: int | None, own: Opinions) -> None:
        """Give the user at `place` these opinions, or add one; without likes the user is removed."""
        n_items = self.n_items = max(self.n_items, *(item + 1 for side in own for item in side), 0)
        before = rows_with([NOTHING if place is None else self.users[place]], n_items)
        after = rows_with([own], n_items)
        changed = np.array([] if place is None else [place], np.int64)
        self.users = [user for at, user in enumerate(self.users) if at != place] + [own] * bool(own[0])
        self.rows = self.rows.over(n_items).replaced(changed, after)
        model, self.kept = self.updater.update(self.model, self.kept, Change(before, after, self.rows))
        assert isinstance(model, ThinningSignals)
        self.model = model

    def error(self) -> float:
        return self.updater.error(
            self.model, self.kept, self.rows, probe_rows(self.rows.matrix, np.random.default_rng(0))
        )

    def check(self) -> None:
        expected = rows_with(self.users, self.n_items)
        np.testing.assert_array_equal(self.rows.matrix.toarray(), expected.matrix.toarray())
        np.testing.assert_allclose(self.model.weights_, brute_weights(self), atol=2e-5)
        assert self.error() < 10 * TOLERANCE  # with so few users scores hardly differ


steps = st.lists(st.tuples(kinds, st.integers(0, 100), opinions(8)), max_size=8)


@settings(max_examples=60, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.lists(opinions(6), min_size=4, max_size=12), steps, st.booleans())
def test_any_sequence_of_changes_equals_a_fit_on_what_remains(
    users: list[Opinions], todo: list[tuple[str, int, Opinions]], inverse: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(updates, "_MOST", 0.4 if inverse else 2.0)
        shop = Shop(users)
        shop.check()
        for kind, number, own in todo:
            if kind != "forget" or len(shop.users) > 1:
                place = None if kind == "add" else number % len(shop.users)
                shop.apply(place, NOTHING if kind == "forget" else own)
        shop.check()


def some_users(count: int, n_items: int) -> list[Opinions]:
    rng = np.random.default_rng(0)
    both = [rng.choice(n_items, 4, replace=False).tolist() for _ in range(count)]
    return [(set(own[:3]), set(own[3:])) for own in both]


def test_one_more_dislike_changes_the_weights_of_its_item() -> None:
    shop = Shop(some_users(80, 6))
    before, (likes, dislikes) = shop.model.weights_.copy(), shop.users[0]
    other = min(set(range(6)) - likes - dislikes)
    shop.apply(0, (likes, dislikes | {other}))
    shop.check()
    assert np.abs(shop.model.weights_[6 + other] - before[6 + other]).max() > 1e-4


def test_an_item_that_nobody_has_any_more_gets_no_weights() -> None:
    shop = Shop([*some_users(20, 5), ({0, 5}, set())])
    shop.apply(20, NOTHING)
    assert not shop.model.weights_[[5, 11]].any()
    assert shop.kept["features"][5] == shop.kept["features"][11] == 0
    shop.check()


@pytest.mark.parametrize("block", [slice(0, 6), slice(6, 12)])
def test_a_damaged_inverse_fails_the_certificate(block: slice) -> None:
    shop = Shop(some_users(80, 6))
    assert shop.error() < TOLERANCE
    shop.kept["p"] = shop.kept["p"].copy()
    shop.kept["p"][block, block] *= np.float32(1.01)
    assert shop.error() > TOLERANCE
