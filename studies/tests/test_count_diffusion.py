"""The recommender of counts: what it is shown, what it learns, and the contract."""

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from conftest import csr
from count_diffusion import CountDiffusion
from recfusion.data.signals import Extra
from recfusion.testing import Subject, checks

SMALL: dict[str, Any] = {"width": 8, "max_epochs": 2, "T": 3}


def test_counts_enter_by_their_power_of_two() -> None:
    history = csr([[0, 1, 2, 3]], 4)
    plays = csr_array((np.array([1.0, 2.0, 7.0, 1e9]), history.indices, history.indptr), shape=history.shape)
    assert CountDiffusion(levels=20).encoded(history, Extra(grades=plays)).data.tolist() == [1, 2, 3, 20]
    assert CountDiffusion(levels=1).encoded(history, Extra(grades=plays)).data.tolist() == [1, 1, 1, 1]


def test_items_that_go_together_are_found_and_heard_often_counts_more() -> None:
    """Whoever plays item 0 plays item 1 much and item 2 little; others play item 3."""
    train = csr([[0, 1, 2]] * 20 + [[3]] * 20, 4)
    plays = csr_array((np.array([1.0, 64.0, 1.0] * 20 + [1.0] * 20), train.indices, train.indptr), shape=train.shape)
    model = CountDiffusion(width=16, max_epochs=60, lr=0.01).fit(train, rng=0, extra=Extra(grades=plays))
    scores = model.score(csr([[0]], 4))[0]
    assert scores[1] > scores[2] > scores[3]


def test_it_keeps_the_contract() -> None:
    subject = Subject(CountDiffusion(**SMALL))
    for check in checks():
        check(subject)


def test_a_level_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="levels"):
        CountDiffusion(levels=0)
