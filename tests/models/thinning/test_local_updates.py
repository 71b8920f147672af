"""Updates of local thinning: any sequence of added, changed and removed users equals a fit on what remains."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from test_updates import SETTINGS, Steps, items_of_user, means, rows_of, steps

from conftest import random_csr
from recfusion.core import compiled
from recfusion.core.arrays import Csr, IntArray
from recfusion.models.thinning import local, local_updates, neighbours
from recfusion.models.thinning.local import ThinningLocal
from recfusion.models.thinning.updates import equivalent_l2
from recfusion.models.updating import TOLERANCE, Change, UserRows, probe_rows, updater_of


@dataclass
class Shop:
    """Rows, a fitted model and its kept arrays."""

    rows: Csr
    model: ThinningLocal

    def __post_init__(self) -> None:
        self.model.fit(self.rows, rng=0)
        found = updater_of(self.model)
        assert isinstance(found, local_updates.LocalUpdater)
        self.updater = found
        self.kept = found.keep(self.model, UserRows(self.rows))
        self.fixed = means(self.rows.toarray(), self.model.b or 0.0)

    def apply(self, places: list[int], after: Csr) -> None:
        """Replace the rows at `places`; rows without items are removed."""
        old, changed = UserRows(self.rows).over(after.shape[1]), np.array(places, np.int64)
        blank = rows_of([set()] * (after.shape[0] - len(places)), after.shape[1])
        before = old.take(changed).followed_by(UserRows(blank))
        change = Change(before, UserRows(after), old.replaced(changed, UserRows(after)), rng=0)
        model, self.kept = self.updater.update(self.model, self.kept, change)
        assert isinstance(model, ThinningLocal)
        self.rows, self.model = change.rows.matrix, model

    def run(self, todo: Steps) -> None:
        for kind, number, items in todo:
            n_users, n_items = self.rows.shape
            if kind != "forget" or n_users > 1:
                places = [] if kind == "add" else [number % n_users]
                own = set() if kind == "forget" else items
                self.apply(places, rows_of([own], max(n_items, *(item + 1 for item in own), 0)))

    def error(self) -> float:
        probes = probe_rows(self.rows, np.random.default_rng(0))
        return self.updater.error(self.model, self.kept, UserRows(self.rows), probes)


def brute_scores(shop: Shop) -> NDArray[Any]:
    """Scores of single items by definition in 64 bits; of neighbours with equal gains it takes those of the model.

    With all eigenvectors the sum of both fields is I - P diag(Lambda + n - explained).
    """
    x, (scale, mean, mean_count), model = shop.rows.toarray().astype(np.float64), shop.fixed, shop.model
    l2, nu, kappa, b, c = (float(getattr(model, f"{name}_")) for name in ("l2", "nu", "kappa", "b", "c"))
    g = (x * (scale * np.maximum(x.sum(1), 1) ** -b)[:, None]).T @ x
    n = np.diag(g)
    ridge = l2 * np.maximum(n / mean, 1e-3) ** nu + kappa * n
    found, own = np.zeros(g.shape), model.weights_.toarray() != 0
    for j in range(len(g)):
        gain = g[:, j] * (n + ridge) ** -0.75 * (1 + 1e-6 * own[:, j])
        gain[j] = -1
        best = np.argsort(-gain, kind="stable")[: min(model.neighbours, len(g) - 1)]
        best = best[(gain[best] > 0) | (len(best) == len(g) - 1)]
        found[best, j] = np.linalg.solve(g[np.ix_(best, best)] + np.diag(ridge[best]), g[best, j])
    if model.factors:
        found = np.eye(len(g)) - np.linalg.inv(g + np.diag(ridge)) * (ridge + n - (g * found).sum(0))
    popularity = np.maximum(x.sum(0) / mean_count, 1e-3)
    return np.asarray(found * popularity**-c * popularity[:, None] ** -model.a_)


@settings(max_examples=60, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    st.lists(items_of_user.map(lambda own: {i % 6 for i in own}), min_size=4, max_size=12),
    steps,
    st.sampled_from([(1, 0), (2, 0), (2, 50), (0, 50), (7, 0)]),
    st.sampled_from([(0.0, 0.0), (0.5, 0.3)]),
)
def test_any_sequence_of_changes_equals_a_fit_on_what_remains(
    users: list[set[int]], todo: Steps, size: tuple[int, int], powers: tuple[float, float]
) -> None:
    near, factors = size
    given_ones = SETTINGS | {"b": powers[0], "a": powers[1]}
    shop = Shop(rows_of(users, 6), ThinningLocal(**given_ones, neighbours=near, factors=factors))
    shop.run(todo)
    scores = shop.model.score(rows_of([{item} for item in range(shop.rows.shape[1])], shop.rows.shape[1]))
    np.testing.assert_allclose(scores, brute_scores(shop), atol=5e-5)
    assert shop.error() < 10 * TOLERANCE


@pytest.fixture(params=["loops", "whole"])
def _both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Solve the neighbourhoods as those of many items, by loops that need no compilation here, and as those of few."""
    for module in (local, neighbours):
        monkeypatch.setattr(module, "WHOLE_ITEMS", 0 if request.param == "loops" else 1000)
    monkeypatch.setattr(compiled, "compiled", lambda loop: loop)


