"""Models that read a history in its order: a denoiser of ordered rows, and the next item as its opponent does it."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from recfusion.core.arrays import Csr, IntArray, column_counts, row_numbers
from recfusion.core.errors import InputError
from recfusion.data.interactions import Signal
from recfusion.data.signals import Extra, valued
from recfusion.models.base import Shape
from recfusion.models.neural.network import NeuralRecommender
from recfusion.models.sequence.recency import newer
from recfusion.models.settings import setting
from recfusion.nets.sequence import SequenceNet

_FLOPS = 1.5e10  # multiply-adds in a second on one core, about
_LEAST = 1e-3  # weight of an entry below which it is not asked for
_NEVER = -1e9  # the logit of an item that is there already: finite, for a softmax over nothing would be NaN


@dataclass
class Sequential(NeuralRecommender):
    """A causal network over the last `length` items of a history.

    The noise follows the order: what is newer than a place of the history is removed, and of the rest each entry
    survives with a share a, uniform between `low` and `high`. Removed entries come back from the place on: the d-th of
    them counts exp(-(d - 1) / reach) in the loss, the cross-entropy under a softmax over what is newer or was never
    there. As the net is causal, one pass serves `places` noise levels of each history. With reach 0 and nothing thinned
    the next item alone is to be found, as SASRec does (Kang and McAuley, 2018), with a softmax over all items instead
    of one drawn negative.

    Entries of one time have no order among them: in training it is drawn, at scoring it is that of the columns. Without
    times that holds for all entries.
    """

    reads: ClassVar[frozenset[Signal]] = frozenset({"times"})
    maps: ClassVar[float] = 4.5
    lr: float = setting(2e-3, "learning rate of AdamW", at_least=0, search=(1e-4, 1e-2), log=True)
    weight_decay: float = setting(0.1, "weight decay of AdamW", at_least=0, search=(0.0, 3.0))
    batch_size: int = setting(
        32, "users in a batch; fewer if an epoch had less than ten batches", at_least=1, search=(16, 256), log=True
    )
    max_epochs: int = setting(30, "epochs at the most", at_least=1, at_most=100_000)
    patience: int = setting(4, "epochs without a better validation ndcg@100 before training stops", at_least=1)
    reach: float = setting(
        2.0,
        "how many of the removed entries the loss looks ahead; 0: to the next alone",
        at_least=0,
        search=(0, 20),
    )
    length: int = setting(100, "items of a history that are read, the latest ones", at_least=1, at_most=10_000)
    width: int = setting(
        64, "length of an item's vector, and of a history's", at_least=1, at_most=100_000, search=(32, 128), log=True
    )
    layers: int = setting(2, "layers of attention", at_least=1, at_most=1000, search=(1, 3))
    heads: int = setting(2, "parts of a vector that attend on their own", at_least=1, at_most=10_000)
    places: int = setting(16, "places of a history that are learned from in an epoch", at_least=1, at_most=10_000)
    low: float = setting(0.5, "smallest share of older entries that survives in training", at_least=0)
    high: float = setting(1.0, "largest share of older entries that survives in training", at_least=0)
    earliest: float = setting(0.4, "share of what is read that a place has before it at the least", at_least=0)
    dropout: float = setting(0.1, "share of the net's numbers that is dropped in training", at_least=0, search=(0, 0.5))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.heads:
            raise InputError(f"Expected a width that {self.heads} heads divide, got {self.width}: round it.")
        if not 0 < self.low <= self.high <= 1 or self.dropout >= 1 or self.earliest > 1:
            raise InputError(
                f"Expected shares 0 < low <= high <= 1, earliest up to 1 and a dropout below 1, got {self.low:g}, "
                f"{self.high:g}, {self.earliest:g} and {self.dropout:g}."
            )

    def encoded(self, history: Csr, extra: Extra | None) -> Csr:
        """Return the histories with how many of their entries are older or as old, the newest having the most."""
        times = None if extra is None else extra.times
        order = np.zeros(history.nnz) if times is None else -newer(times)
        return valued(history, order.astype(np.float32))

    def prepare(self, train: Csr) -> None:
        counts = column_counts(train) + 0.5
        self._popularity = torch.from_numpy(np.log(counts / counts.sum())).float()

    def make_net(self, n_items: int) -> SequenceNet:
        return SequenceNet(n_items, self.length, width=self.width, layers=self.layers, heads=self.heads)

    def trainee(self) -> nn.Module:
        assert isinstance(self.net_, SequenceNet)
        with torch.no_grad():
            self.net_.out.bias.copy_(self._popularity)
            self.net_.out.weight.mul_(0.1)  # so that training begins near popularity
        return self.net_

    def scores(self, history: Csr) -> Tensor:
        if not history.shape[0]:
            return torch.zeros(history.shape, device=self.device)
        counts = np.diff(history.indptr)
        read = np.minimum(counts, self.length)
        items = padded(in_order(history), history.indptr[1:] - read, read, history.shape[1])
        return self.logits_at(items, torch.from_numpy(read.astype(np.int64))[:, None])[:, 0]

    def loss(self, rows: Csr, trained: nn.Module, rng: torch.Generator) -> Tensor:
        draws = np.random.default_rng(int(torch.randint(2**62, (1,), generator=rng)))
        example = thinned(rows, self, draws)
        logits = self.logits_at(example.items, example.places, rng).flatten(0, 1)  # (users * places, items)
        masked = logits.index_put(example.past, torch.tensor(_NEVER, device=self.device))
        place, item = (part.to(self.device) for part in example.targets)
        weights = example.weights.to(self.device)
        each = torch.bincount(place, weights, minlength=len(logits))  # how much is asked at each place
        return -(masked.log_softmax(1)[place, item] * weights / each[place]).sum() / (each > 0).sum().clamp(min=1)

    def seconds(self, shape: Shape) -> float:
        tokens = shape.users * min(self.length, 2 * shape.interactions / max(1, shape.users))
        layer = 10 * self.width**2 + 4 * self.length * self.width
        cost = tokens * self.layers * layer + shape.users * self.places * self.width * shape.items
        return self.max_epochs * 6 * cost / _FLOPS

    def batch_bytes(self, shape: Shape) -> int:
        return super().batch_bytes(shape) * self.places

    def logits_at(self, items: Tensor, places: Tensor, rng: torch.Generator | None = None) -> Tensor:
        """Return the logits of all items after `places` of the sequences, (users, places, items)."""
        assert isinstance(self.net_, SequenceNet)
        states = self.net_(items.to(self.device), self.dropout, rng)
        at = places.to(self.device)[..., None].expand(-1, -1, states.shape[2])
        out: Tensor = self.net_.out(states.gather(1, at))
        return out


@dataclass(frozen=True)
class Example:
    """A batch of thinned sequences: what is left of each, and at some of its places what is past and what is asked."""

    items: Tensor  # (users, n): oldest first, then the number beyond the items
    places: Tensor  # (users, places): how many of them a place has before it
    past: tuple[Tensor, Tensor]  # pairs of place, counted over all users, and item
    targets: tuple[Tensor, Tensor]
    weights: Tensor  # of the targets


def thinned(rows: Csr, model: Sequential, draws: np.random.Generator) -> Example:
    """Draw what is left of each sequence, a stretch of `length` entries of that, and places in it."""
    n_users, items = rows.shape[0], in_order(rows, draws)
    of_row = row_numbers(rows)
    survives = np.ones(rows.nnz, bool)
    if model.low < 1:
        survives = draws.random(rows.nnz) < draws.uniform(model.low, model.high, n_users)[of_row]
    before = np.concatenate([[0], np.cumsum(survives)])
    starts, left = before[rows.indptr[:-1]], np.diff(before[rows.indptr])
    read = np.minimum(left, model.length)
    skipped = draws.integers(0, left - read, endpoint=True)  # survivors older than the stretch: seen, and not read
    first = np.floor(model.earliest * read)[:, None].astype(np.int64)
    places = draws.integers(first, read[:, None], (n_users, model.places), endpoint=True)
    entry = np.arange(rows.nnz) - rows.indptr[:-1][of_row]  # number of the entry in its row
    ends = np.concatenate([[0], entry[survives] + 1])  # entries up to each survivor
    seen = (skipped + starts)[:, None] + places
    past = np.where(skipped[:, None] + places > 0, ends[seen], 0)  # (users, places)
    ahead = entry[:, None] - past[of_row]  # (entries, places): 0 for the next
    weights = np.exp(-ahead.clip(min=0) / model.reach) if model.reach else (ahead == 0).astype(np.float64)
    asked = (ahead >= 0) & (weights >= _LEAST)

    def pairs(chosen: NDArray[np.bool_]) -> tuple[Tensor, Tensor]:
        entry, place = chosen.nonzero()
        return torch.from_numpy(of_row[entry].astype(np.int64) * model.places + place), torch.from_numpy(items[entry])

    tokens = padded(items[survives], starts + skipped, read, rows.shape[1])
    told = torch.from_numpy(weights[asked].astype(np.float32))
    return Example(tokens, torch.from_numpy(places), pairs(ahead < 0), pairs(asked), told)


def in_order(rows: Csr, draws: np.random.Generator | None = None) -> IntArray:
    """Return the columns of the stored entries, row by row from the smallest value to the largest.

    Among equal values the order is drawn, or that of the columns.
    """
    ties = rows.indices if draws is None else draws.random(rows.nnz)
    return rows.indices[np.lexsort((ties, rows.data, row_numbers(rows)))].astype(np.int64)


def padded(items: IntArray, starts: IntArray, counts: IntArray, end: int) -> Tensor:
    """Return stretches of `items`, (rows, longest), with `end` after the last of each."""
    place = np.arange(counts.max(initial=0))
    inside = place < counts[:, None]
    found = np.full(inside.shape, end, np.int64)
    found[inside] = items[(starts[:, None] + place)[inside]]
    return torch.from_numpy(found)
