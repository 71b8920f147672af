"""The U-Net of DDPM (Ho et al., 2020), simplified, for vectors, matrices with one channel, and maps of items."""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, pad, scaled_dot_product_attention

from recfusion.core.errors import InputError
from recfusion.nets.mlp import time_embedding

_TIME_WIDTH = 64
_MOST_POSITIONS = 20_000  # for attention, whose cost is their square


class UNet(nn.Module):
    """f(x, t) for x (batch, length) with dims = 1, or (batch, height, width) with dims = 2; same shape out.

    `maps` is the same for several planes, (batch, planes_in or planes_out, ...). Each level halves every axis and
    doubles the channels; the lowest level has self-attention if it has at most 20,000 positions. Inputs are padded with
    zeros to sizes that can be halved that often, and the padding is cut off at the end.
    """

    def __init__(
        self, dims: int, *, channels: int = 8, levels: int = 3, planes_in: int = 1, planes_out: int = 1
    ) -> None:
        super().__init__()
        if dims not in (1, 2):
            raise InputError(f"Expected a U-Net for 1 or 2 dimensions, got {dims}.")
        conv = nn.Conv1d if dims == 1 else nn.Conv2d
        sizes = [channels * 2**level for level in range(levels)]
        self.dims, self.levels = dims, levels
        self.time = nn.Sequential(nn.Linear(_TIME_WIDTH, _TIME_WIDTH), nn.SiLU())
        self.enter = conv(planes_in, channels, 3, padding=1)
        self.down = nn.ModuleList(ResidualBlock(conv, a, a) for a in sizes[:-1])
        self.shrink = nn.ModuleList(conv(a, b, 3, stride=2, padding=1) for a, b in pairwise(sizes))
        self.middle = nn.ModuleList([ResidualBlock(conv, sizes[-1], sizes[-1]) for _ in range(2)])
        self.attention = Attention(sizes[-1])
        self.grow = nn.ModuleList(conv(b, a, 3, padding=1) for a, b in pairwise(sizes))
        self.up = nn.ModuleList(ResidualBlock(conv, 2 * a, a) for a in sizes[:-1])
        self.leave = nn.Sequential(nn.GroupNorm(1, channels), nn.SiLU(), conv(channels, planes_out, 3, padding=1))

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        if x.dim() != self.dims + 1:
            raise InputError(f"Expected a batch of {self.dims}-D examples for this U-Net, got shape {tuple(x.shape)}.")
        return self.maps(x[:, None], t)[:, 0]

    def maps(self, x: Tensor, t: Tensor) -> Tensor:
        """Return f(x, t) (batch, planes_out, ...) of x (batch, planes_in, ...)."""
        z = self.time(time_embedding(t, _TIME_WIDTH))
        h = self.enter(self._padded(x))  # (batch, channels, ...)
        skipped = []
        for block, shrink in zip(self.down, self.shrink, strict=True):
            h = block(h, z)
            skipped.append(h)
            h = shrink(h)
        h = self.middle[0](h, z)
        h = self.middle[1](self.attention(h) if h.shape[2:].numel() <= _MOST_POSITIONS else h, z)
        for block, grow in zip(reversed(self.up), reversed(self.grow), strict=True):
            h = grow(interpolate(h, scale_factor=2.0, mode="nearest"))
            h = block(torch.cat([h, skipped.pop()], dim=1), z)
        out: Tensor = self.leave(h)
        return out[(slice(None), slice(None), *(slice(size) for size in x.shape[2:]))]

    def _padded(self, x: Tensor) -> Tensor:
        multiple = 2 ** (self.levels - 1)
        missing = [-size % multiple for size in reversed(x.shape[2:])]
        return pad(x, [side for gap in missing for side in (0, gap)])


