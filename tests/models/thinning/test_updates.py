"""Updates of thinning-linear: any sequence of added, changed and removed users equals a fit on what remains."""

from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr
from recfusion.models.thinning import updates
from recfusion.models.thinning.linear import ThinningLinear
from recfusion.models.thinning.low_rank_update import gram_by_length
from recfusion.models.updating import TOLERANCE, Change, UserRows, probe_rows, updater_of

SETTINGS: dict[str, Any] = {"l2": 3.0, "nu": 0.4, "kappa": 0.7, "b": 0.5, "c": 0.3}
items_of_user = st.sets(st.integers(0, 8), min_size=1, max_size=6)
Steps = list[tuple[str, int, set[int]]]
kinds = st.sampled_from(["add", "change", "forget"])
steps = st.lists(st.tuples(kinds, st.integers(0, 100), items_of_user), max_size=8)


def rows_of(users: list[set[int]], n_items: int) -> Csr:
    dense = np.zeros((len(users), n_items), np.float32)
    for row, items in enumerate(users):
        dense[row, sorted(items)] = 1
    return csr_array(dense)


def means(x: NDArray[Any], b: float) -> tuple[float, float, float]:
    """Scale of user weights, mean weighted and mean plain number of users of an item, of the last full fit."""
    lengths = x.sum(1)
    scale = lengths.sum() / (np.maximum(lengths, 1) ** -b * lengths).sum()
    return scale, lengths.sum() / x.shape[1], x.sum() / x.shape[1]


def brute_weights(
    x: NDArray[Any], fixed: tuple[float, float, float], pairs: list[tuple[int, int]], pair_l2: float
) -> NDArray[Any]:
    """The weights by definition in 64 bits: one ridge regression per target, over the features without it."""
    scale, mean, mean_count = fixed
    l2, nu, kappa, b, c = SETTINGS.values()
    n_items = x.shape[1]
    w = scale * np.maximum(x.sum(1), 1) ** -b
    sets = [{i} for i in range(n_items)] + [set(pair) for pair in pairs]
    z = np.array([[float(all(row[i] for i in own)) for own in sets] for row in x]).reshape(len(x), len(sets))
    g = (z * w[:, None]).T @ z
    n = np.diag(g)[:n_items].copy()
    q = 1 / (1 + kappa)
    a = g * np.array([[q ** -len(one & two) for two in sets] for one in sets])
    a += np.diag([*(l2 * np.maximum(n / mean, 1e-3) ** nu), *[pair_l2] * len(pairs)])
    found = np.zeros((len(sets), n_items))
    for j in range(n_items):
        free = [f for f, own in enumerate(sets) if j not in own]
        found[free, j] = np.linalg.solve(a[np.ix_(free, free)], g[free, j])
    return np.asarray(found * np.maximum(x.sum(0) / mean_count, 1e-3) ** -c)


@dataclass
class Shop:
    """Users, a fitted model and its kept arrays."""

    users: list[set[int]]
    n_items: int
    pairs: int = 0
    model: ThinningLinear = field(init=False)

    def __post_init__(self) -> None:
        self.rows = rows_of(self.users, self.n_items)
        self.model = ThinningLinear(**SETTINGS, pairs=self.pairs, pair_l2=5.0)
        if self.pairs:  # at least 100 users have a frequent pair; here all pairs of the first items will do
            plain = ThinningLinear(**SETTINGS).fit(self.rows)
            self.model.__dict__.update({k: v for k, v in vars(plain).items() if k not in ("pairs", "pair_l2")})
            self.model.pairs_ = np.array(list(combinations(range(4), 2))[: self.pairs])
            self.model.pair_l2_ = 5.0
        else:
            self.model.fit(self.rows)
        found = updater_of(self.model)
        assert found is not None
        self.updater = found
        self.kept = self.updater.keep(self.model, UserRows(self.rows))
        self.fixed = means(self.rows.toarray(), SETTINGS["b"])

    def apply(self, place: int | None, items: set[int]) -> None:
        """Give the user at `place` these items, or add one; without items the user is removed."""
        self.n_items = max(self.n_items, *items, 0) + 1 if items and max(items) >= self.n_items else self.n_items
        before = UserRows(rows_of([set() if place is None else self.users[place]], self.n_items))
        after = UserRows(rows_of([items], self.n_items))
        changed = np.array([] if place is None else [place], np.int64)
        self.users = [own for at, own in enumerate(self.users) if at != place] + [items] * bool(items)
        rows = UserRows(self.rows).replaced(changed, after)
        change, self.rows = Change(before, after, rows), rows.matrix
        model, self.kept = self.updater.update(self.model, self.kept, change)
        assert isinstance(model, ThinningLinear)
        self.model = model

    def run(self, todo: Steps) -> None:
        for kind, number, items in todo:
            place = None if kind == "add" else number % len(self.users)
            if kind != "forget" or len(self.users) > 1:
                self.apply(place, set() if kind == "forget" else items)

    def error(self) -> float:
        probes = probe_rows(self.rows, np.random.default_rng(0))
        found = self.updater.error(self.model, self.kept, UserRows(self.rows), probes)
        assert found is not None
        return found

    def check(self) -> None:
        pairs = [(int(one), int(two)) for one, two in self.model.pairs_]
        expected = brute_weights(rows_of(self.users, self.n_items).toarray(), self.fixed, pairs, 5.0)
        np.testing.assert_allclose(self.model.weights_, expected, atol=2e-5)
        # With so few users scores hardly differ, so rounding may exceed the tolerance: an update then solves again.
        assert self.error() < 10 * TOLERANCE


