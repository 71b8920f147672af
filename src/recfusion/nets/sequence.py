"""A network that reads items in order: causal self-attention, in which how far back an item lies has a weight."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class SequenceNet(nn.Module):
    """Logits of all items after each entry of a sequence: what an entry's state has seen is it and those before it.

    Sequences (batch, n) hold numbers of items, oldest first, and `n_items` where a shorter one has ended: no state
    before it sees that. Order enters by the distance between two entries, which has a learned weight in each head. In
    front of every sequence stands a token of its own, so that an empty one has a state too.
    """

    def __init__(self, n_items: int, length: int, *, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.n_items = n_items
        self.item = nn.Embedding(n_items + 2, width)  # then: the end, and the token in front
        nn.init.normal_(self.item.weight, std=width**-0.5)
        self.blocks = nn.ModuleList(Block(width, heads, length + 1) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, n_items)

    def forward(self, items: Tensor, drop: float = 0.0, rng: torch.Generator | None = None) -> Tensor:
        """Return states (batch, 1 + n, width): of the empty history, and after each entry."""
        front = items.new_full((len(items), 1), self.n_items + 1)
        x = dropped(self.item(torch.cat([front, items], 1)), drop, rng)
        for block in self.blocks:
            x = block(x, drop, rng)
        states: Tensor = self.norm(x)
        return states


class Block(nn.Module):
    """A layer of causal attention and one of two linear maps, each added to what it reads."""

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.read = nn.Linear(width, 3 * width)
        self.write = nn.Linear(width, width)
        self.far = nn.Parameter(torch.zeros(heads, length))  # weight of each distance, in logits
        self.map = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor, drop: float, rng: torch.Generator | None) -> Tensor:
        batch, n, width = x.shape
        parts = self.read(self.first(x)).reshape(batch, n, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)  # each (batch, heads, n, width / heads)
        seen = functional.scaled_dot_product_attention(query, key, value, attn_mask=self._distances(n))
        x = x + dropped(self.write(seen.transpose(1, 2).reshape(batch, n, width)), drop, rng)
        return x + dropped(self.map(self.second(x)), drop, rng)

    def _distances(self, n: int) -> Tensor:
        """Return what is added to the logits of attention, (heads, n, n): -inf for what comes later."""
        place = torch.arange(n, device=self.far.device)
        back = place[:, None] - place
        return self.far[:, back.clamp(min=0)].masked_fill(back < 0, -torch.inf)


def dropped(x: Tensor, share: float, rng: torch.Generator | None) -> Tensor:
    """Return x with a share of its numbers set to 0, and the others divided by what is left; all of it without rng."""
    if rng is None or not share:
        return x
    kept = torch.rand(x.shape, generator=rng).to(x.device) >= share
    return x * kept / (1 - share)
