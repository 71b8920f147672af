"""A composite prior on RecFusion, as in RecVAE. Load it as `studies/composite_prior.py:CompositePrior`.

RecVAE keeps the posterior of a code near a mixture: the standard normal, the posterior of the network of the epoch
before, and a wide normal. The states of RecFusion are noised by a fixed chain, so there is no posterior to keep; what
is learned is p_theta(x^0 | x^t). It gets the same kind of penalty, gamma KL(p_theta(x^0 | x^t) || r) with
r = w_1 Bern(m) + w_2 Bern(p of the epoch before) + w_3 Bern(1/2) at each entry, m being the items' popularity.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from recfusion.core.arrays import Csr
from recfusion.core.errors import InputError
from recfusion.diffusion import ProcessName, ScheduleName
from recfusion.diffusion.bound import draw_steps
from recfusion.models.neural import training_settings as training
from recfusion.models.recfusion.recfusion import RecFusion
from recfusion.models.settings import setting
from recfusion.training.loop import Phase

_WIDE = 0.1  # share of the wide part, as in RecVAE


class _WithOld(nn.Module):
    """The network and its copy of the epoch before, so that a checkpoint has both."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.old = net, copy.deepcopy(net).requires_grad_(False)


@dataclass
class CompositePrior(RecFusion):
    """`recfusion-bin` with a penalty on the distance of its predictions to a composite prior."""

    process: ProcessName = setting("thinning", "forward process")
    schedule: ScheduleName = setting("linear", "schedule of the noise rates", search="all")
    beta_low: float = setting(0.2, "smallest noise rate", at_least=0)
    beta_high: float = setting(1.0, "largest noise rate", at_least=0, search=(0.01, 1.0), log=True)
    batch_size: int = training.batch_size(50)
    weight_decay: float = training.weight_decay(0.5)
    gamma: float = setting(0.1, "weight of the penalty", at_least=0, search=(0.001, 10.0), log=True)
    popular: float = setting(0.15, "share of popularity in the prior; the wide part has .1", at_least=0, at_most=0.9)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.process == "gaussian" or self.predicts != "x0":
            raise InputError("The composite prior is one of zeros and ones: set a binary process that predicts x^0.")

    def training_module(self) -> nn.Module:
        return _WithOld(self.net_)

    def phases(self, train: Csr, trained: nn.Module, rng: torch.Generator) -> Sequence[Phase]:
        old = trained.get_submodule("old")
        return [Phase(lambda rows: self.loss(rows, old, rng), before=lambda: _copy(self.net_, old))]

    def loss(self, rows: Csr, trained: nn.Module, rng: torch.Generator) -> Tensor:
        plain = super().loss(rows, trained, rng)
        if not self.gamma:
            return plain
        x0, process = self._examples(rows), self.make_process(self.means)
        t = draw_steps(len(x0), process.T, rng, x0.device)
        xt = process.q_sample(x0, t, rng)
        with torch.no_grad():
            prior = self.prior(torch.sigmoid(trained(xt, t)))
        return plain + self.gamma * penalty(self.net_(xt, t), prior).sum(1).mean()

    def prior(self, old: Tensor) -> Tensor:
        """Return r, the probability of a one in the composite prior, for the old network's probabilities."""
        return self.popular * self.means.to(old) + (1 - self.popular - _WIDE) * old + _WIDE / 2


def penalty(logits: Tensor, prior: Tensor) -> Tensor:
    """KL(Bern(sigmoid(logits)) || Bern(prior)) for each entry."""
    one, zero = torch.sigmoid(logits), torch.sigmoid(-logits)
    return one * (logsigmoid(logits) - prior.log()) + zero * (logsigmoid(-logits) - torch.log1p(-prior))


def _copy(net: nn.Module, old: nn.Module) -> None:
    old.load_state_dict(net.state_dict())
    old.eval()
