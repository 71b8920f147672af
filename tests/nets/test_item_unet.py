"""The U-Net over items with places: who enters which pixel, and what a convolution can see of whom."""

import pytest
import torch

from recfusion.core.errors import InputError
from recfusion.nets.unet import ItemUNet, in_patches


def net(sides: tuple[int, ...] = (8, 8), patch: int = 2, n_items: int = 60, planes: int = 1) -> ItemUNet:
    torch.manual_seed(0)
    slots = torch.randperm(torch.Size(sides).numel())[:n_items]
    return ItemUNet(slots, sides, patch, channels=4, levels=2, planes=planes)


@pytest.mark.parametrize(("sides", "patch"), [((8, 8), 2), ((12,), 3), ((6, 9), 3)])
def test_every_slot_has_a_place_of_its_own_among_those_of_its_patch(sides: tuple[int, ...], patch: int) -> None:
    n_slots, cells = torch.Size(sides).numel(), patch ** len(sides)
    places = in_patches(torch.arange(n_slots), sides, patch)
    assert sorted(places.tolist()) == list(range(n_slots))
    coordinates = torch.stack(torch.unravel_index(torch.arange(n_slots), sides)) // patch
    pixels = torch.stack(torch.unravel_index(places // cells, [side // patch for side in sides]))
    assert torch.equal(coordinates, pixels)


def test_items_that_lie_together_enter_the_same_pixel() -> None:
    of = ItemUNet(torch.arange(64), (8, 8), 2, channels=4, levels=2)
    x = torch.zeros(1, 8, 8)
    x[..., 2:4, 4:6] = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    seen = []
    of.unet.enter.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    of(x.flatten(1), torch.tensor([1]))
    wanted = torch.zeros(4, 4, 4)
    wanted[:, 1, 2] = torch.tensor([1.0, 2.0, 3.0, 4.0]) @ of.enter[1 * 4 + 2]
    assert torch.allclose(seen[0][0], wanted, atol=1e-6)


@pytest.mark.parametrize("planes", [1, 2])
def test_logits_belong_to_items_and_begin_at_their_bias(planes: int) -> None:
    of = net(planes=planes)
    with torch.no_grad():
        of.bias.copy_(torch.arange(60.0))
    x, t = torch.rand(3, planes, 60), torch.tensor([1, 2, 3])
    out = of(x, t)
    assert out.shape == (3, 60)
    assert torch.allclose(out - of.bias, of(x, torch.ones(3, dtype=torch.int64)) - of.bias)  # the step is not told
    with torch.no_grad():
        of.bias.zero_()
    assert torch.allclose(of(x, t) + torch.arange(60.0), out, atol=1e-5)


def test_equal_rows_at_other_places_look_different() -> None:
    """Every pixel learns its place: a convolution alone would give a shifted picture a shifted answer."""
    of = net()
    out = of(torch.zeros(1, 60), torch.tensor([1]))
    out.var().backward()
    assert of.place.grad is not None
    assert of.place.grad.abs().sum() > 0


def test_sides_that_are_no_whole_patches_are_refused() -> None:
    with pytest.raises(InputError, match="multiples of the patch 3"):
        net((8, 8), 3)
