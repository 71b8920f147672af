"""The deep denoiser of ordered histories: the newest entries are removed, and predicted from bags of the older ones."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor, nn

from recfusion.core.arrays import Csr, IntArray, row_numbers
from recfusion.data.interactions import Signal
from recfusion.data.signals import Extra, valued
from recfusion.models.sequence.recency import in_order
from recfusion.models.settings import setting
from recfusion.models.thinning.deep import ThinningDeep
from recfusion.nets.sparse import NEVER, SparseRows

_POWERS = (0.25, 1.0, 2.0)  # of the bags, from long-term to short-term taste
_LEAST = 1e-3  # targets with a smaller weight are left out


@dataclass
class ThinningOrder(ThinningDeep):
    """`ThinningDeep` with noise that follows the order: all entries after a random place in the history are removed.

    Each older entry survives with a probability drawn uniformly between `low` and `high`. The d-th removed entry is a
    target with the weight exp(-(d - 1) / reach), as in `recfusion-seq`. The network reads the survivors as three bags
    of items: in bag k, the entry with r newer ones has the weight (1 + r)^-p_k, with p = 1/4, 1 and 2, and
    input vectors of its own. So order costs no attention: a history of any length is three sums of vectors.

    Entries with equal times have no order: training draws a random one. Without times this applies to all entries.
    """

    reads: ClassVar[frozenset[Signal]] = frozenset({"times"})
    n_bags: ClassVar[int] = len(_POWERS)
    layers: int = setting(3, "layers of the encoder", at_least=1, at_most=1000, search=(1, 6))
    reach: float = setting(5.0, "how far ahead the loss looks, in entries", at_least=1e-3, search=(0.5, 20), log=True)
    earliest: float = setting(0.4, "smallest share of a history before the place", at_least=0, at_most=1)

    def encoded(self, history: Csr, extra: Extra | None) -> Csr:
        return in_order(history, extra)

    def scores(self, history: Csr) -> Tensor:
        return self.logits(SparseRows.of(valued(history, 1 - history.data), self.device))

    def logits(self, xt: SparseRows) -> Tensor:
        """Return the logits (rows, items) of the next entries; the values of `xt` are 1 + r for r newer entries."""
        weights = torch.from_numpy(self.item_weights_).to(self.device)[xt.columns]
        bags = [xt.weighted(xt.values**-power * weights).normalised().values for power in _POWERS]
        shifted = [xt.columns + bag * len(self.item_weights_) for bag in range(len(bags))]
        columns, values = (torch.stack(each, 1).flatten() for each in (shifted, bags))  # an entry's bags side by side
        both = SparseRows(columns, len(bags) * xt.starts, values, xt.row_of.repeat_interleave(len(bags)))
        out: Tensor = self.net_(both)
        return out

    def loss(self, rows: Csr, trained: nn.Module, rng: torch.Generator) -> Tensor:
        draws = np.random.default_rng(int(torch.randint(2**62, (1,), generator=rng)))
        example = draw_example(rows, self, draws)
        if not example.targets.nnz:  # no user of the batch has two items
            return 0 * self._bias().sum()
        xt, targets = (SparseRows.of(part, self.device) for part in (example.shown, example.targets))
        past = tuple(torch.from_numpy(part.astype(np.int64)).to(self.device) for part in example.past)
        logits = self.logits(xt).index_put_(past, torch.tensor(NEVER, device=self.device))
        return self.mean_loss(logits, targets, targets.sums().clamp(min=_LEAST))


@dataclass(frozen=True)
class Example:
    """Ordered rows that are cut at a random place: what is shown of the past, and what comes after it."""

    shown: Csr  # (rows, items): 1 + the number of newer survivors
    targets: Csr  # (rows, items): the weights of the entries after the place
    past: tuple[IntArray, IntArray]  # row and item of all entries before the place, shown or not


def draw_example(rows: Csr, model: ThinningOrder, draws: np.random.Generator) -> Example:
    """Cut each row at a random place and thin the entries before it; rows with a single entry are left out."""
    rows = rows[np.flatnonzero(np.diff(rows.indptr) > 1)]
    lengths, of_row = np.diff(rows.indptr), row_numbers(rows)
    items = rows.indices[np.lexsort((draws.random(rows.nnz), rows.data, of_row))]  # oldest first, ties at random
    entry = np.arange(rows.nnz) - np.repeat(rows.indptr[:-1], lengths)  # position of the entry in its row
    first = np.clip(np.floor(model.earliest * lengths), 1, lengths - 1).astype(np.int64)
    ahead = entry - draws.integers(first, lengths - 1, endpoint=True)[of_row]  # 0 for the next entry
    survives = (ahead < 0) & (draws.random(rows.nnz) < draws.uniform(model.low, model.high, len(lengths))[of_row])
    count = np.cumsum(survives)
    newer = np.append(0, count)[rows.indptr[1:]][of_row] - count  # survivors after each entry
    weights = np.exp(-np.maximum(ahead, 0) / model.reach)

    def part(chosen: NDArray[np.bool_], values: NDArray[np.generic]) -> Csr:
        starts = np.append(0, np.cumsum(np.bincount(of_row[chosen], minlength=len(lengths))))
        return csr_array((values[chosen].astype(np.float32), items[chosen], starts), shape=rows.shape)

    past = ahead < 0
    targets = part(~past & (weights >= _LEAST), weights)
    return Example(part(survives, 1 + newer), targets, (of_row[past], items[past]))
