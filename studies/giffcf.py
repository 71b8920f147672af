"""GiffCF: a user's row is smoothed over the graph of items, and a network sharpens it again (Zhu et al., SIGIR 2024).

Load it as `studies/giffcf.py:GiffCF`.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn

from recfusion.core.arrays import Csr, FloatArray, column_counts, row_numbers
from recfusion.core.errors import InputError
from recfusion.data.signals import Extra
from recfusion.data.split import Fold
from recfusion.models.base import Shape
from recfusion.models.linear.gram import gram, require_gram_memory
from recfusion.models.neural import training_settings as training
from recfusion.models.neural.network import NeuralRecommender
from recfusion.models.settings import learned, setting
from recfusion.models.thinning.low_rank import leading
from recfusion.nets.mlp import dropout, time_embedding
from recfusion.training.batches import dense

_TIME_WIDTH = 20
_MATRICES = 3  # items x items matrices held at the peak


class Mixer(nn.Module):
    """One number per entry from several signals: two hidden units with swish, the same ones for all entries.

    The signals are stacked as (batch, entries, signals).
    """

    def __init__(self, n_signals: int) -> None:
        super().__init__()
        self.hidden, self.out = nn.Linear(n_signals, 2), nn.Linear(2, 1)

    def forward(self, *signals: Tensor) -> Tensor:
        stacked = torch.stack(torch.broadcast_tensors(*signals), dim=-1)  # type: ignore[no-untyped-call]
        out: Tensor = self.out(nn.functional.silu(self.hidden(stacked)))
        return out.squeeze(-1)


class TwoStages(nn.Module):
    """xhat(z_t, c, S c, t): an item factor model of z_t and the history c, then a mix of its scores with c and S c."""

    def __init__(self, n_items: int, width: int) -> None:
        super().__init__()
        self.items = nn.Parameter(torch.empty(n_items, width))
        self.first, self.second = Mixer(3), Mixer(4)
        self.times = nn.ModuleList(
            nn.Sequential(nn.Linear(_TIME_WIDTH, _TIME_WIDTH), nn.SiLU(), nn.Linear(_TIME_WIDTH, 1)) for _ in range(2)
        )
        nn.init.xavier_uniform_(self.items)
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)

    def forward(self, z: Tensor, c: Tensor, smooth_c: Tensor, t: Tensor) -> Tensor:
        """Return xhat (batch, items) for t (batch,)."""
        first_time, second_time = (time(time_embedding(t, _TIME_WIDTH)) for time in self.times)
        latent = (z / len(self.items)) @ self.items  # (batch, width)
        of_history = (c / c.abs().sum(1, keepdim=True).clamp(min=1)) @ self.items
        middle = self.first(latent, of_history, first_time) @ self.items.T  # (batch, items)
        out: Tensor = self.second(middle, c, smooth_c, second_time)
        return out


@dataclass
class GiffCF(NeuralRecommender):
    """Row z_t = x + alpha t/T (S x - x) + sigma_t noise, with S the graph of items and sigma_t = scale decay^(T - t).

    S = D_i^-1/2 X' D_u^-1/2 X D_i^-1/2, divided by its largest eigenvalue, and averaged with the projection on its
    leading eigenvectors if `ideal_weight` is above 0. A network predicts x from z_t and from the row c with dropout;
    the loss is the squared error. Scoring starts from c = x, the history, at z_T without noise and goes to

        z_(t-1) = F_(t-1) xhat + decay (z_t - F_t xhat), with F_t x the mean of z_t.

    z_0 are the scores. The defaults are the authors' settings on MovieLens 1M, without noise; their early stopping
    waits for 200 epochs.
    """

    maps: ClassVar[float] = 40.0
    lr: float = training.lr(1e-3)
    batch_size: int = training.batch_size(100)
    max_epochs: int = training.max_epochs(1000)
    patience: int = training.patience(30)
    T: int = setting(3, "diffusion steps", at_least=1, at_most=10_000, search=(1, 10))
    alpha: float = setting(1.5, "strength of the smoothing at step T", at_least=0, search=(0.2, 3.0))
    noise_scale: float = setting(0.0, "standard deviation of the noise at step T", at_least=0, search=(0.0, 0.5))
    noise_decay: float = setting(
        0.5, "factor of the noise from a step to the one before", at_least=0, at_most=1, search=(0.0, 1.0)
    )
    ideal_weight: float = setting(0.0, "weight of the ideal low-pass filter in S", at_least=0, search=(0.0, 1.0))
    ideal_factors: int = setting(200, "eigenvectors of that filter", at_least=1, at_most=100_000)
    width: int = training.width(200, "length of an item's vector", (50, 400))
    dropout: float = setting(0.5, "dropout of the row that the network sees", at_least=0, search=(0.0, 0.8))
    smooth_: FloatArray = learned()  # (items, items): S

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dropout >= 1:
            raise InputError(f"Expected dropout to be below 1, got {self.dropout:g}: lower it.", "dropout")

    def before_training(self, train: Csr, valid: Fold | None, extra: Extra | None, rng: np.random.Generator) -> None:
        require_gram_memory(train.shape[1], "GiffCF", _MATRICES)
        self.smooth_ = item_graph(train, self.ideal_weight, self.ideal_factors, rng)

    def make_net(self, n_items: int) -> TwoStages:
        return TwoStages(n_items, self.width)

    def fit_bytes(self, shape: Shape) -> int:
        return super().fit_bytes(shape) + 4 * _MATRICES * shape.items**2

    def loss(self, rows: Csr, trained: nn.Module, rng: torch.Generator) -> Tensor:
        x = dense(rows, self.device)
        t = torch.randint(1, self.T + 1, (len(x), 1), generator=rng).to(self.device)
        z = x + t * self.slope(x)
        if self.noise_scale:
            sigma = self.noise_scale * self.noise_decay ** (self.T - t)
            z = z + sigma * torch.randn(x.shape, generator=rng).to(self.device)
        c = dropout(x, self.dropout, rng)
        predicted: Tensor = trained(z, c, self.smoothed(c), t[:, 0])
        return (predicted - x).square().sum(1).mean()

    def scores(self, history: Csr) -> Tensor:
        x = dense(history, self.device)
        smooth, z = self.smoothed(x), x + self.T * self.slope(x)
        for t in range(self.T, 0, -1):
            predicted: Tensor = self.net_(z, x, smooth, torch.full((len(x),), t, device=x.device))
            slope = self.slope(predicted)
            z = predicted + (t - 1) * slope + self.noise_decay * (z - predicted - t * slope)
        return z

    def smoothed(self, x: Tensor) -> Tensor:
        """Return x S."""
        return x @ torch.from_numpy(self.smooth_).to(x.device)

    def slope(self, x: Tensor) -> Tensor:
        """Return alpha/T (x S - x), one step of the heat equation: F_t x = x + t slope(x) is the mean of z_t."""
        return (self.smoothed(x) - x) * (self.alpha / self.T)


def item_graph(train: Csr, ideal_weight: float, ideal_factors: int, rng: np.random.Generator) -> FloatArray:
    """Return S (items, items): symmetric, with 1 as its largest eigenvalue."""
    n_items = train.shape[1]
    per_user, per_item = np.maximum(np.diff(train.indptr), 1), np.maximum(column_counts(train), 1)
    values = per_user[row_numbers(train)] ** -0.25 * per_item[train.indices] ** -0.5
    rows = csr_array((values.astype(np.float32), train.indices, train.indptr), shape=train.shape)
    eigenvalues, vectors = leading(rows, np.ones(n_items, np.float32), ideal_factors if ideal_weight else 1, rng)
    graph = np.ascontiguousarray(gram(rows)) / max(eigenvalues[-1], np.finfo(np.float32).tiny)
    if ideal_weight:
        graph = (graph + np.float32(ideal_weight) * vectors @ vectors.T) / np.float32(1 + ideal_weight)
    return np.asarray(graph, np.float32)
