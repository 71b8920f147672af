"""A network from rows of states, "unseen" or a rating per item, to logits of each item's state."""

import torch
from scipy.sparse import csr_array
from torch import Tensor, nn

from recfusion.nets.sparse import SparseRows
from recfusion.nets.vae import DenseEncoder


class RatingNet(nn.Module):
    """Logits (rows, items, K) of rows of states 0..K-1; every pair of item and rating has its own input."""

    def __init__(self, n_items: int, states: int, *, width: int, layers: int) -> None:
        super().__init__()
        self.n_items, self.states = n_items, states
        self.encoder = DenseEncoder(n_items * (states - 1), width, layers)
        nn.init.xavier_normal_(self.encoder.first.weight)  # the eps of the layer norm would hide smaller features
        nn.init.zeros_(self.encoder.first.bias)
        self.decoder = nn.Linear(width, n_items * states)

    def forward(self, rows: SparseRows) -> Tensor:
        """Return the logits (rows, items, K) of rows with states as values."""
        inputs = SparseRows(
            rows.columns * (self.states - 1) + rows.values.long() - 1,
            rows.starts,
            torch.ones_like(rows.values),
            rows.row_of,
        )
        out: Tensor = self.decoder(self.encoder(inputs.normalised()))
        return out.reshape(-1, self.n_items, self.states)

    def denoise(self, xt: Tensor) -> Tensor:
        """Return the logits of dense rows (rows, items); the number of seen items shows the step t."""
        out: Tensor = self(SparseRows.of(csr_array(xt.detach().cpu().numpy()), xt.device))
        return out
