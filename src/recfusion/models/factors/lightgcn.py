"""LightGCN (He et al., 2020): factors of users and items, averaged over walks in the graph of interactions."""

from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn.functional import softplus

from recfusion.core.arrays import Csr, IntArray, column_counts, row_numbers
from recfusion.data.signals import Extra, valued
from recfusion.models.base import Shape
from recfusion.models.baselines.graph_filter import normalised
from recfusion.models.neural import training_settings as training
from recfusion.models.neural.network import NeuralRecommender
from recfusion.models.settings import learned, setting
from recfusion.nets.sparse import SparseRows, sparse_product


class Factors(nn.Module):
    """The factors of users and items before the first step, (users, width) and (items, width)."""

    def __init__(self, n_users: int, n_items: int, width: int) -> None:
        super().__init__()
        self.users = nn.Parameter(torch.empty(n_users, width).normal_(std=0.1))
        self.items = nn.Parameter(torch.empty(n_items, width).normal_(std=0.1))


@dataclass
class LightGCN(NeuralRecommender):
    """Inner products of the factors of users and items, averaged over 0 to `layers` steps of the graph.

    With A = D_u^-1/2 X D_i^-1/2 a step is u <- A i, i <- A'u. The loss is BPR, -log sigmoid(s_ui - s_uj) for every item
    i of a user and a random other item j, plus l2 times half the squared factors. An epoch has every interaction once.
    A history that equals a training row has that user's factor; any other has only what the steps bring from its items.
    """

    lr: float = training.lr(1e-2)
    batch_size: int = training.batch_size(100, (20, 1000))
    max_epochs: int = training.max_epochs(1000)
    patience: int = training.patience(20)
    width: int = training.width(64, "length of a factor", (16, 256))
    layers: int = setting(3, "steps over the graph", at_least=1, at_most=100, search=(1, 4))
    l2: float = setting(1e-4, "weight of the squared factors", at_least=0, search=(1e-6, 1e-1), log=True)
    rows_: Csr = learned()  # (training users, items)
    # Computed from the rows and the network when they are first needed.
    _graph: tuple[SparseRows, SparseRows] | None = field(init=False, default=None, repr=False, compare=False)
    _users: dict[bytes, int] | None = field(init=False, default=None, repr=False, compare=False)
    _walks: tuple[object, Tensor, Tensor] | None = field(init=False, default=None, repr=False, compare=False)

    def prepare(self, train: Csr) -> None:
        self.rows_, self._graph, self._users, self._walks = train, None, None, None

    def make_net(self, n_items: int) -> Factors:
        return Factors(self.rows_.shape[0], n_items, self.width)

    def training_rows(self, encoded: Csr, extra: Extra | None) -> Csr:
        """Return rows with the numbers of the users, so that a batch knows its users."""
        n_users = encoded.shape[0]
        return csr_array((np.ones(n_users, np.float32), np.arange(n_users), np.arange(n_users + 1)), (n_users, n_users))

    def loss(self, rows: Csr, trained: nn.Module, rng: torch.Generator) -> Tensor:
        assert isinstance(trained, Factors)
        users, items = self.walked(trained)
        own = self.rows_[rows.indices]
        of = torch.from_numpy(np.repeat(rows.indices, np.diff(own.indptr)).astype(np.int64)).to(self.device)
        liked = torch.from_numpy(own.indices.astype(np.int64)).to(self.device)
        other = self._others(own, rng).to(self.device)
        u, i, j = users[of], items[liked], items[other]
        squared = sum(e.square().sum() for e in (trained.users[of], trained.items[liked], trained.items[other]))
        return softplus((u * (j - i)).sum(1)).mean() + self.l2 / 2 * squared / max(1, len(of))

    def _others(self, own: Csr, rng: torch.Generator) -> Tensor:
        """Return a random item for each entry that its row lacks; after ten draws, whatever was drawn."""
        n_items, row_of = own.shape[1], row_numbers(own).astype(np.int64)
        taken = row_of * n_items + own.indices
        drawn = torch.randint(n_items, (own.nnz,), generator=rng).numpy()
        for _ in range(10):
            wrong = np.flatnonzero(np.isin(row_of * n_items + drawn, taken))
            drawn[wrong] = torch.randint(n_items, (len(wrong),), generator=rng).numpy()
        return torch.from_numpy(drawn)

    def walked(self, net: Factors) -> tuple[Tensor, Tensor]:
        """Return the mean factors of users and items over all steps."""
        u, i = self._steps(net)
        return torch.stack(u).mean(0), torch.stack(i).mean(0)

    def _steps(self, net: Factors) -> tuple[list[Tensor], list[Tensor]]:
        if self._graph is None:
            rows = normalised(self.rows_)
            self._graph = SparseRows.of(rows, self.device), SparseRows.of(rows.T.tocsr(), self.device)
        to_users, to_items = self._graph
        users: list[Tensor] = [net.users]
        items: list[Tensor] = [net.items]
        for _ in range(self.layers):
            users, items = (
                [*users, sparse_product(to_users, items[-1])],
                [*items, sparse_product(to_items, users[-1])],
            )
        return users, items

    def scores(self, history: Csr) -> Tensor:
        net = self.net_
        assert isinstance(net, Factors)
        # The optimizer changes weights in place, also without a new version of the tensor.
        state = (float(net.users.sum(dtype=torch.float64)), float(net.items.sum(dtype=torch.float64)))
        if self._walks is None or self._walks[0] != state:
            _, items = self._steps(net)
            self._walks = (state, torch.stack(items[:-1]).sum(0), torch.stack(items).mean(0))
        _, towards, means = self._walks
        counts, lengths = np.maximum(1, column_counts(self.rows_)), np.diff(history.indptr)
        values = 1 / np.sqrt(np.repeat(lengths, lengths) * counts[history.indices])
        u = SparseRows.of(valued(history, values.astype(np.float32)), self.device).times(towards)
        known = torch.from_numpy(self._users_of(history)).to(self.device)
        u += torch.where(known[:, None] >= 0, net.users[known.clamp(min=0)], 0)
        scores: Tensor = u @ means.T / (self.layers + 1)
        return scores

    def _users_of(self, history: Csr) -> IntArray:
        """Return the training user with each history, or -1."""
        if self._users is None:
            keys = _keys(self.rows_)
            self._users = {key: user for user, key in reversed(list(enumerate(keys)))}  # the first of equal rows
        return np.array([self._users.get(key, -1) for key in _keys(history)], np.int64)

    def fit_bytes(self, shape: Shape) -> int:
        """Return the bytes of the factors of all steps with their gradients, and of the graph."""
        return 4 * self.width * (shape.users + shape.items) * (3 * self.layers + 8) + 60 * shape.interactions

    @property
    def keeps_histories(self) -> bool:
        return True


def _keys(rows: Csr) -> list[bytes]:
    """Return the items of each row as bytes."""
    whole = rows.sorted_indices()
    return [part.astype(np.int32).tobytes() for part in np.split(whole.indices, whole.indptr[1:-1])]