@pytest.mark.usefixtures("_both_ways")
def test_forgetting_and_adding_equals_a_fit_with_the_equivalent_penalty() -> None:
    shop = Shop(random_csr(150, 60, 0.08, seed=1), ThinningLocal(**SETTINGS, neighbours=4, factors=6))
    shop.apply([7], rows_of([set()], 60))
    shop.apply([3, 80], rows_of([{1, 2}, {4, 60}, {5, 9, 60}], 61))
    again = replace(shop.model, l2=equivalent_l2(shop.model, shop.kept, shop.rows)).fit(shop.rows, rng=0)
    one, two = shop.model.score(shop.rows), again.score(shop.rows)
    np.testing.assert_allclose(one, two * (one * two).sum() / (two * two).sum(), atol=1e-4 * two.std())
    assert shop.error() < TOLERANCE


def test_only_the_neighbourhoods_with_a_changed_item_are_solved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [{10 * (user % 4) + (user * step) % 10 for step in (1, 3, 7)} for user in range(200)]
    shop = Shop(rows_of(groups, 40), ThinningLocal(**SETTINGS, neighbours=3, factors=5))
    solved: list[int] = []
    solve = local_updates.LocalField.solve

    def counted(field: local_updates.LocalField, targets: IntArray) -> Any:
        solved.extend(targets)
        return solve(field, targets)

    monkeypatch.setattr(local_updates.LocalField, "solve", counted)
    old = shop.model.weights_.toarray()
    shop.apply([], rows_of([{0, 1, 2}], 40))
    assert 3 <= len(solved) <= 10
    np.testing.assert_array_equal(shop.model.weights_.toarray()[:, 10:], old[:, 10:])
    assert not np.array_equal(shop.model.weights_.toarray()[:, :10], old[:, :10])


def test_a_folder_that_kept_nothing_is_solved_as_a_whole() -> None:
    shop = Shop(random_csr(60, 30, 0.15, seed=2), ThinningLocal(**SETTINGS, neighbours=4, factors=0))
    shop.kept = {}
    shop.apply([5], rows_of([set()], 30))
    again = ThinningLocal(**SETTINGS, neighbours=4, factors=0).fit(shop.rows)
    np.testing.assert_allclose(shop.model.weights_.toarray(), again.weights_.toarray(), atol=1e-5)
    assert set(shop.kept) >= {"n", "least", "explained"}


def test_damaged_weights_fail_the_certificate() -> None:
    shop = Shop(random_csr(80, 30, 0.15, seed=2), ThinningLocal(**SETTINGS, neighbours=4, factors=3))
    assert shop.error() < TOLERANCE
    shop.model.weights_ = shop.model.weights_ * np.float32(1.01)
    assert shop.error() > TOLERANCE
