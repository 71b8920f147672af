"""Input masking: its enumerated distribution, the masked share, and scores without a mask."""

from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from conftest import random_csr
from masked_input import MaskedInput
from recfusion.core.errors import InputError
from recfusion.testing import Subject, checks


def test_a_masked_thinning_is_a_thinning_with_fewer_survivors() -> None:
    model = MaskedInput(process="thinning", T=2, schedule="constant", beta_high=0.6, mask=0.25)
    process = model.make_process(torch.full((3,), 0.5))
    x0 = torch.tensor([[1.0, 0.0, 1.0]])
    a = float(process.q_marginal(x0, 2).mean[0, 0])
    seen: dict[tuple[float, ...], float] = {}
    for kept, shown in product(product((0.0, 1.0), repeat=3), product((0.0, 1.0), repeat=3)):
        xt = torch.tensor([kept])
        chance = float(process.q_marginal(x0, 2).log_prob(xt).sum().exp())
        chance *= float(np.prod([0.75 if one else 0.25 for one in shown]))
        state = tuple((xt[0] * torch.tensor(shown)).tolist())
        seen[state] = seen.get(state, 0.0) + chance
    survives = 0.75 * a
    for state in product((0.0, 1.0), repeat=3):
        expected = 0.0 if state[1] else float(np.prod([survives if one else 1 - survives for one in state[::2]]))
        assert seen[state] == pytest.approx(expected, abs=1e-6)


def test_training_hides_the_asked_share_and_scores_see_everything() -> None:
    model = MaskedInput(mask=0.3, width=8, max_epochs=1).fit(random_csr(12, 9, 0.3, 0), rng=0)
    told: list[Tensor] = []
    model.net_ = lambda xt, t: told.append(xt) or xt  # type: ignore[assignment,func-returns-value]
    history = random_csr(400, 9, 0.5, 1)
    rows = torch.from_numpy(history.toarray())
    model.denoiser(history, torch.Generator().manual_seed(0))(rows, torch.ones(400))
    assert float(told[0].sum() / rows.sum()) == pytest.approx(0.7, abs=0.03)
    assert {*told[0].flatten().tolist()} == {0.0, 1.0}
    model.score(history)
    assert torch.equal(told[1], rows)


def test_it_keeps_the_contract_and_refuses_a_mask_of_everything() -> None:
    for check in checks():
        check(Subject(MaskedInput(width=16, max_epochs=2)))
    with pytest.raises(InputError, match="below 1, got 1"):
        MaskedInput(mask=1.0)
