"""A learned schedule in a real training: its rates move as the exact gradient of the bound says."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import recfusion.diffusion as diffusion
from conftest import csr
from enumeration import TinyNet, exact_bound
from recfusion.models.recfusion.recfusion import RecFusion
from recfusion.training.batches import dense

ROWS = csr([[0, 2], [0, 1], [0, 1, 2], [1, 2]] * 100, 3)


class Frozen(TinyNet):
    """A random network that does not learn, so that nothing but the schedule moves."""

    def __init__(self) -> None:
        super().__init__(3, 30, 2.0)
        self.requires_grad_(False)

    def forward(self, xt: Tensor, t: Tensor) -> Tensor:
        return super().forward(xt.double(), t).to(xt.dtype)


@dataclasses.dataclass
class ScheduleAlone(RecFusion):
    """RecFusion in which the schedule alone is trained."""

    def make_net(self, n_items: int) -> nn.Module:
        net = Frozen()
        net.noise = diffusion.LearnedSchedule(self.fixed_schedule())
        return net


def schedule_of(model: RecFusion) -> diffusion.LearnedSchedule:
    noise = model.net_.get_submodule("noise")
    assert isinstance(noise, diffusion.LearnedSchedule)
    return noise


@pytest.mark.parametrize("weight_decay", [0.0, 3.0])
def test_a_trained_schedule_goes_where_the_exact_gradient_of_the_bound_points(weight_decay: float) -> None:
    """All three rates of this case must fall.

    Without the score-function term the first two would rise, and weight decay would lift the first, which is below .5.
    """
    settings: dict[str, Any] = {"process": "thinning", "schedule": "linear", "beta_low": 0.2, "beta_high": 0.8}
    model = ScheduleAlone(
        **settings, objective="elbo", learned_schedule=True, weight_decay=weight_decay, lr=0.005, max_epochs=10
    )
    start = diffusion.LearnedSchedule(model.fixed_schedule())
    means = torch.from_numpy((ROWS.sum(0) + 0.5) / (ROWS.shape[0] + 1))
    process = diffusion.Binomial.thinning(start, means)
    bound = exact_bound(process, Frozen(), dense(ROWS[:4]).double()).mean()
    exact = torch.autograd.grad(bound, start.w)[0]
    assert (exact > 0.1).all()
    moved = schedule_of(model.fit(ROWS, rng=0)).w.detach() - start.w.detach()
    assert (moved < -0.05).all()  # of the .5 that 100 steps of .005 can go at the most


def test_weight_decay_still_shrinks_the_network_beside_a_learned_schedule() -> None:
    settings: dict[str, Any] = {"process": "thinning", "objective": "elbo", "learned_schedule": True}
    sizes = [
        sum(float(p.detach().norm()) for name, p in model.net_.named_parameters() if not name.startswith("noise"))
        for decay in (0.0, 5.0)
        for model in [RecFusion(**settings, width=8, lr=0.01, max_epochs=3, weight_decay=decay).fit(ROWS, rng=0)]
    ]
    assert sizes[1] < 0.8 * sizes[0]
