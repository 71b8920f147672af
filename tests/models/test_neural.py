"""What all networks share: their epochs are judged on held-out items, and AdamW gets the model's own settings."""

import pytest
import torch
from torch import Tensor

from conftest import csr, random_csr
from recfusion.core.arrays import Csr
from recfusion.data.interactions import Interactions
from recfusion.data.options import SplitPlan
from recfusion.data.split import split
from recfusion.evaluation.evaluate import evaluate
from recfusion.models.recfusion.recfusion import RecFusion


def weights(train: Csr, **settings: float) -> Tensor:
    """Return all weights after three epochs from one seed."""
    model = RecFusion(width=8, max_epochs=3, **settings).fit(train, rng=0)  # type: ignore[arg-type]
    return torch.cat([parameter.detach().flatten() for parameter in model.net_.parameters()])


def test_an_epoch_is_judged_on_what_was_held_out_of_the_validation_users(groups: Interactions) -> None:
    parts, metric = split(groups), "ndcg@100"
    model = RecFusion(width=8, max_epochs=4)
    for epoch in model.epochs(parts.train, parts.valid, rng=0):
        assert epoch.metric == evaluate(model, parts.valid, parts.train, (metric,)).mean()[metric] > 0


@pytest.mark.parametrize(("share", "few"), [(0.0125, "1 validation user is"), (0.2375, "19 validation users are")])
def test_too_few_validation_users_choose_an_epoch_but_it_is_said_that_they_are(
    groups: Interactions, caplog: pytest.LogCaptureFixture, share: float, few: str
) -> None:
    parts = split(groups, SplitPlan(valid=share))
    model = RecFusion(width=8, max_epochs=2).fit(parts.train, parts.valid, rng=0)
    (record,) = caplog.records
    told = f"{few} too few to choose the number of epochs by (at least 20 are needed): they are used all the same"
    assert record.getMessage().startswith(told)
    caplog.clear()
    RecFusion(width=8, max_epochs=1).fit(parts.train, parts.valid, rng=0)
    model.settled().fit(parts.train, rng=0)
    RecFusion(width=8, max_epochs=2).fit(parts.train, split(groups, SplitPlan(valid=0.25)).valid, rng=0)
    assert not caplog.records  # nothing to choose, nobody to choose it by, or enough of them


def test_weight_decay_shrinks_the_weights() -> None:
    train = random_csr(40, 12, 0.3, 0)
    # Three epochs of ten steps or more multiply each weight by (1 - 0.01 * 5) ** 30 = 0.21, but for what is learned.
    assert weights(train, lr=0.01, weight_decay=5.0).norm() < 0.7 * weights(train, lr=0.01).norm()


def test_the_first_step_of_adamw_is_as_long_as_the_learning_rate() -> None:
    train = csr([[0, 2]], 4)  # one user is one step an epoch
    one, two = (RecFusion(width=8, max_epochs=1, lr=lr).fit(train, rng=0).state() for lr in (0.01, 0.03))
    longest = max(float(abs(two[name] - one[name]).max()) for name in one if one[name].size)
    assert longest == pytest.approx(0.02, rel=1e-3)
