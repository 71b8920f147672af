"""FlowCF (Liu et al., KDD 2025): a discrete flow from popular items to a user's row; the network predicts the row."""

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from recfusion.core.arrays import Csr, column_counts
from recfusion.core.errors import InputError
from recfusion.models.neural import training_settings as training
from recfusion.models.neural.network import NeuralRecommender
from recfusion.models.settings import setting
from recfusion.nets.mlp import dropout
from recfusion.training.batches import dense


class FlowNet(nn.Module):
    """f(x_t, t): layers with tanh over [x_t, W z_t + b], with z_t cosines and sines of 2 pi t; (batch, items)."""

    def __init__(self, n_items: int, width: int, layers: int, time_width: int, dropout: float) -> None:
        super().__init__()
        self.dropout, self.time_width = dropout, time_width
        self.time = nn.Linear(time_width, time_width)
        sizes = [n_items + time_width, *[width] * layers, n_items]
        self.layers = nn.ModuleList(nn.Linear(*size) for size in pairwise(sizes))
        for layer in (self.time, *self.layers):
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor, t: Tensor, rng: torch.Generator | None = None) -> Tensor:
        """Return the predicted row; with an `rng`, as in training, with dropout before every layer."""
        half = self.time_width // 2
        rates = 2 * math.pi * torch.exp(-math.log(10_000.0) * torch.arange(half, device=x.device) / max(1, half))
        angle = t[:, None] * rates
        h = torch.cat([x, self.time(torch.cat([angle.cos(), angle.sin()], 1))], 1)
        for layer in self.layers[:-1]:
            h = torch.tanh(layer(dropout(h, self.dropout, rng)))
        out: Tensor = self.layers[-1](dropout(h, self.dropout, rng))
        return out


@dataclass
class FlowCF(NeuralRecommender):
    """Rows x_t = m x_1 + (1 - m) x_0 between a user's row x_1 and random popular items, with m ~ Bern(t) per entry.

    x_0 ~ Bern(item frequency) and t is one of 0, 1/T, ..., (T - 1)/T. The network predicts x_1 with a squared error.
    Scoring starts from the history at t = (T - steps)/T and moves to x_t + (xhat_1 - x_t) / (T (1 - t)), rounded to 0
    or 1 and with the history kept; the scores are the last xhat_1. The marginal of x_t is that of a binomial process
    that drifts to the item frequencies (see docs/diffusion.md).
    """

    lr: float = training.lr(1e-3)
    batch_size: int = training.batch_size(200)
    T: int = setting(9, "steps that divide the time from 0 to 1", at_least=1, at_most=10_000, search=(2, 30))
    steps: int = setting(2, "last steps that are used for scoring", at_least=1, at_most=10_000)
    width: int = training.width(300, "width of the hidden layers", (100, 1000))
    layers: int = setting(2, "hidden layers", at_least=1, at_most=1000)
    time_width: int = setting(10, "width of the time embedding, an even number", at_least=2, at_most=100_000)
    dropout: float = setting(0.1, "dropout before every layer", at_least=0, search=(0.0, 0.8))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps > self.T:
            raise InputError(f"Expected steps up to {self.T}, got {self.steps}: lower it.", "steps")
        if self.dropout >= 1:
            raise InputError(f"Expected dropout to be below 1, got {self.dropout:g}: lower it.", "dropout")
        if self.time_width % 2:
            raise InputError(f"Expected an even time_width, got {self.time_width}: add 1.", "time_width")

    def prepare(self, train: Csr) -> None:
        self._frequency = torch.from_numpy(column_counts(train) / max(1, train.shape[0])).to(torch.float32)

    def make_net(self, n_items: int) -> nn.Module:
        return FlowNet(n_items, self.width, self.layers, self.time_width, self.dropout)

    def loss(self, rows: Csr, trained: nn.Module, rng: torch.Generator) -> Tensor:
        x1 = dense(rows)
        t = torch.randint(self.T, (len(x1),), generator=rng) / self.T
        x0 = (torch.rand(x1.shape, generator=rng) < self._frequency).to(x1.dtype)
        xt = torch.where(torch.rand(x1.shape, generator=rng) < t[:, None], x1, x0)
        predicted: Tensor = trained(xt.to(self.device), t.to(self.device), rng)
        return (predicted - x1.to(self.device)).square().mean()

    def scores(self, history: Csr) -> Tensor:
        own = x = dense(history, self.device)
        for step in range(self.T - self.steps, self.T):
            t = torch.full((len(x),), step / self.T, device=x.device)
            predicted: Tensor = self.net_(x, t)
            moved = x + (predicted - x) / (self.T - step)  # dt / (1 - t)
            x = torch.maximum(own, (moved > 0.5).to(x.dtype))
        return predicted
