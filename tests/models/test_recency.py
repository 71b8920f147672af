"""How much an entry still counts by its age, by hand."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from recfusion.data.signals import Extra, valued
from recfusion.models.sequence.recency import (
    DAY,
    RecentPopularity,
    fades,
    in_order,
    newer,
    recency,
    recent_counts,
    weighted_entries,
)

# Two users: one with an invoice of two items at time 30, one with nothing at the end.
TIMES = csr_array((np.array([10, 30, 30, 5], np.int64), np.array([0, 1, 2, 1]), np.array([0, 3, 4])), shape=(2, 3))


def test_an_entry_s_rank_is_how_many_of_its_row_are_newer() -> None:
    assert newer(TIMES).tolist() == [2, 0, 0, 0]


def test_weights_fall_with_the_rank_and_are_1_on_average() -> None:
    found = recency(TIMES, 1.0)
    assert found == pytest.approx([3 * (1 / 3) / (7 / 3), 3 / (7 / 3), 3 / (7 / 3), 1])
    assert found[:3].mean() == pytest.approx(1)
    assert recency(TIMES, 0.0).tolist() == [1, 1, 1, 1]


def test_histories_are_weighted_only_if_times_are_known_and_the_power_is_not_0() -> None:
    history = csr_array((np.ones(4, np.float32), TIMES.indices, TIMES.indptr), shape=TIMES.shape)
    found = weighted_entries(history, Extra(times=TIMES), (1.0, 0.0))
    assert found.data.tolist() == recency(TIMES, 1.0).tolist()
    assert found.indices.tolist() == history.indices.tolist()
    assert weighted_entries(history, Extra(times=TIMES), (0.0, 0.0)) is history
    assert weighted_entries(history, Extra(), (1.0, 0.0)) is history
    assert weighted_entries(history, None, (1.0, 0.0)) is history


def test_histories_in_order_have_0_for_the_newest_entry_and_less_for_older_ones() -> None:
    history = csr_array((np.ones(4, np.float32), TIMES.indices, TIMES.indptr), shape=TIMES.shape)
    assert in_order(history, Extra(times=TIMES)).data.tolist() == [-2, 0, 0, 0]
    assert in_order(history, None).data.tolist() == [0, 0, 0, 0]


def test_weights_by_age_count_weeks_from_the_row_s_newest_entry() -> None:
    days = csr_array((np.array([0, 7 * DAY], np.int64), np.array([0, 1]), np.array([0, 2])), shape=(1, 2))
    assert recency(days, 1.0, "age") == pytest.approx([2 / 3, 4 / 3])


def test_what_fades_counts_half_after_so_many_days() -> None:
    days = csr_array((np.array([0, 30 * DAY], np.int64), np.array([0, 1]), np.array([0, 2])), shape=(1, 2))
    found = fades(days, 30.0) ** 2
    assert found[0] / found[1] == pytest.approx(0.5)
    assert found.mean() == pytest.approx(1)


def test_recent_popularity_counts_old_users_less() -> None:
    days = np.array([0, 0, 60 * DAY], np.int64)
    times = csr_array((days, np.array([0, 0, 1]), np.array([0, 1, 2, 3])), shape=(3, 2))
    assert recent_counts(times, 30.0) == pytest.approx([2 / 3, 1])
    train = csr_array(np.array([[1, 0], [1, 0], [0, 1]], np.float32))
    model = RecentPopularity().fit(train, extra=Extra(times=times))
    assert model.score(train[:1])[0] == pytest.approx([2 / 3, 1])
    assert RecentPopularity().fit(train).score(train[:1])[0] == pytest.approx([1, 0.5])


def test_entry_weights_are_the_product_of_recency_and_ratings() -> None:
    grades = valued(TIMES, np.full(TIMES.nnz, 4.0, np.float32))
    grades.data[1] = 1.0
    history = valued(TIMES, np.ones(TIMES.nnz, np.float32))
    found = weighted_entries(history, Extra(times=TIMES, grades=grades), (0.5, 2.0))
    for row in range(TIMES.shape[0]):
        own = slice(TIMES.indptr[row], TIMES.indptr[row + 1])
        later = [int((TIMES.data[own] > when).sum()) for when in TIMES.data[own]]
        expected = np.array([(1 + r) ** -0.5 * g**2 for r, g in zip(later, grades.data[own], strict=True)])
        if len(expected):
            assert found.data[own] == pytest.approx(expected / expected.mean(), rel=1e-5)
    assert weighted_entries(history, Extra(times=TIMES), (0.0, 2.0)) is history
