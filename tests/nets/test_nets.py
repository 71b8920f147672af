"""The networks: parameter counts, shapes, and what time does."""

import pytest
import torch

from recfusion.core.errors import InputError
from recfusion.nets.mlp import MLP, time_embedding
from recfusion.nets.unet import UNet


def count(net: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in net.parameters())


@pytest.mark.parametrize("depth", [1, 4])
def test_recfusion_has_the_paper_s_number_of_parameters_whatever_its_depth(depth: int) -> None:
    assert count(MLP(3416, depth=depth)) == 1_410_218


def test_layers_that_are_not_shared_count_one_by_one() -> None:
    one, three = (count(MLP(50, width=20, depth=depth, shared=False)) for depth in (1, 3))
    assert three - one == 2 * (20 * 20 + 20 + 1)


def test_a_shared_layer_is_applied_as_often_as_the_depth_says() -> None:
    net = MLP(6, width=5, depth=3, head="linear")
    x, t = torch.randn(2, 6), torch.ones(2)
    h = net.inner_activation(net.inner(x))
    for _ in range(3):
        h = net.hidden[0](h)
    assert torch.allclose(net(x, t), net.outer(h))


def test_time_enters_before_or_after_the_network() -> None:
    x, t = torch.randn(3, 8), torch.tensor([1, 2, 3])
    z = time_embedding(t, 8)
    plain, before, after = (MLP(8, width=5, time=way, head="linear") for way in ("none", "input", "output"))
    before.load_state_dict(plain.state_dict())
    after.load_state_dict(plain.state_dict())
    assert torch.allclose(before(x, t), plain(x + z, t))
    assert torch.allclose(after(x, t), plain(x, t) + z)


def test_the_tanh_is_on_the_mean_alone() -> None:
    net = MLP(4, width=5, n_heads=2)
    torch.nn.init.constant_(net.outer.bias, 5.0)
    out = net(torch.zeros(1, 4), torch.ones(1))
    assert out.shape == (1, 8)
    assert (out[:, :4].abs() <= 1).all()
    assert (out[:, 4:] > 1).all()


def test_time_embeddings_are_sines_and_cosines_that_tell_steps_apart() -> None:
    z = time_embedding(torch.tensor([0, 1, 2]), 7)
    assert z.shape == (3, 7)
    assert z[0].tolist() == [0, 1, 0, 1, 0, 1, 0]
    assert not torch.allclose(z[1], z[2])


@pytest.mark.parametrize(("dims", "shape"), [(1, (3, 37)), (2, (2, 5, 21)), (1, (1, 1)), (2, (1, 1, 3))])
def test_a_u_net_keeps_odd_shapes(dims: int, shape: tuple[int, ...]) -> None:
    net = UNet(dims, channels=2, levels=4)
    x = torch.randn(shape)
    out = net(x, torch.ones(shape[0]))
    assert out.shape == x.shape
    out.sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_a_u_net_is_told_the_step() -> None:
    torch.manual_seed(0)
    for dims, shape in ((1, (2, 8)), (2, (2, 4, 8))):
        net, x = UNet(dims, channels=2, levels=2), torch.randn(shape)
        first, second = (net(x, torch.full((2,), t)) for t in (1, 2))
        assert not torch.equal(first, second)


def test_a_u_net_refuses_examples_of_another_dimension() -> None:
    with pytest.raises(InputError, match="batch of 2-D examples"):
        UNet(2)(torch.zeros(2, 8), torch.ones(2))
    with pytest.raises(InputError, match="1 or 2 dimensions, got 3"):
        UNet(3)
