"""Inpainting as a recommender against the enumerated conditional distribution of a model with three items."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from conftest import csr, random_csr
from inpainting import Inpainting, condition, conditional_mean
from recfusion.testing import Subject, checks

STATES = torch.tensor(list(product((0.0, 1.0), repeat=3)))  # (8, 3)
TRAIN = csr([[0, 1], [0, 1], [0, 1, 2], [2], [2], [0], [1, 2], [0, 1]] * 4, 3)
SMALL: dict[str, Any] = {"width": 8, "max_epochs": 30, "T": 3, "beta_low": 0.4, "beta_high": 1.0}


def enumerated(model: Inpainting) -> torch.Tensor:
    """Return p(x^0) of every state by summing over all chains, (8,)."""
    process = model.make_process(torch.from_numpy(model.means_).double())
    density = process.prior(STATES.shape).log_prob(STATES).sum(1).exp()
    for t in range(process.T, 0, -1):
        steps = torch.full((8,), t)
        one = process.p_reverse(model.net_(STATES, steps), STATES, steps).mean[:, None]  # (8, 1, 3)
        density = density @ torch.where(STATES[None] > 0, one, 1 - one).prod(2)
    return density.detach()


def test_particles_rank_by_the_enumerated_conditional_probability() -> None:
    model = Inpainting(**SMALL, samples=500, particles=32).fit(TRAIN, rng=0)
    density = enumerated(model)
    assert float(density.sum()) == pytest.approx(1, abs=1e-5)
    given = density * STATES[:, 0]  # item 0 is in the history
    exact = (given[:, None] * STATES).sum(0) / given.sum()
    found = model.filled(torch.tensor([1.0, 0.0, 0.0])).detach()
    assert found.tolist() == pytest.approx(exact.tolist(), abs=0.03)
    assert exact[1] > exact[2]  # items 0 and 1 go together
    assert np.argmax(model.score(csr([[0]], 3))[0][1:]) == 0


def test_means_of_the_last_step_have_less_noise_than_its_draws() -> None:
    model = Inpainting(**SMALL).fit(TRAIN, rng=0)
    process = model.make_process(torch.from_numpy(model.means_).double())
    known = torch.tensor([[1.0, 0.0, 0.0]]).expand(2000, -1)
    means, draws = (
        find(process, model.net_, known, known > 0, torch.Generator().manual_seed(0), 16)
        for find in (conditional_mean, condition)
    )
    assert means.mean(0).tolist() == pytest.approx(draws.mean(0).tolist(), abs=0.03)
    assert torch.allclose(means[:, 0], torch.ones(2000))
    assert (means.std(0)[1:] < draws.std(0)[1:] / 3).all()


def test_every_way_of_filling_keeps_the_contract() -> None:
    for fill in ("one-step", "replace", "condition"):
        subject = Subject(Inpainting(**SMALL | {"max_epochs": 2}, fill=fill, samples=4, particles=4))
        for check in checks():
            check(subject)


def test_scores_do_not_depend_on_the_other_users_of_a_request() -> None:
    model = Inpainting(**SMALL | {"max_epochs": 2}, samples=4, particles=4).fit(random_csr(12, 6, 0.4, 0), rng=0)
    history = random_csr(5, 6, 0.4, 1)
    assert model.score(history)[3] == pytest.approx(model.score(history[[3]])[0], abs=1e-6)
