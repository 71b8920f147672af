"""Diffusion of sequences of distinct items: noise removes the newest entries block by block.

x^0 = (i_1, ..., i_n). Each of the n - 1 places between two entries is a cut with probability rho, independently. The
forward chain goes from x^0 back to the last cut, then to the cut before it, until nothing is left: each step removes a
block of entries of geometric size. The reverse chain draws the length n first; cuts have the same probability, and a
block is drawn given the prefix that ends at its cut c, entry by entry without repetition:

    p(block | prefix) = product over its entries i of  exp(z_i) / sum over j in neither prefix nor block so far exp(z_j)

with the denoiser's logits z = z(prefix). With rho = 1 blocks are single entries: next-item prediction. Only cuts are
latent, so dynamic programming computes the likelihood exactly.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from recfusion.core.errors import InputError
from recfusion.diffusion.process import Rng

Reader = Callable[[Tensor, Tensor], Tensor]
"""Padded prefixes (batch, longest) and their lengths (batch,) -> logits (batch, items)."""


@dataclass(frozen=True)
class Ordered:
    """The process that removes the newest entries in blocks; `rho` is the probability of a cut at a place."""

    rho: float

    def __post_init__(self) -> None:
        if not 0 < self.rho <= 1:
            raise InputError(f"Expected 0 < rho <= 1, got {self.rho:g}: 1 removes entries one by one.", "rho")

    @classmethod
    def of_reach(cls, reach: float) -> "Ordered":
        """Return the process with probability exp(-(d - 1) / reach) that the d-th entry after a cut is in its block."""
        return cls(-math.expm1(-1 / reach) if reach > 0 else 1.0)

    def weights(self, n: int) -> Tensor:
        """Return the probability that entry e is restored from place c, (n places, n entries); columns add up to 1.

        Place c has c entries before it. It is a cut with probability rho (the first one always), and entry e >= c is in
        its block if none of the e - c places between is a cut.
        """
        ahead = torch.arange(n)[None, :] - torch.arange(n)[:, None]
        chance = torch.full((n, 1), self.rho, dtype=torch.float64)
        chance[:1] = 1
        return torch.where(ahead >= 0, chance * (1 - self.rho) ** ahead.clamp(min=0).double(), 0.0)

    def bound(self, logits: Tensor, entries: Tensor) -> Tensor:
        """E_q[-log p(x^0 | cuts, n)], in nats: an upper bound of -log p(x^0 | n).

        Cuts have the same distribution under q and p, so they cost nothing. `logits` (n, items) are the denoiser's
        outputs after each prefix of `entries` (n,), the empty one first.
        """
        weights = self.weights(len(entries)).to(logits.device)
        return -torch.where(weights > 0, weights * entry_log_probs(logits, entries), 0).sum()

    def log_prob(self, logits: Tensor, entries: Tensor) -> Tensor:
        """log p(x^0 | n), the sum over all sets of cuts.

        With A_e the probability of the first e entries ending at a cut (or at the end), A_0 = 1 and

            A_e = sum over c < e of  A_c (1 - rho)^(e-c-1) rho^[e < n] product over entries k = c+1..e of p_c(i_k)
        """
        n = len(entries)
        log_p = entry_log_probs(logits, entries).masked_fill(torch.ones(n, n).tril(-1).bool().to(logits.device), 0)
        blocks = log_p.cumsum(1)  # (places, ends): log p of the block from place c to entry e
        stay = math.log1p(-self.rho) if self.rho < 1 else -math.inf
        ends = [torch.zeros((), dtype=torch.float64, device=logits.device)]
        for e in range(1, n + 1):
            between = torch.arange(e - 1, -1, -1, dtype=torch.float64, device=logits.device)
            inside = torch.where(between > 0, between * stay, 0.0)  # 0 * -inf is NaN
            cut = math.log(self.rho) if e < n else 0.0
            ends.append(torch.logsumexp(torch.stack(ends) + blocks[:e, e - 1] + inside, 0) + cut)
        return ends[n]

    def sample(self, reader: Reader, prefixes: Tensor, lengths: Tensor, upto: Tensor, rng: Rng) -> Tensor:
        """Sample continuations of sequences to `upto` entries each, (batch, longest), padded with -1.

        The first `lengths` (batch,) entries of `prefixes` (batch, any) are given; 0 samples the whole sequence. Each
        call of the reader draws one block per sequence, by the largest logits with Gumbel noise, in their order.
        """
        batch, longest = len(prefixes), int(upto.max()) if len(upto) else 0
        found = torch.full((batch, max(longest, prefixes.shape[1])), -1, dtype=torch.long)
        place = torch.arange(found.shape[1])
        found[:, : prefixes.shape[1]] = prefixes
        found[place >= lengths[:, None]] = -1
        lengths = lengths.clone()
        while len(going := (lengths < upto).nonzero()[:, 0]):
            logits = reader(found[going], lengths[going]).double()
            taken = (found[going] >= 0).nonzero()
            logits[taken[:, 0], found[going][taken[:, 0], taken[:, 1]]] = -torch.inf
            uniform = torch.rand(logits.shape, generator=rng, dtype=torch.float64).clamp(min=1e-300)
            order = (logits - (-uniform.log()).log()).argsort(1, descending=True)
            size = self._sizes(len(going), rng).clamp(max=upto[going] - lengths[going])
            for row, sequence in enumerate(going.tolist()):
                start, count = int(lengths[sequence]), int(size[row])
                found[sequence, start : start + count] = order[row, :count]
            lengths[going] += size
        return found

    def _sizes(self, count: int, rng: Rng) -> Tensor:
        """Draw block sizes from the geometric distribution on 1, 2, ..."""
        if self.rho == 1:
            return torch.ones(count, dtype=torch.long)
        uniform = torch.rand(count, generator=rng, dtype=torch.float64).clamp(min=1e-300)
        return 1 + (uniform.log() / math.log1p(-self.rho)).floor().long().clamp(max=1 << 40)


def entry_log_probs(logits: Tensor, entries: Tensor) -> Tensor:
    """Return log p_c(i_e), float64, (n places, n entries): of entry e in the block from place c; -inf for e < c.

    The prefix of place c and the earlier entries of the block are excluded from the softmax.
    """
    n = len(entries)
    past = torch.ones(n, n, device=logits.device).tril(-1).bool()  # entry e is before place c
    own = logits.double()[:, entries].masked_fill(past, -torch.inf)  # (places, entries)
    everything = logits.double().index_fill(1, entries, -torch.inf).logsumexp(1)  # of items outside the sequence
    later = own.flip(1).logcumsumexp(1).flip(1)  # of entry e and the later ones
    return own - torch.logaddexp(everything[:, None], later)
