"""Sinusoidal embeddings of the diffusion time."""

import math

import torch
from torch import Tensor


def time_embedding(t: Tensor, width: int) -> Tensor:
    """Return Z_t (batch, width): sines and cosines of t at geometric frequencies (Vaswani et al., 2017).

    An odd width ends in a sine.
    """
    half = (width + 1) // 2
    frequency = torch.exp(-math.log(10_000.0) * torch.arange(half, device=t.device) / max(1, half))
    angle = t.to(torch.float32)[:, None] * frequency  # (batch, half)
    return torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1)[:, :width]
