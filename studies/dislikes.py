"""MultVAE and RecFusion with known dislikes in the loss: a known zero costs more than a missing one.

Load them as `studies/dislikes.py:MultVAEDislikes` and `studies/dislikes.py:RecFusionDislikes`.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from scipy.sparse import csr_array, hstack
from torch import Tensor, nn

from recfusion.core.arrays import Csr, row_numbers
from recfusion.data.interactions import Signal
from recfusion.data.signals import Extra
from recfusion.models.neural import training_settings as training
from recfusion.models.neural.network import NeuralRecommender
from recfusion.models.neural.vae import MultVAE
from recfusion.models.recfusion.recfusion import RecFusion
from recfusion.models.settings import setting

_RATINGS: frozenset[Signal] = frozenset({"grades"})
_COST = "cost of a known dislike, beside the other zeros"
_SURE = 1 - 1e-6  # the largest probability in the loss: its logarithm must stay finite
# As a dataclass, the mixin would replace the defaults of the network by those of its own base class.
if TYPE_CHECKING:
    _Network = NeuralRecommender
else:
    _Network = object


class DislikesInLoss(_Network):
    """Adds dislike * sum over a user's known dislikes of -log p(x_i = 0) to a network's loss."""

    dislike: float

    def cost_of_zero(self, outputs: Tensor) -> Tensor:
        """Return -log p(x_i = 0) for each output of `scores`, (users, items); for a softmax -log(1 - p_i)."""
        return -torch.log1p(-outputs.softmax(1).clamp(max=_SURE))

    def training_rows(self, encoded: Csr, extra: Extra | None) -> Csr:
        """Return rows of likes with the dislikes as further columns, (users, 2 items)."""
        self._n_items = encoded.shape[1]
        if extra is None or extra.disliked is None or not self.dislike:
            return encoded
        disliked = extra.disliked
        ones = csr_array((np.ones(disliked.nnz, np.float32), disliked.indices, disliked.indptr), disliked.shape)
        return csr_array(hstack([encoded, ones], "csr"))

    def loss(self, rows: Csr, trained: nn.Module, rng: torch.Generator) -> Tensor:
        if rows.shape[1] == self._n_items:
            return super().loss(rows, trained, rng)  # type: ignore[safe-super]
        likes, dislikes = rows[:, : self._n_items], rows[:, self._n_items :]
        plain: Tensor = super().loss(likes, trained, rng)  # type: ignore[safe-super]
        return plain + self.dislike_loss(likes, dislikes)

    def dislike_loss(self, rows: Csr, disliked: Csr) -> Tensor:
        """Return dislike * sum over a user's known dislikes of -log p(x_i = 0), mean over the users of a batch."""
        place = torch.from_numpy((row_numbers(disliked) * disliked.shape[1] + disliked.indices).astype(np.int64))
        costs = self.cost_of_zero(self.scores(rows)).reshape(-1)
        return self.dislike * costs[place.to(costs.device)].sum() / rows.shape[0]


@dataclass
class MultVAEDislikes(DislikesInLoss, MultVAE):
    """MultVAE with known dislikes in its loss."""

    reads: ClassVar[frozenset[Signal]] = _RATINGS
    dislike: float = setting(1.0, _COST, at_least=0, search=(0.1, 10.0), log=True)


@dataclass
class RecFusionDislikes(DislikesInLoss, RecFusion):
    """RecFusion in whose loss a known dislike weighs 1 + dislike, and any other zero 1."""

    reads: ClassVar[frozenset[Signal]] = _RATINGS
    dislike: float = setting(1.0, _COST, at_least=0, search=(0.1, 10.0), log=True)
    weight_decay: float = training.weight_decay(3.0)

    def cost_of_zero(self, outputs: Tensor) -> Tensor:
        """Return the process's error of x^0 where that is 0, from the reverse step that ranks, (users, items)."""
        return self.make_process(self.means).x0_error(outputs, torch.zeros_like(outputs))
