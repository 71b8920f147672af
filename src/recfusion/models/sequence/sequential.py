"""Attention over a history in order: recfusion-seq, a thinning denoiser, and sasrec, next-item prediction."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from recfusion.core.arrays import Csr, IntArray, column_counts, row_numbers
from recfusion.core.errors import InputError
from recfusion.data.interactions import Signal
from recfusion.data.signals import Extra
from recfusion.models.base import Shape
from recfusion.models.neural import training_settings as training
from recfusion.models.neural.network import NeuralRecommender
from recfusion.models.sequence.recency import in_order
from recfusion.models.settings import setting
from recfusion.nets.sequence import SequenceNet
from recfusion.nets.sparse import NEVER

_FLOPS = 1.5e10  # multiply-adds per second on one core, roughly
_LEAST = 1e-3  # targets with a smaller weight are left out


@dataclass
class SequentialRecommender(NeuralRecommender):
    """A causal attention network over the last `length` items of a history.

    The noise follows the order: all entries newer than a place in the history are removed, and each older entry
    survives with a probability drawn uniformly between `low` and `high`. The loss at a place is the cross-entropy of
    the entries after it, under a softmax over the items that are not past; the d-th entry has the weight
    exp(-(d - 1) / reach). The network is causal, so one pass serves `places` places of each history. With reach 0 and
    low 1 the target is the next item alone, as in SASRec (Kang and McAuley, 2018), with a softmax over all items
    instead of one sampled negative.

    Entries with equal times have no order: training draws a random one, scoring uses the order of the columns. Without
    times this applies to all entries.
    """

    reads: ClassVar[frozenset[Signal]] = frozenset({"times"})
    maps: ClassVar[float] = 4.5
    lr: float = training.lr(2e-3)
    weight_decay: float = training.weight_decay(0.1, 3.0)
    batch_size: int = training.batch_size(32, (16, 256))
    max_epochs: int = training.max_epochs(30)
    patience: int = training.patience(4)
    reach: float = setting(2.0, "how far ahead the loss looks, in entries; 0: next item", at_least=0, search=(0, 20))
    length: int = setting(100, "newest items of a history that are read", at_least=1, at_most=10_000)
    width: int = training.width(64, "length of an item's vector", (32, 128))
    layers: int = setting(2, "attention layers", at_least=1, at_most=1000, search=(1, 3))
    heads: int = setting(2, "attention heads", at_least=1, at_most=10_000)
    places: int = setting(16, "places per history in an epoch's loss", at_least=1, at_most=10_000)
    low: float = setting(0.5, "smallest share of older entries that survives in training", at_least=0)
    high: float = setting(1.0, "largest share of older entries that survives in training", at_least=0)
    earliest: float = setting(0.4, "smallest share of the read entries before a place", at_least=0)
    dropout: float = setting(0.1, "dropout in the network", at_least=0, search=(0, 0.5))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.heads:
            raise InputError(f"Expected a width divisible by {self.heads} heads, got {self.width}: round it.", "width")
        if not 0 < self.low <= self.high <= 1 or self.dropout >= 1 or self.earliest > 1:
            raise InputError(
                f"Expected shares 0 < low <= high <= 1, earliest up to 1 and a dropout below 1, got {self.low:g}, "
                f"{self.high:g}, {self.earliest:g} and {self.dropout:g}."
            )

    def encoded(self, history: Csr, extra: Extra | None) -> Csr:
        return in_order(history, extra)

    def prepare(self, train: Csr) -> None:
        counts = column_counts(train) + 0.5
        self._popularity = torch.from_numpy(np.log(counts / counts.sum())).float()

    def make_net(self, n_items: int) -> SequenceNet:
        return SequenceNet(n_items, self.length, width=self.width, layers=self.layers, heads=self.heads)

    def training_module(self) -> nn.Module:
        assert isinstance(self.net_, SequenceNet)
        with torch.no_grad():
            self.net_.out.bias.copy_(self._popularity)
            self.net_.out.weight.mul_(0.1)  # training starts near popularity
        return self.net_

    def scores(self, history: Csr) -> Tensor:
        if not history.shape[0]:
            return torch.zeros(history.shape, device=self.device)
        counts = np.diff(history.indptr)
        read = np.minimum(counts, self.length)
        items = pad(items_in_order(history), history.indptr[1:] - read, read, history.shape[1])
        return self.logits_at(items, torch.from_numpy(read.astype(np.int64))[:, None])[:, 0]

    def loss(self, rows: Csr, trained: nn.Module, rng: torch.Generator) -> Tensor:
        draws = np.random.default_rng(int(torch.randint(2**62, (1,), generator=rng)))
        example = draw_batch(rows, self, draws)
        logits = self.logits_at(example.items, example.places, rng).flatten(0, 1)  # (users * places, items)
        masked = logits.index_put(example.past, torch.tensor(NEVER, device=self.device))
        place, item = (part.to(self.device) for part in example.targets)
        weights = example.weights.to(self.device)
        each = torch.bincount(place, weights, minlength=len(logits))  # total weight of each place's targets
        return -(masked.log_softmax(1)[place, item] * weights / each[place]).sum() / (each > 0).sum().clamp(min=1)

    def seconds(self, shape: Shape) -> float:
        tokens = shape.users * min(self.length, 2 * shape.interactions / max(1, shape.users))
        layer = 10 * self.width**2 + 4 * self.length * self.width
        cost = tokens * self.layers * layer + shape.users * self.places * self.width * shape.items
        return self.max_epochs * 6 * cost / _FLOPS

    def batch_bytes(self, shape: Shape) -> int:
        return super().batch_bytes(shape) * self.places

    def logits_at(self, items: Tensor, places: Tensor, rng: torch.Generator | None = None) -> Tensor:
        """Return the item logits at `places` of the sequences, (users, places, items)."""
        assert isinstance(self.net_, SequenceNet)
        states = self.net_(items.to(self.device), self.dropout, rng)
        at = places.to(self.device)[..., None].expand(-1, -1, states.shape[2])
        out: Tensor = self.net_.out(states.gather(1, at))
        return out


@dataclass(frozen=True)
class TrainingBatch:
    """Thinned sequences, with the past items and the target items of some places in each."""

    items: Tensor  # (users, n): oldest first, padded with the number of items
    places: Tensor  # (users, places): the number of entries before each place
    past: tuple[Tensor, Tensor]  # pairs of place, numbered over all users, and item
    targets: tuple[Tensor, Tensor]
    weights: Tensor  # of the targets


def draw_batch(rows: Csr, model: SequentialRecommender, draws: np.random.Generator) -> TrainingBatch:
    """Thin each sequence, draw a window of `length` surviving entries, and draw places in it."""
    n_users, items = rows.shape[0], items_in_order(rows, draws)
    of_row = row_numbers(rows)
    survives = np.ones(rows.nnz, bool)
    if model.low < 1:
        survives = draws.random(rows.nnz) < draws.uniform(model.low, model.high, n_users)[of_row]
    before = np.concatenate([[0], np.cumsum(survives)])
    starts, left = before[rows.indptr[:-1]], np.diff(before[rows.indptr])
    read = np.minimum(left, model.length)
    skipped = draws.integers(0, left - read, endpoint=True)  # survivors before the window: past, but not read
    first = np.floor(model.earliest * read)[:, None].astype(np.int64)
    places = draws.integers(first, read[:, None], (n_users, model.places), endpoint=True)
    entry = np.arange(rows.nnz) - rows.indptr[:-1][of_row]  # position of the entry in its row
    ends = np.concatenate([[0], entry[survives] + 1])  # number of entries up to each survivor
    seen = (skipped + starts)[:, None] + places
    past = np.where(skipped[:, None] + places > 0, ends[seen], 0)  # (users, places)
    ahead = entry[:, None] - past[of_row]  # (entries, places): 0 for the next
    weights = np.exp(-ahead.clip(min=0) / model.reach) if model.reach else (ahead == 0).astype(np.float64)
    asked = (ahead >= 0) & (weights >= _LEAST)

    def pairs(chosen: NDArray[np.bool_]) -> tuple[Tensor, Tensor]:
        entry, place = chosen.nonzero()
        return torch.from_numpy(of_row[entry].astype(np.int64) * model.places + place), torch.from_numpy(items[entry])

    tokens = pad(items[survives], starts + skipped, read, rows.shape[1])
    target_weights = torch.from_numpy(weights[asked].astype(np.float32))
    return TrainingBatch(tokens, torch.from_numpy(places), pairs(ahead < 0), pairs(asked), target_weights)


def items_in_order(rows: Csr, draws: np.random.Generator | None = None) -> IntArray:
    """Return the items of each row in order of their values; ties are in random order with `draws`, else by column."""
    ties = rows.indices if draws is None else draws.random(rows.nnz)
    return rows.indices[np.lexsort((ties, rows.data, row_numbers(rows)))].astype(np.int64)


def pad(items: IntArray, starts: IntArray, counts: IntArray, end: int) -> Tensor:
    """Return slices of `items` as rows (rows, longest), padded with `end`."""
    place = np.arange(counts.max(initial=0))
    inside = place < counts[:, None]
    found = np.full(inside.shape, end, np.int64)
    found[inside] = items[(starts[:, None] + place)[inside]]
    return torch.from_numpy(found)
