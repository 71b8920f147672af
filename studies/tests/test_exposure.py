"""Exposure: the likelihood and the posterior by a sum over both exposures, and items that few were exposed to."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from conftest import random_csr
from exposure import ExposureRecFusion, exposed, negative_log_likelihood
from recfusion.core.errors import InputError
from recfusion.data.signals import Extra
from recfusion.testing import Subject, checks

SMALL: dict[str, Any] = {"width": 16, "max_epochs": 2}


def test_likelihood_and_posterior_are_the_sums_over_both_exposures() -> None:
    mu, p = torch.tensor([0.3, 0.6, 0.9], dtype=torch.float64), torch.tensor([[0.2, 0.5, 0.8]], dtype=torch.float64)
    out, exposure = p.logit(), mu.logit()
    zeros, ones = torch.zeros_like(p), torch.ones_like(p)
    joint = {
        (a, x): (mu if a else 1 - mu) * ((p if x else 1 - p) if a else float(not x)) for a in (0, 1) for x in (0, 1)
    }
    like, missing = (joint[0, x] + joint[1, x] for x in (1, 0))
    assert torch.allclose(negative_log_likelihood(out, exposure, ones, zeros).neg().exp(), like)
    assert torch.allclose(negative_log_likelihood(out, exposure, zeros, zeros).neg().exp(), missing)
    assert torch.allclose(negative_log_likelihood(out, exposure, zeros, ones).neg().exp(), joint[1, 0])
    assert torch.allclose(exposed(out, exposure), joint[1, 0] / missing)
    assert torch.allclose(like + missing, ones)


def test_rankings_differ_by_the_exposure_alone() -> None:
    train = random_csr(60, 9, 0.3, 0)
    model = ExposureRecFusion(**SMALL).fit(train, rng=0)
    mu = torch.sigmoid(model.net_.get_parameter("exposure")).detach().numpy()
    assert np.ptp(mu) > 0
    interaction = np.exp(model.score(train))
    model.ranks = "like"
    like = 1 / (1 + np.exp(-model.score(train)))
    assert interaction == pytest.approx(mu * like, rel=1e-4)


def test_known_dislikes_teach_that_an_item_was_seen_and_not_liked() -> None:
    """Half of the users have item 0; of the others, none (first model) or all (second) are known to dislike item 1."""
    n = 60
    train = csr_array(np.tile(np.array([[1, 0, 1], [0, 0, 1]], np.float32), (n // 2, 1)))
    never = np.zeros((n, 3), np.float32)
    never[:, 1] = 2
    found = []
    for disliked in (csr_array((n, 3), dtype=np.float32), csr_array(never)):
        model = ExposureRecFusion(width=8, max_epochs=40, lr=0.05, ranks="like")
        model.fit(train, rng=0, extra=Extra(disliked=disliked))
        found.append(torch.sigmoid(model.net_.get_parameter("exposure"))[1].item())
    assert found[0] < 0.3 < 0.9 < found[1]


def test_it_keeps_the_contract_and_refuses_what_has_no_exposure() -> None:
    for check in checks():
        check(Subject(ExposureRecFusion(**SMALL)))
    with pytest.raises(InputError, match="Exposure needs a binary process"):
        ExposureRecFusion(process="gaussian")
