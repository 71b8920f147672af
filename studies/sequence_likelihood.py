"""`recfusion-seq` and `sasrec` as generative models: likelihood and bound of ordered histories, and histories drawn."""

import numpy as np
import torch
from torch import Tensor

from recfusion.core.arrays import Csr, IntArray
from recfusion.diffusion.ordered import Ordered
from recfusion.models.history_lengths import length_shares
from recfusion.models.sequence.sequential import Sequential, in_order, padded

_WINDOWS = 64  # prefixes that are read at once


def ordered_nats(model: Sequential, rows: Csr, lengths: IntArray, noise: Ordered | None = None) -> Tensor:
    """Return -log p(x^0) of each user's sequence and its bound, in nats, (users, 2).

    `rows` are histories as `Sequential.encoded` gives them. A length n costs -log of its share among training users,
    counted in `lengths`. The noise is that of the model's `reach` unless given.
    """
    noise = noise or Ordered.of_reach(model.reach)
    shares = np.log(length_shares(lengths, rows.shape[1]))
    found = []
    for entries in map(torch.from_numpy, np.split(in_order(rows), rows.indptr[1:-1])):
        logits = _after_each_prefix(model, entries)
        nats = torch.stack([-noise.log_prob(logits, entries), noise.bound(logits, entries)])
        found.append(nats - shares[len(entries)])
    return torch.stack(found)


def draw_histories(model: Sequential, rows: Csr, upto: IntArray, rng: torch.Generator) -> Tensor:
    """Draw how each user's sequence may go on to `upto` entries, (users, longest), -1 where one has ended.

    An empty row is drawn from nothing.
    """
    counts = np.diff(rows.indptr)
    begun = padded(in_order(rows), rows.indptr[:-1], counts, rows.shape[1])

    def reader(prefixes: Tensor, lengths: Tensor) -> Tensor:
        return _read(model, prefixes, lengths)

    lengths = torch.from_numpy(counts.astype(np.int64))
    return Ordered.of_reach(model.reach).sample(reader, begun, lengths, torch.from_numpy(upto), rng)


def _after_each_prefix(model: Sequential, entries: Tensor) -> Tensor:
    """Return the logits after each proper prefix of a sequence, (n, items), the empty one first."""
    n = len(entries)
    if n <= model.length:  # the net is causal: one pass sees all of them
        with torch.no_grad():
            return model.logits_at(entries[None], torch.arange(n)[None])[0].cpu()
    windows = torch.chunk(torch.arange(n), -(-n // _WINDOWS))
    return torch.cat([_read(model, entries.expand(len(each), n), each) for each in windows])


def _read(model: Sequential, prefixes: Tensor, lengths: Tensor) -> Tensor:
    """Return the logits after the first `lengths` entries of each sequence, of which the net reads the latest."""
    read = lengths.clamp(max=model.length)
    place = torch.arange(int(read.max()) if len(read) else 0)
    at = ((lengths - read)[:, None] + place).clamp(max=max(0, prefixes.shape[1] - 1))
    window = torch.where(place < read[:, None], prefixes.gather(1, at), 0)  # what follows is seen by no state
    with torch.no_grad():
        return model.logits_at(window, read[:, None])[:, 0].cpu()
