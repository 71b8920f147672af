"""The nearest users by hand, and that nobody is a neighbour of themselves where that is asked for."""

import numpy as np
import pytest

from conftest import csr
from recfusion.models.baselines.user_knn import NearestUsers, UserKNN

TRAIN = csr([[0, 1], [0, 1], [1, 2, 3], [4]], 5)


def test_the_average_of_the_nearest_users_is_weighted_by_their_cosine() -> None:
    found = NearestUsers(TRAIN, np.ones(5, np.float32)).average(csr([[0, 1]], 5), 3)
    last = 1 / np.sqrt(2 * 3)  # cosine of {0, 1} and {1, 2, 3}; the two others have 1
    assert found[0] == pytest.approx(np.array([2, 2 + last, last, last, 0]) / (2 + last), abs=1e-6)


def test_only_so_many_are_taken_and_of_equals_the_first() -> None:
    found = NearestUsers(TRAIN, np.ones(5, np.float32)).average(csr([[1]], 5), 1)
    assert found[0].tolist() == [1, 1, 0, 0, 0]


def test_rows_like_one_s_own_are_left_out() -> None:
    nearest = NearestUsers(TRAIN, np.ones(5, np.float32))
    found = nearest.average(csr([[1]], 5), 3, without=csr([[0, 1]], 5))
    assert found[0] == pytest.approx([0, 1, 1, 1, 0])


def test_who_has_nothing_in_common_with_anybody_gets_zeros() -> None:
    found = NearestUsers(TRAIN[:3], np.ones(5, np.float32)).average(csr([[4], []], 5), 2)
    assert not found.any()


def test_rare_items_count_for_more() -> None:
    train = csr([[0, 1], [0, 2], [0, 3], [0, 4], [0, 5], [0, 6]], 7)
    model = UserKNN(neighbours=6, input_power=0.5).fit(train)
    scores = model.score(csr([[0, 3]], 7))[0]
    assert scores[3] == max(scores[1:])
    plain = UserKNN(neighbours=6, input_power=0.0).fit(train).score(csr([[0, 3]], 7))[0]
    assert scores[3] > plain[3]
    assert model.keeps_histories
