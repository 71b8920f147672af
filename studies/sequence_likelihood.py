"""recfusion-seq and sasrec as generative models: likelihood and bound of ordered histories, and samples."""

import numpy as np
import torch
from torch import Tensor

from ordered import Ordered
from recfusion.core.arrays import Csr, IntArray
from recfusion.models.sequence.sequential import SequentialRecommender, items_in_order, pad
from thinning_bound import length_shares

_WINDOWS = 64  # prefixes per network call


def ordered_nats(model: SequentialRecommender, rows: Csr, lengths: IntArray, noise: Ordered | None = None) -> Tensor:
    """Return -log p(x^0) of each user's sequence and its bound, in nats, (users, 2).

    `rows` are encoded histories (`SequentialRecommender.encoded`). A length n costs -log of its share among the
    training users, counted in `lengths`. The noise is that of the model's `reach` unless given.
    """
    noise = noise or Ordered.of_reach(model.reach)
    shares = np.log(length_shares(lengths, rows.shape[1]))
    found = []
    for entries in map(torch.from_numpy, np.split(items_in_order(rows), rows.indptr[1:-1])):
        logits = _after_each_prefix(model, entries)
        nats = torch.stack([-noise.log_prob(logits, entries), noise.bound(logits, entries)])
        found.append(nats - shares[len(entries)])
    return torch.stack(found)


def draw_histories(model: SequentialRecommender, rows: Csr, upto: IntArray, rng: torch.Generator) -> Tensor:
    """Sample continuations of each user's sequence to `upto` entries, (users, longest), padded with -1."""
    counts = np.diff(rows.indptr)
    begun = pad(items_in_order(rows), rows.indptr[:-1], counts, rows.shape[1])

    def reader(prefixes: Tensor, lengths: Tensor) -> Tensor:
        return _read(model, prefixes, lengths)

    lengths = torch.from_numpy(counts.astype(np.int64))
    return Ordered.of_reach(model.reach).sample(reader, begun, lengths, torch.from_numpy(upto), rng)


def _after_each_prefix(model: SequentialRecommender, entries: Tensor) -> Tensor:
    """Return the logits after each proper prefix of a sequence, (n, items), the empty one first."""
    n = len(entries)
    if n <= model.length:  # the network is causal: one pass covers all prefixes
        with torch.no_grad():
            return model.logits_at(entries[None], torch.arange(n)[None])[0].cpu()
    windows = torch.chunk(torch.arange(n), -(-n // _WINDOWS))
    return torch.cat([_read(model, entries.expand(len(each), n), each) for each in windows])


def _read(model: SequentialRecommender, prefixes: Tensor, lengths: Tensor) -> Tensor:
    """Return the logits after the first `lengths` entries of each sequence; the network reads the newest of them."""
    read = lengths.clamp(max=model.length)
    place = torch.arange(int(read.max()) if len(read) else 0)
    at = ((lengths - read)[:, None] + place).clamp(max=max(0, prefixes.shape[1] - 1))
    window = torch.where(place < read[:, None], prefixes.gather(1, at), 0)  # no state sees the padding
    with torch.no_grad():
        return model.logits_at(window, read[:, None])[:, 0].cpu()
