"""iALS with known dislikes."""

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from conftest import random_csr
from ials_dislikes import IALSDislikes, half_step
from recfusion.data.signals import Extra
from recfusion.models.factors.ials import IALS

SMALL: dict[str, Any] = {"factors": 4, "iterations": 3, "tune_trials": 0}


def test_a_row_solves_its_normal_equations_with_the_weight_of_dislikes() -> None:
    fixed = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    rows = csr_array(np.array([[1, 0, 1, 0, 0]], np.float32))
    zeros = csr_array((np.array([0.0], np.float32), np.array([3]), np.array([0, 1])), shape=(1, 5))  # rated 0
    found = half_step(rows, zeros, fixed, 0.1, np.array([0.5], np.float32), 2.0)
    own, known = fixed[[0, 2]], fixed[[3]]
    a = 0.1 * fixed.T @ fixed + own.T @ own + 2.0 * known.T @ known + 0.5 * np.eye(3)
    assert found[0] == pytest.approx(np.linalg.solve(a, own.sum(0)), abs=1e-5)


def test_without_dislikes_it_is_ials() -> None:
    train = random_csr(30, 8, 0.3, 0)
    plain, more = IALS(**SMALL).fit(train, rng=1), IALSDislikes(**SMALL).fit(train, rng=1)
    assert more.score(train).tolist() == plain.score(train).tolist()


def test_a_dislike_lowers_the_score_of_its_item() -> None:
    train, disliked = random_csr(30, 8, 0.3, 0), random_csr(30, 8, 0.2, 1)
    disliked = csr_array(disliked.toarray() * (1 - train.toarray()))
    model = IALSDislikes(**SMALL, dislike=5.0).fit(train, rng=1, extra=Extra(disliked=disliked))
    row = csr_array(np.array([[1, 1, 0, 0, 0, 0, 0, 0]], np.float32))
    bad = csr_array(np.array([[0, 0, 1, 0, 0, 0, 0, 0]], np.float32))
    assert abs(model.score(row, extra=Extra(disliked=bad))[0, 2]) < abs(model.score(row)[0, 2])
