"""TALE on sequences small enough to solve by hand."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from conftest import csr
from recfusion.data.signals import Extra
from recfusion.models.sequence.recency import DAY
from tale import TALE, source_steps, sources

# One user with items 0, 1, 2 on days 0, 1 and 3; another with items 0 and 2 at one time.
TIMES = csr_array(
    (np.array([0, DAY, 3 * DAY, 5, 5], np.int64), np.array([0, 1, 2, 0, 2]), np.array([0, 3, 5])), shape=(2, 3)
)
TRAIN = csr_array(np.array([[1, 1, 1], [1, 0, 1]], np.float32))


def test_sources_are_the_latest_entries_before_a_target() -> None:
    target, source = source_steps(TIMES, 1)
    pairs = set(zip(target.tolist(), source.tolist(), strict=True))
    assert pairs == {(1, 0), (2, 1), (3, 4), (4, 3)}  # a row of one time has no order
    target, source = source_steps(TIMES, 2)
    assert {(2, 0), (2, 1)} <= set(zip(target.tolist(), source.tolist(), strict=True))


def test_weights_are_the_ridge_regression_of_targets_on_their_faded_sources() -> None:
    s, t = sources(TIMES, source_steps(TIMES, 2), 2.0, 0.3)
    rows = np.array([[np.exp(-0.5), 0, 0], [0.3, np.exp(-1), 0], [0, 0, 1], [1, 0, 0]])
    assert s.toarray() == pytest.approx(rows)
    assert t.toarray().tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0], [0, 0, 1]]
    model = TALE(l2=2.0, tau=2.0, span=1.0, least=0.3, window=2).fit(TRAIN, extra=Extra(times=TIMES))
    expected = np.linalg.solve(rows.T @ rows + 2 * np.eye(3), rows.T @ t.toarray())
    assert model.weights_ == pytest.approx(expected, abs=1e-5)
    shown = model.score(TRAIN[:1], extra=Extra(times=TIMES[:1]))
    assert shown[0] == pytest.approx(np.exp([-2, -1, 0]) @ expected, abs=1e-5)


def test_a_window_longer_than_all_histories_is_all_of_them() -> None:
    times = csr([[0, 1, 2], [0, 2]], 3).astype("int64")
    times.data[:] = [3, 1, 2, 5, 4]
    found, expected = source_steps(times, 10**22), source_steps(times, 3)
    assert [part.tolist() for part in found] == [part.tolist() for part in expected]
    TALE(window=10**22, tune_trials=0).fit(csr([[0, 1, 2], [0, 2]], 3), extra=Extra(times=times))
