"""Predicted categories: the head against the enumerated conditional mean, the condition, and the contract."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch import Tensor

from guided import PredictedCategories
from recfusion.core.errors import InputError
from recfusion.data.interactions import Features
from recfusion.data.signals import Extra

SMALL: dict[str, Any] = {"width": 16, "head_width": 32, "max_epochs": 1, "weight_decay": 0.0, "guidance": 1.0}
GENRES = Features(csr_array(np.array([[1, 0], [0, 1], [1, 1]], np.float32)), ("g: a", "g: b"))
EXTRA = Extra(item_features=GENRES)
ROWS = np.array([[1, 0, 0]] * 5 + [[0, 1, 0]] * 3 + [[1, 1, 0]] * 2 + [[1, 0, 1]] * 4, np.float32)


def test_shares_are_the_mean_distribution_of_the_items() -> None:
    model = PredictedCategories(**SMALL).fit(csr_array(ROWS), extra=EXTRA, rng=0)
    x0 = torch.tensor([[1.0, 0, 0], [1, 0, 1], [0, 1, 1], [0, 0, 0]])
    assert model.shares(x0).tolist() == [[1, 0], [0.75, 0.25], [0.25, 0.75], [0, 0]]


def test_the_head_learns_the_enumerated_mean_of_the_shares_given_what_is_left() -> None:
    steps: dict[str, Any] = {"T": 1, "schedule": "constant", "beta_high": 1.0}  # a one survives with probability 1/2
    model = PredictedCategories(**{**SMALL, **steps, "max_epochs": 300, "lr": 0.01}).fit(
        csr_array(np.tile(ROWS, (8, 1))), extra=EXTRA, rng=0
    )
    process, x0 = model.make_process(model.means), torch.from_numpy(ROWS)
    shares = model.shares(x0)
    for state in product((0.0, 1.0), repeat=3):
        xt = torch.tensor([state])
        chance = process.q_marginal(x0, 1).log_prob(xt.expand_as(x0)).sum(1).exp()  # q(x^t | x^0) of each user
        if float(chance.sum()) < 1e-6:
            continue
        expected = (chance[:, None] * shares).sum(0) / chance.sum()
        assert model._profile(xt)[0].tolist() == pytest.approx(expected.tolist(), abs=0.06)


def test_the_condition_is_the_prediction_and_guidance_goes_through_it() -> None:
    model = PredictedCategories(**SMALL).fit(csr_array(ROWS), extra=EXTRA, rng=0)
    told: list[Tensor] = []
    net = model.net_
    hook = net.register_forward_pre_hook(lambda module, given: told.append(given[2]) if len(given) > 2 else None)
    model.score(csr_array(ROWS))
    hook.remove()
    assert torch.allclose(told[0], net.get_submodule("head")(torch.from_numpy(ROWS)).softmax(1))
    again = PredictedCategories(**SMALL)
    again.load_state(model.state(), model.chosen(), 3)
    assert np.array_equal(again.score(csr_array(ROWS)), model.score(csr_array(ROWS)))


def test_items_without_features_are_refused() -> None:
    with pytest.raises(InputError, match="need features of the items"):
        PredictedCategories(**SMALL).fit(csr_array(ROWS), rng=0)
