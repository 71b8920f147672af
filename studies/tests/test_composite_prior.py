"""The composite prior: its mixture by enumeration, its divergence by definition, and the old network."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from composite_prior import CompositePrior, penalty
from conftest import random_csr
from recfusion.core.errors import InputError
from recfusion.testing import Subject, checks

SMALL: dict[str, Any] = {"width": 16, "max_epochs": 2}


def test_the_mixture_and_its_divergence_are_those_of_all_states() -> None:
    model = CompositePrior(popular=0.2)
    model.means = torch.tensor([0.1, 0.7], dtype=torch.float64)
    old, logits = torch.tensor([[0.3, 0.9]], dtype=torch.float64), torch.tensor([[0.4, -1.2]], dtype=torch.float64)
    prior = model.prior(old)
    parts = ((0.2, model.means[None]), (0.7, old), (0.1, torch.full_like(old, 0.5)))
    found = 0.0
    for x in product((0.0, 1.0), repeat=2):
        p = [float(torch.sigmoid(value if one else -value)) for value, one in zip(logits[0], x, strict=True)]
        r = [sum(weight * float(q[0, i] if one else 1 - q[0, i]) for weight, q in parts) for i, one in enumerate(x)]
        found += np.prod(p) * np.log(np.prod(p) / np.prod(r))
    assert float(penalty(logits, prior).sum()) == pytest.approx(found, abs=1e-9)


def test_the_old_network_is_that_of_the_epoch_before() -> None:
    model = CompositePrior(**SMALL)
    train = random_csr(30, 9, 0.3, 0)
    list(model.epochs(train, rng=0))
    module = model.training_module()
    phase = model.phases(train, module, torch.Generator().manual_seed(0))[0]
    with torch.no_grad():
        model.net_.get_parameter("outer.bias").add_(1)
    old, now = (module.get_parameter(f"{part}.outer.bias") for part in ("old", "net"))
    assert not torch.equal(old, now)
    assert phase.before is not None
    phase.before()
    assert torch.equal(old, now)
    phase.loss(train).backward()  # type: ignore[no-untyped-call]
    assert old.grad is None
    assert now.grad is not None


def test_without_weight_it_is_recfusion_and_with_weight_another() -> None:
    train = random_csr(40, 9, 0.3, 0)
    without, given = (CompositePrior(**SMALL, gamma=gamma).fit(train, rng=0).score(train) for gamma in (0.0, 5.0))
    assert not np.allclose(without, given)
    with pytest.raises(InputError, match="zeros and ones"):
        CompositePrior(process="gaussian")


def test_it_keeps_the_contract() -> None:
    for check in checks():
        check(Subject(CompositePrior(**SMALL)))
