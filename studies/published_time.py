"""RecFusionT as the public code ranks with it. Load it as `studies/published_time.py:PublishedTime`.

That code counts steps from 0. The output of step 0 is trained to reconstruct the row, but scores are the output of step
1, which the loss only shrinks. Here these are the steps 1 and 2. Unless it is told otherwise, that code also adds the
projected time to the network's output; the paper's text adds it to the input, as `preset=paper` of `recfusion-t` does.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from recfusion.models.recfusion.recfusion import RecFusion
from recfusion.models.settings import setting
from recfusion.nets.mlp import MLP, TimeWay, time_embedding

_FEATURES = 128  # sines and cosines of the time


class TimeAfter(nn.Module):
    """f(x) + W Z_t + b, with f in (-1, 1)."""

    def __init__(self, net: MLP) -> None:
        super().__init__()
        self.net = net
        self.time_layer = nn.Linear(_FEATURES, net.n_features)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        """(batch, D), (batch,) -> (batch, D)."""
        out: Tensor = self.net(x, t) + self.time_layer(time_embedding(t, _FEATURES))
        return out


@dataclass
class PublishedTime(RecFusion):
    """RecFusion with a projected time, which can be added to the output, and scores from any step."""

    time: TimeWay = setting("projected", "time embedding")
    time_to: Literal["input", "output"] = setting("output", "where the projected time is added")
    ranked_step: int = setting(2, "step whose output ranks; 1 is the step of the reconstruction", at_least=1)

    def make_net(self, n_items: int) -> nn.Module:
        if self.time_to == "input":
            return super().make_net(n_items)
        return TimeAfter(MLP(n_items, width=self.width, depth=self.depth, shared=self.shared))

    def _predict(self, x1: Tensor) -> Tensor:
        """Return the output of the chosen step for a history."""
        out: Tensor = self.net_(x1, torch.full((len(x1),), self.ranked_step, dtype=torch.int64, device=x1.device))
        return out
