"""The three-layer network of the paper and its variants, the time embedding, and dropout with an explicit rng."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

TimeWay = Literal["none", "input", "output", "projected"]
Head = Literal["tanh", "linear"]
_PROJECTED = 128  # sines and cosines that a learned linear layer maps to the input, as in the paper's code


class MLP(nn.Module):
    """f: R^D -> R^(n_heads * D): D -> width, PReLU, depth times (width -> width, PReLU), width -> D.

    In the paper all hidden layers share one module, whatever the depth (`shared`). Time enters as f(x + Z_t) ("input"),
    f(x) + Z_t ("output"), or f(x + W Z_t + b) with learned W and b ("projected"). The first D outputs go through tanh
    or are logits; a second head, for log-variances, is linear. A condition enters the first hidden layer through a
    linear map without bias, so 0 means no condition.
    """

    def __init__(
        self,
        n_features: int,
        *,
        width: int = 200,
        depth: int = 1,
        shared: bool = True,
        time: TimeWay = "none",
        head: Head = "tanh",
        n_heads: int = 1,
        n_conditions: int = 0,
    ) -> None:
        super().__init__()
        self.n_features, self.time, self.head = n_features, time, head
        self.inner = nn.Linear(n_features, width)
        self.inner_activation = nn.PReLU()
        layers = [nn.Sequential(nn.Linear(width, width), nn.PReLU()) for _ in range(1 if shared else depth)]
        self.hidden = nn.ModuleList(layers)
        self.repeats = depth if shared else 1
        self.outer = nn.Linear(width, n_heads * n_features)
        self.time_layer = nn.Linear(_PROJECTED, n_features) if time == "projected" else None
        self.condition = nn.Linear(n_conditions, width, bias=False) if n_conditions else None

    def forward(self, x: Tensor, t: Tensor, condition: Tensor | None = None) -> Tensor:
        """Return f(x, t) for x (batch, D), t (batch,) and a condition (batch, n_conditions)."""
        z = time_embedding(t, self.n_features) if self.time in ("input", "output") else None
        if z is not None and self.time == "input":
            x = x + z
        if self.time_layer is not None:
            x = x + self.time_layer(time_embedding(t, _PROJECTED))
        h = self.inner(x)
        if condition is not None and self.condition is not None:
            h = h + self.condition(condition)
        h = self.inner_activation(h)
        for layer in self.hidden:
            for _ in range(self.repeats):
                h = layer(h)
        out: Tensor = self.outer(h)  # (batch, heads * D)
        mean, rest = out[:, : self.n_features], out[:, self.n_features :]
        if z is not None and self.time == "output":
            mean = mean + z
        if self.head == "tanh":
            mean = torch.tanh(mean)
        return torch.cat([mean, rest], dim=1) if rest.shape[1] else mean


def time_embedding(t: Tensor, width: int) -> Tensor:
    """Return Z_t (batch, width): sines and cosines of t at geometric frequencies (Vaswani et al., 2017).

    An odd width ends in a sine.
    """
    half = (width + 1) // 2
    frequency = torch.exp(-math.log(10_000.0) * torch.arange(half, device=t.device) / max(1, half))
    angle = t.to(torch.float32)[:, None] * frequency  # (batch, half)
    return torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1)[:, :width]


def dropout(x: Tensor, share: float, rng: torch.Generator | None) -> Tensor:
    """Return x with a share of its numbers set to 0 and the others divided by 1 - share; x itself without an rng."""
    if rng is None or not share:
        return x
    kept = torch.rand(x.shape, generator=rng).to(x.device) >= share
    return x * kept / (1 - share)
