"""A U-Net over items that have places: a row or a map is cut into patches, denoised and read off item by item."""

import torch
from torch import Tensor, nn

from recfusion.core.errors import InputError
from recfusion.nets.unet import UNet


class ItemUNet(nn.Module):
    """Logits (batch, items) of rows (batch, planes, items), over a map of slots on which each item has its own.

    A patch of slots becomes the channels of one pixel (pixel-unshuffle), so that a 3 x 3 convolution already sees
    hundreds of items and the lowest level all of them. A convolution does not know at which item it looks: every item
    has a bias of its own, and every pixel a learned vector that tells it its place. Which step of the process a row
    comes from is not told: how many ones are left says as much.
    """

    def __init__(
        self, slots: Tensor, sides: tuple[int, ...], patch: int, *, channels: int = 64, levels: int = 3, planes: int = 1
    ) -> None:
        super().__init__()
        if any(side % patch for side in sides):
            raise InputError(f"Expected sides that are whole patches of {patch}, got {sides}: round them up.")
        self.sides, self.patch = sides, patch
        cells = patch ** len(sides)
        self.register_buffer("slots", slots, persistent=False)  # (items,)
        self.unet = UNet(len(sides), channels=channels, levels=levels, planes_in=planes * cells, planes_out=cells)
        self.place = nn.Parameter(torch.zeros(planes * cells, *(side // patch for side in sides)))
        self.bias = nn.Parameter(torch.zeros(len(slots)))

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        """Return the logits of rows x (batch, planes, items) or, with one plane, (batch, items)."""
        x = x[:, None] if x.dim() == 2 else x
        n_slots = torch.Size(self.sides).numel()
        mapped = x.new_zeros(*x.shape[:2], n_slots).index_copy(2, self.get_buffer("slots"), x)
        pixels = self._patches(mapped) + self.place
        out = self._slots(self.unet.maps(pixels, torch.zeros_like(t)))  # (batch, slots)
        return out.index_select(1, self.get_buffer("slots")) + self.bias

    def _patches(self, x: Tensor) -> Tensor:
        """(batch, planes, slots) -> (batch, planes * cells, *pixels)."""
        split = [size for side in self.sides for size in (side // self.patch, self.patch)]
        n = len(self.sides)
        x = x.reshape(*x.shape[:2], *split)
        pixels, within = [2 + 2 * axis for axis in range(n)], [3 + 2 * axis for axis in range(n)]
        return x.permute(0, 1, *within, *pixels).flatten(1, 1 + n)

    def _slots(self, x: Tensor) -> Tensor:
        """(batch, cells, *pixels) -> (batch, slots): the way back of `_patches`."""
        n = len(self.sides)
        x = x.reshape(len(x), *[self.patch] * n, *x.shape[2:])  # (batch, *within, *pixels)
        order = [axis for k in range(n) for axis in (1 + n + k, 1 + k)]
        return x.permute(0, *order).flatten(1)
