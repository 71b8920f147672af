"""A U-Net over a map of items: each pixel gathers the items of its patch, and each item is read from its pixel."""

import torch
from torch import Tensor, nn

from recfusion.core.errors import InputError
from recfusion.nets.unet import UNet


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
