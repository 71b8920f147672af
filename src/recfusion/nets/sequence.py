"""A network over items in order: causal self-attention with a learned weight for each distance."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from recfusion.nets.mlp import dropout


class SequenceNet(nn.Module):
    """Hidden states after each entry of a sequence, which depend on that entry and the earlier ones, and item logits.

    Sequences (batch, n) hold item numbers, oldest first, padded with `n_items` at the end; causal attention keeps the
    padding out of earlier states. Each head has a learned weight per distance between two entries. A start token gives
    an empty sequence a state.
    """

    def __init__(self, n_items: int, length: int, *, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.n_items = n_items
        self.item = nn.Embedding(n_items + 2, width)  # plus padding and the start token
        nn.init.normal_(self.item.weight, std=width**-0.5)
        self.blocks = nn.ModuleList(Block(width, heads, length + 1) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, n_items)

    def forward(self, items: Tensor, drop: float = 0.0, rng: torch.Generator | None = None) -> Tensor:
        """Return states (batch, 1 + n, width): after the start token, and after each entry."""
        front = items.new_full((len(items), 1), self.n_items + 1)
        x = dropout(self.item(torch.cat([front, items], 1)), drop, rng)
        for block in self.blocks:
            x = block(x, drop, rng)
        states: Tensor = self.norm(x)
        return states


class Block(nn.Module):
    """Causal attention and a two-layer map, each with a residual connection."""

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.read = nn.Linear(width, 3 * width)
        self.write = nn.Linear(width, width)
        self.far = nn.Parameter(torch.zeros(heads, length))  # attention logits per distance
        self.map = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor, drop: float, rng: torch.Generator | None) -> Tensor:
        batch, n, width = x.shape
        parts = self.read(self.first(x)).reshape(batch, n, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)  # each (batch, heads, n, width / heads)
        seen = functional.scaled_dot_product_attention(query, key, value, attn_mask=self._distances(n))
        x = x + dropout(self.write(seen.transpose(1, 2).reshape(batch, n, width)), drop, rng)
        return x + dropout(self.map(self.second(x)), drop, rng)

    def _distances(self, n: int) -> Tensor:
        """Return the attention bias (heads, n, n): a weight per distance, -inf for later entries."""
        place = torch.arange(n, device=self.far.device)
        back = place[:, None] - place
        return self.far[:, back.clamp(min=0)].masked_fill(back < 0, -torch.inf)
