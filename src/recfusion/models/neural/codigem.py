"""CODIGEM (Walker et al., 2022): Gaussian diffusion of a user's row with one network for each reverse step."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from recfusion.core.arrays import Csr
from recfusion.core.errors import InputError
from recfusion.diffusion import Gaussian, Normal, ScheduleName, Steps, denoise, elbo, make_schedule
from recfusion.models.neural import training_settings as training
from recfusion.models.neural.network import NeuralRecommender
from recfusion.models.settings import setting
from recfusion.nets.mlp import MLP
from recfusion.training.batches import dense


@dataclass(frozen=True)
class DirectGaussian(Gaussian):
    """Gaussian diffusion with networks that predict the reverse step itself instead of x^0."""

    def p_reverse(self, out: Tensor, xt: Tensor, t: Steps) -> Normal:
        """p_theta(x^{t-1} | x^t) = N(mean, exp(log-variance)), the two halves of out (batch, 2 D).

        The network of t = 1 predicts only the mean, out (batch, D), with variance 1: L_0 is half the squared error.
        """
        if out.shape == xt.shape:
            return Normal(out, torch.ones_like(out))
        mean, log_variance = out.chunk(2, dim=-1)
        return Normal(mean, torch.exp(log_variance / 2))


class ReverseSteps(nn.Module):
    """T separate networks: the first reconstructs x^0 from x^1, the t-th gives p(x^{t-1} | x^t)."""

    def __init__(self, n_items: int, n_steps: int, *, width: int, depth: int, shared: bool) -> None:
        super().__init__()
        net = partial(MLP, n_items, width=width, depth=depth, shared=shared)
        self.steps = nn.ModuleList([net(), *(net(head="linear", n_heads=2) for _ in range(n_steps - 1))])

    def forward(self, xt: Tensor, t: Tensor) -> Tensor:
        """Return the output of step t's network, (batch, D) for t = 1, else (batch, 2 D); t is equal for all rows."""
        step = int(t[0])
        if bool((t != step).any()):
            raise InputError("Expected one step t for the whole batch, got several: every step has its own network.")
        out: Tensor = self.steps[step - 1](xt, t)
        return out


@dataclass
class CODIGEM(NeuralRecommender):
    """Diffusion in T small steps, each with its own reverse network, trained on the exact variational bound.

    Scoring treats a history as x^`start`, without noise, and follows the means of the reverse steps to x^0, so scores
    are deterministic. With `start` 1, the default, only the network of t = 1 ranks; the other networks share no weights
    with it. More steps were far worse on ML-1M's validation users (ndcg@100 after 20 epochs: 42.1 from x^1, 29.5 from
    x^2, 27.9 from x^3).
    """

    maps: ClassVar[float] = 50.0
    weight_decay: float = training.weight_decay(3.0)
    patience: int = training.patience(5)
    T: int = setting(3, "diffusion steps, each with its own network", at_least=1, at_most=1000, search=(1, 5))
    start: int = setting(1, "step t at which scoring treats a history as x^t, at most T", at_least=1)
    schedule: ScheduleName = setting("constant", "schedule of the noise rates")
    beta_low: float = setting(1e-4, "smallest noise rate", at_least=0)
    beta_high: float = setting(0.02, "largest noise rate", at_least=0, search=(1e-4, 1.0), log=True)
    width: int = training.width(200, "width of the hidden layers", (100, 800))
    depth: int = setting(1, "hidden layers of a network", at_least=0, at_most=1000, search=(0, 4))
    shared: bool = setting(True, "whether all hidden layers of a network share their weights")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start > self.T:
            raise InputError(f"Expected start in 1..{self.T}, got {self.start}: lower it or raise T.", "start")

    def make_net(self, n_items: int) -> nn.Module:
        return ReverseSteps(n_items, self.T, width=self.width, depth=self.depth, shared=self.shared)

    def loss(self, rows: Csr, trained: nn.Module, rng: torch.Generator) -> Tensor:
        return elbo(self._process(), trained, dense(rows, self.device), rng).total.mean()

    def scores(self, history: Csr) -> Tensor:
        x = dense(history, self.device)
        return denoise(self._process(), self.net_, x, None, t=self.start, draw=False) if len(x) else x

    def _process(self) -> DirectGaussian:
        return DirectGaussian(make_schedule(self.schedule, self.T, self.beta_low, self.beta_high))