@settings(max_examples=40, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.lists(items_of_user.map(lambda own: {i % 6 for i in own}), min_size=4, max_size=12), steps, st.booleans())
def test_any_sequence_of_changes_equals_a_fit_on_what_remains(
    users: list[set[int]], todo: Steps, inverse: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(updates, "_MOST", 0.5 if inverse else 2.0)
        shop = Shop(users, 6)
        shop.run(todo)
        shop.check()


@settings(max_examples=25, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.lists(items_of_user.map(lambda own: {i % 6 for i in own}), min_size=4, max_size=12), steps, st.booleans())
def test_any_sequence_of_changes_with_pairs_equals_a_fit_on_what_remains(
    users: list[set[int]], todo: Steps, inverse: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(updates, "_MOST", 0.5 if inverse else 2.0)
        shop = Shop(users, 6, pairs=5)
        shop.run(todo)
        if todo:
            shop.check()


def test_forgetting_a_user_equals_a_fit_without_that_user() -> None:
    """The fixed means act as a slightly different penalty: with it, `fit` gives the same scores."""
    rng = np.random.default_rng(3)
    users = [set(rng.choice(12, rng.integers(2, 7), replace=False).tolist()) for _ in range(40)]
    shop = Shop(users, 12)
    shop.apply(7, set())
    rows = rows_of(shop.users, 12)
    again = ThinningLinear(**SETTINGS | {"l2": updates.equivalent_l2(shop.model, shop.kept, rows)}).fit(rows)
    ratio = shop.model.weights_[~np.eye(12, dtype=bool)] / again.weights_[~np.eye(12, dtype=bool)]
    np.testing.assert_allclose(ratio, ratio[0], rtol=2e-4)
    assert ratio[0] == pytest.approx(1, abs=0.05)


def test_adding_and_forgetting_a_user_many_times_leaves_the_model_as_it_was() -> None:
    rng = np.random.default_rng(1)
    shop = Shop([set(rng.choice(20, 5, replace=False).tolist()) for _ in range(60)], 20)
    first = shop.model.weights_.copy()
    for _ in range(200):
        shop.apply(None, {1, 2, 3, 17})
        shop.apply(len(shop.users) - 1, set())
    np.testing.assert_allclose(shop.model.weights_, first, atol=1e-5)


def test_a_new_inverse_removes_the_rounding_errors_of_many_corrections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updates, "_CORRECTIONS", 3)
    shop, ages = Shop([{n, n + 1, n + 2} for n in range(17)], 20), []
    for _ in range(5):
        shop.apply(None, {1, 2})
        ages.append(int(shop.kept["age"][0]))
    assert ages == [1, 2, 0, 1, 2]
    shop.check()


def test_a_damaged_inverse_fails_the_certificate() -> None:
    rng = np.random.default_rng(2)
    shop = Shop([set(rng.choice(20, 5, replace=False).tolist()) for _ in range(60)], 20)
    shop.model.weights_ = shop.model.weights_ * np.float32(1.001)
    assert shop.error() > TOLERANCE


def test_weights_that_are_not_symmetric_fail_the_certificate() -> None:
    """P is read from rows of the weights: an error in one column alone must not go unnoticed."""
    rng = np.random.default_rng(2)
    shop = Shop([set(rng.choice(20, 5, replace=False).tolist()) for _ in range(60)], 20)
    for column in range(20):
        shop.model.weights_ = shop.model.weights_.copy()
        shop.model.weights_[:, column] *= np.float32(1.01)
        assert shop.error() > TOLERANCE
        shop.model.weights_[:, column] /= np.float32(1.01)


@pytest.mark.parametrize("lengths", [(2, 3), (2, 40), (40, 50)])
def test_the_gram_matrix_of_short_and_long_rows_is_the_sum_over_all_rows(lengths: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    x = rows_of([set(rng.choice(80, rng.choice(lengths), replace=False).tolist()) for _ in range(50)], 80)
    x.data[:] = rng.random(x.nnz)
    np.testing.assert_allclose(gram_by_length(x), (x.T @ x).toarray(), atol=1e-5)


def test_an_item_that_nobody_has_any_more_gets_no_weights() -> None:
    shop = Shop([{0, 1}, {1, 2}, {0, 2}, {0, 5}], 6)
    shop.apply(3, set())
    assert np.abs(shop.model.weights_[:, 5]).max() < 1e-6
    assert shop.kept["n"][5] == 0
