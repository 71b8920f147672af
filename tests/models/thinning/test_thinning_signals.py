"""Thinning that reads more than ones."""

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from conftest import random_csr
from recfusion.core.arrays import Csr
from recfusion.data.signals import Extra, valued
from recfusion.data.split import Fold
from recfusion.models.sequence.recency import recency
from recfusion.models.thinning.blocks import graded
from recfusion.models.thinning.linear import ThinningLinear
from recfusion.models.thinning.signals import ThinningSignals

GIVEN: dict[str, Any] = {"l2": 2.0, "nu": 0.3, "kappa": 0.5, "b": 0.5, "c": 0.2, "tune_trials": 0}


@pytest.fixture
def train() -> Csr:
    return random_csr(60, 9, 0.3, 0)


@pytest.fixture
def disliked(train: Csr) -> Csr:
    return csr_array(random_csr(60, 9, 0.2, 1).toarray() * (1 - train.toarray()))


def timed(history: Csr, seed: int = 0) -> Csr:
    return valued(history, np.random.default_rng(seed).permutation(history.nnz).astype(np.int64))


def test_without_signals_it_scores_as_thinning_linear(train: Csr) -> None:
    plain, more = ThinningLinear(**GIVEN).fit(train), ThinningSignals(**GIVEN).fit(train)
    assert more.score(train) == pytest.approx(plain.score(train), abs=1e-5)


def test_dislikes_that_are_ignored_change_no_score(train: Csr, disliked: Csr) -> None:
    plain = ThinningLinear(**GIVEN).fit(train)
    more = ThinningSignals(**GIVEN, dislikes="ignored").fit(train, extra=Extra(disliked=disliked))
    assert more.score(train, extra=Extra(disliked=disliked)) == pytest.approx(plain.score(train), abs=1e-5)


def test_dislikes_are_the_ridge_regression_with_both_blocks(train: Csr, disliked: Csr) -> None:
    given = {**GIVEN, "b": 0.0, "c": 0.0}
    model = ThinningSignals(**given).fit(train, extra=Extra(disliked=disliked))
    z = np.hstack([train.toarray(), disliked.toarray()]).astype(np.float64)
    counts = z.sum(0)
    ridge = 2.0 * np.maximum(counts / counts[:9].mean(), 1e-3) ** 0.3 + 0.5 * counts
    for item in range(9):
        kept = np.setdiff1d(np.arange(18), [item, 9 + item])
        part = z[:, kept]
        found = np.linalg.solve(part.T @ part + np.diag(ridge[kept]), part.T @ z[:, item])
        assert model.weights_[kept, item] == pytest.approx(found, abs=1e-4)
        assert model.weights_[[item, 9 + item], item].tolist() == [0, 0]


def test_a_dislike_counts_at_scoring_and_its_reasons_add_up(train: Csr, disliked: Csr) -> None:
    extra = Extra(disliked=disliked)
    model = ThinningSignals(**GIVEN).fit(train, extra=extra)
    row = int(np.diff(disliked.indptr).argmax())
    history, one = train[[row]], extra.rows(np.array([row]))
    assert one.disliked is not None
    assert one.disliked.nnz
    scores = model.score(history, extra=one)
    assert np.abs(scores - model.score(history)).max() > 1e-4
    reasons = model.reasons(history, np.arange(9), extra=one)
    assert reasons.parts.sum(1) == pytest.approx(scores[0], abs=1e-5)
    assert set(reasons.sources) == {(int(i),) for i in [*history.indices, *one.disliked.indices]}


def test_units_are_thinned_one_by_one(train: Csr) -> None:
    given = {**GIVEN, "b": 0.0, "c": 0.0}
    counts = valued(train, np.random.default_rng(2).integers(1, 9, train.nnz).astype(np.float32))
    model = ThinningSignals(**given, values="units").fit(train, extra=Extra(grades=counts))
    unit = np.sqrt((counts.data**2).mean())
    z, y = counts.toarray() / unit, train.toarray()
    # What B(n, a) of n units leave, in the mean: a^2 z'z off the diagonal, and a (1 - a) n more on it; kappa = (1-a)/a.
    likes = y.sum(0)
    ridge = 2.0 * (likes / likes.mean()) ** 0.3 + 0.5 * z.sum(0)
    for item in range(9):
        kept = np.setdiff1d(np.arange(9), [item])
        found = np.linalg.solve(z[:, kept].T @ z[:, kept] + np.diag(ridge[kept]), z[:, kept].T @ y[:, item])
        assert model.weights_[kept, item] == pytest.approx(found, abs=1e-4)


def test_the_noise_of_units_is_that_of_a_simulation() -> None:
    n, a = np.array([3, 7]), 0.4
    drawn = np.random.default_rng(0).binomial(n, a, (400_000, 2)) / a
    kappa = (1 - a) / a
    assert drawn.T @ drawn / len(drawn) == pytest.approx(np.outer(n, n) + np.diag(kappa * n), rel=0.01)


def test_values_of_grades() -> None:
    grades = csr_array(np.array([[1, 3, 0]], np.float32))
    assert graded(grades, "units", 2.0, 2.0).tolist() == [0.5, 1.5]
    assert graded(grades, "log", 2.0, 1.0) == pytest.approx(np.log([2, 4]))
    assert graded(grades, "saturating", 1.0, 1.0) == pytest.approx([0.5, 0.75])
    assert graded(None, "units", 2.0, 4.0) == 0.5


def test_recency_weighs_the_history_at_scoring_alone(train: Csr) -> None:
    times = timed(train)
    model = ThinningSignals(**GIVEN, recency=0.75, trend=0.0).fit(train, extra=Extra(times=times))
    plain = ThinningLinear(**GIVEN).fit(train)
    assert model.weights_ == pytest.approx(plain.weights_, abs=1e-5)
    expected = valued(train, recency(times, 0.75)) @ plain.weights_
    assert model.score(train, extra=Extra(times=times)) == pytest.approx(expected, abs=1e-5)


def test_recency_is_chosen_on_validation_users_where_the_last_item_decides() -> None:
    """Item 2k + 1 follows item 2k; what stood before is noise, so the newest entry alone should count."""
    rng = np.random.default_rng(3)
    rows = []
    for _ in range(300):
        noise, pair = rng.permutation(20)[:4], int(rng.integers(20))
        rows.append([*(2 * noise), 2 * pair, 2 * pair + 1])
    history, held_out, times, train = (np.zeros((300, 40), np.float32) for _ in range(4))
    for row, items in enumerate(rows):
        for when, item in enumerate(items[:-1], 1):
            history[row, item], times[row, item] = 1, when
        train[row], held_out[row, items[-1]] = history[row], 1
        train[row, items[-1]] = 1
    history[held_out > 0] = times[held_out > 0] = 0
    shown = csr_array(history[:100])
    fold = Fold(np.arange(100), shown, csr_array(held_out[:100]), Extra(times=csr_array(times[:100].astype(np.int64))))
    order = csr_array(np.where(train[100:] > 0, np.maximum(times[100:], 1), 0).astype(np.int64))
    model = ThinningSignals(l2=5.0, kappa=0.5).fit(csr_array(train[100:]), fold, rng=0, extra=Extra(times=order))
    assert (model.recency_ or 0) >= 0.75
    assert "recency" in model.chosen()
