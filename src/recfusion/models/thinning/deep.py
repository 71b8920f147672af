"""The deep denoiser of thinned rows: a network trained on the ranking part of the process's bound."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from recfusion.core.arrays import Csr, FloatArray, IntArray, column_counts
from recfusion.core.errors import InputError
from recfusion.models.neural import NeuralRecommender
from recfusion.models.scaling import relative
from recfusion.models.settings import learned, setting
from recfusion.nets.sparse import SparseRows
from recfusion.nets.vae import Autoencoder, DenseEncoder, multinomial_nll
from recfusion.training.loop import Phase

_NEVER = -1e9  # the logit of an item that has survived: it cannot be among the removed ones
_WARM_UP = 10  # epochs until the learning rate has risen to its highest


@dataclass
class ThinningDeep(NeuralRecommender):
    """A network that sees what survives thinning and says which items were removed.

    x_t keeps a share a of a user's ones, a uniform between `low` and `high`. The loss is the cross-entropy of the
    removed items under a softmax over the entries with x_t = 0: the ranking part of the bound's term at a, without
    its factor 1 / (1 - a), which would let the least noisy rows decide. A history is x_t at the noise level that it
    really has, and one reverse step ranks. The rate s(x_t, a) that the bound needs besides is in `deep_bound`.

    Strong weight decay under a learning rate that rises and falls is what makes so large a net generalise from a few
    thousand users; there is no early stopping to speak of.
    """

    lr: float = setting(2e-3, "highest learning rate of AdamW", at_least=0, search=(2e-4, 1e-2), log=True)
    weight_decay: float = setting(2.0, "weight decay of AdamW", at_least=0, search=(0.0, 6.0))
    batch_size: int = setting(
        500, "users in a batch; fewer if an epoch had less than ten batches", at_least=1, search=(100, 1000), log=True
    )
    max_epochs: int = setting(36, "epochs, over which the learning rate falls to 0", at_least=1)
    patience: int = setting(20, "epochs without a better validation ndcg@100 before training stops", at_least=1)
    width: int = setting(1000, "width of the encoder's layers", at_least=1, search=(200, 1200), log=True)
    layers: int = setting(5, "layers of the encoder", at_least=1, search=(1, 6))
    latent: int = setting(300, "length of a user's code", at_least=1, search=(50, 600), log=True)
    low: float = setting(0.4, "smallest share of ones that survives in training", at_least=0, search=(0.1, 0.7))
    high: float = setting(0.9, "largest share of ones that survives in training", at_least=0, search=(0.7, 1.0))
    input_power: float = setting(0.25, "items enter with their count to minus this power", search=(0.0, 0.5))
    item_weights_: FloatArray = learned()  # (items,)
    lengths_: IntArray = learned()  # how many training users have 0, 1, 2, ... items

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low <= self.high <= 1:
            raise InputError(f"Expected shares of survivors low <= high <= 1, got {self.low} and {self.high}.")

    def prepare(self, train: Csr) -> None:
        self.item_weights_ = relative(column_counts(train).astype(np.float32)) ** np.float32(-self.input_power)
        self.lengths_ = np.bincount(np.diff(train.indptr)).astype(np.int64)

    def make_net(self, n_items: int) -> Autoencoder:
        hidden = DenseEncoder(n_items, self.width, self.layers)
        nn.init.xavier_normal_(hidden.first.weight)  # smaller features would drown in the layer norm's eps
        nn.init.zeros_(hidden.first.bias)
        encoder = nn.Sequential(hidden, nn.Linear(self.width, self.latent))
        return Autoencoder(encoder, nn.Linear(self.latent, n_items))

    def phases(self, train: Csr, trained: nn.Module, rng: torch.Generator) -> Sequence[Phase]:
        return [Phase(lambda rows: self._loss(SparseRows.of(rows, self.device), rng))]

    def rate(self, epoch: int) -> float:
        risen = min(1.0, epoch / min(_WARM_UP, self.max_epochs))
        return self.lr * risen * 0.5 * (1 + math.cos(math.pi * (epoch - 1) / self.max_epochs))

    @torch.no_grad()
    def score(self, history: Csr) -> FloatArray:
        return self.logits(SparseRows.of(history, self.device)).cpu().numpy()

    def logits(self, xt: SparseRows) -> Tensor:
        """Return the logits (rows, items) of the items that are missing from x_t."""
        weights = torch.from_numpy(self.item_weights_).to(self.device)
        out: Tensor = self.net_(xt.weighted(xt.values * weights[xt.columns]).normalised())
        return out

    def _loss(self, x0: SparseRows, rng: torch.Generator) -> Tensor:
        a = self.low + (self.high - self.low) * torch.rand(len(x0.starts), generator=rng).to(self.device)
        kept = torch.rand(len(x0.columns), generator=rng).to(self.device) < a[x0.row_of]
        xt, removed = x0.only(kept), x0.only(~kept)
        logits = self.logits(xt).index_put((xt.row_of, xt.columns), torch.tensor(_NEVER, device=self.device))
        return multinomial_nll(logits, removed).mean()
