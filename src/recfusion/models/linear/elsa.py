"""ELSA: a linear autoencoder of low rank, trained by gradient (Vancura et al., 2022)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from recfusion.core.arrays import Csr
from recfusion.models.neural.network import NeuralRecommender
from recfusion.models.settings import setting
from recfusion.nets.sparse import SparseRows, sparse_product


class LowRank(nn.Module):
    """x B with B = A A' - I; the rows of A have length 1, so that B has a zero diagonal."""

    def __init__(self, n_items: int, factors: int) -> None:
        super().__init__()
        self.factors = nn.Parameter(torch.randn(n_items, factors))

    def rows(self) -> Tensor:
        return normalize(self.factors, dim=1)

    def forward(self, x: SparseRows) -> Tensor:
        a = self.rows()
        return (sparse_product(x, a) @ a.T).index_put_((x.row_of, x.columns), -x.values, accumulate=True)


@dataclass
class ELSA(NeuralRecommender):
    """Weights A A' - I that minimise the squared distance of a user's row and its image, both scaled to length 1.

    A has a row for each item: memory and time grow with items x factors instead of items x items.
    """

    maps: ClassVar[float] = 17.0
    lr: float = setting(0.05, "learning rate of AdamW", at_least=0, search=(1e-3, 0.3), log=True)
    factors: int = setting(256, "length of an item's vector", at_least=1, at_most=100_000, search=(64, 1024), log=True)

    def make_net(self, n_items: int) -> LowRank:
        return LowRank(n_items, self.factors)

    def loss(self, rows: Csr, trained: nn.Module, rng: torch.Generator) -> Tensor:
        """Return the mean over users of |x / |x| - xB / |xB||^2, which is 2 - 2 cos(x, xB)."""
        x = SparseRows.of(rows, self.device).normalised()
        image = normalize(trained(x), dim=1)
        common = x.weighted(x.values * image[x.row_of, x.columns]).sums()
        return (2 - 2 * common).mean()

    def scores(self, history: Csr) -> Tensor:
        scores: Tensor = self.net_(SparseRows.of(history, self.device))
        return scores