class ResidualBlock(nn.Module):
    """Two convolutions with group norm, with the time added between them, and a residual connection."""

    def __init__(self, conv: type[nn.Conv1d] | type[nn.Conv2d], n_in: int, n_out: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(1, n_in), nn.SiLU(), conv(n_in, n_out, 3, padding=1))
        self.time = nn.Linear(_TIME_WIDTH, n_out)
        self.second = nn.Sequential(nn.GroupNorm(1, n_out), nn.SiLU(), conv(n_out, n_out, 3, padding=1))
        self.short_cut = conv(n_in, n_out, 1) if n_in != n_out else nn.Identity()

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        """Return the block's output for features x (batch, channels, ...) and time features z."""
        shift = self.time(z).reshape(z.shape[0], -1, *[1] * (x.dim() - 2))
        out: Tensor = self.second(self.first(x) + shift) + self.short_cut(x)
        return out


class Attention(nn.Module):
    """Self-attention over all positions, with a residual connection."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(1, channels)
        self.query_key_value = nn.Linear(channels, 3 * channels)
        self.out = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x).flatten(2).transpose(1, 2)  # (batch, positions, channels)
        q, k, v = self.query_key_value(h).chunk(3, dim=2)
        h = self.out(scaled_dot_product_attention(q, k, v))
        out: Tensor = x + h.transpose(1, 2).reshape(x.shape)
        return out


class ItemUNet(nn.Module):
    """Logits (batch, items) of rows (batch, planes, items), over a map with one slot per item.

    A patch of slots is one pixel, so a 3 x 3 convolution already covers hundreds of items and the lowest level all of
    them. A convolution cannot tell items apart. So every item has an input vector, an output vector and a bias, and
    every pixel has a learned vector. The step t is not an input: the number of ones shows it.
    """

    def __init__(
        self, slots: Tensor, sides: tuple[int, ...], patch: int, *, channels: int = 64, levels: int = 3, planes: int = 1
    ) -> None:
        super().__init__()
        if any(side % patch for side in sides):
            raise InputError(f"Expected sides that are multiples of the patch {patch}, got {sides}: round them up.")
        self.grid = torch.Size(side // patch for side in sides)
        self.cells = patch ** len(sides)
        pixels, seen = self.grid.numel(), planes * self.cells
        self.register_buffer("places", in_patches(slots, sides, patch), persistent=False)  # (items,)
        self.unet = UNet(len(sides), channels=channels, levels=levels, planes_in=channels, planes_out=channels)
        self.enter = nn.Parameter(torch.randn(pixels, seen, channels) * (3 * seen) ** -0.5)
        self.leave = nn.Parameter(torch.randn(pixels, channels, self.cells) * (3 * channels) ** -0.5)
        self.place = nn.Parameter(torch.zeros(channels, *self.grid))
        self.bias = nn.Parameter(torch.zeros(len(slots)))

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        """Return the logits of rows x (batch, planes, items) or, with one plane, (batch, items)."""
        x = x[:, None] if x.dim() == 2 else x
        batch, planes, pixels = len(x), x.shape[1], self.grid.numel()
        placed = x.new_zeros(batch, planes, pixels * self.cells).index_copy(2, self.get_buffer("places"), x)
        patches = placed.reshape(batch, planes, pixels, self.cells).permute(2, 0, 1, 3).flatten(2)
        h = (patches @ self.enter).permute(1, 2, 0).reshape(batch, -1, *self.grid)  # (batch, channels, *grid)
        h = self.unet.maps(h + self.place, torch.zeros_like(t)).flatten(2).permute(2, 0, 1)  # (pixels, batch, channels)
        out = (h @ self.leave).transpose(0, 1).flatten(1)  # (batch, pixels * cells)
        return out.index_select(1, self.get_buffer("places")) + self.bias


def in_patches(slots: Tensor, sides: tuple[int, ...], patch: int) -> Tensor:
    """Return slots that are numbered row by row over the map, renumbered patch by patch."""
    order = torch.arange(torch.Size(sides).numel()).reshape([n for side in sides for n in (side // patch, patch)])
    n = len(sides)
    by_patch = order.permute(*(2 * axis for axis in range(n)), *(2 * axis + 1 for axis in range(n))).flatten()
    return torch.argsort(by_patch)[slots]
