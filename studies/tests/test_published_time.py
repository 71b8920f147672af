"""The time that is added to the output, and the step whose output ranks."""

import numpy as np
import pytest
import torch

from conftest import random_csr
from published_time import PublishedTime, TimeAfter
from recfusion.models.recfusion.recfusion import RecFusion
from recfusion.nets.mlp import MLP
from recfusion.testing import Check, Subject, checks

TRAIN = random_csr(30, 9, 0.3, 0)


def test_the_projected_time_is_added_to_the_output_after_the_tanh() -> None:
    torch.manual_seed(0)
    net = TimeAfter(MLP(9, width=4))
    x, t = torch.rand(2, 9), torch.tensor([1, 3])
    with torch.no_grad():
        net.time_layer.weight.zero_()
        net.time_layer.weight[4, 0] = 5.0  # item 4 gets five times the first sine
        net.time_layer.bias.fill_(2.0)
        plain = net.net(x, t)
        added = net(x, t) - plain
    expected = torch.full((2, 9), 2.0)
    expected[:, 4] += 5 * torch.tensor([1.0, 3.0]).sin()
    torch.testing.assert_close(added, expected)
    assert float(plain.abs().max()) <= 1


def test_scores_are_the_output_of_the_chosen_step() -> None:
    scores = {}
    for step in (1, 2):
        model = PublishedTime(ranked_step=step, objective="published", width=8, max_epochs=2).fit(TRAIN, rng=0)
        assert isinstance(model, PublishedTime)
        rows = torch.from_numpy(TRAIN.toarray()).float()
        with torch.no_grad():
            wanted = model.net_(rows, torch.full((30,), step))
        scores[step] = model.score(TRAIN)
        np.testing.assert_allclose(scores[step], wanted, atol=1e-6)
    assert not np.allclose(scores[1], scores[2])


def test_with_time_on_the_input_and_the_first_step_it_is_the_package_s_model() -> None:
    same = {"objective": "published", "width": 8, "max_epochs": 2}
    ours = PublishedTime(time_to="input", ranked_step=1, **same).fit(TRAIN, rng=0)  # type: ignore[arg-type]
    package = RecFusion(time="projected", **same).fit(TRAIN, rng=0)  # type: ignore[arg-type]
    np.testing.assert_array_equal(ours.score(TRAIN), package.score(TRAIN))


@pytest.mark.parametrize("check", checks(), ids=str)
def test_it_keeps_the_contract(check: Check) -> None:
    check(Subject(PublishedTime(width=16, max_epochs=2)))
