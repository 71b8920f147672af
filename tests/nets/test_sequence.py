"""The causal network over items in order."""

import torch

from recfusion.nets.mlp import dropout
from recfusion.nets.sequence import SequenceNet


def net() -> SequenceNet:
    torch.manual_seed(0)
    made = SequenceNet(5, 4, width=8, layers=2, heads=2)
    torch.nn.init.normal_(made.blocks[0].far)  # type: ignore[arg-type]
    return made.eval()


def test_a_state_sees_what_came_before_and_nothing_after() -> None:
    made = net()
    first, second = made(torch.tensor([[0, 1, 2, 3]])), made(torch.tensor([[0, 1, 4, 2]]))
    assert torch.allclose(first[:, :3], second[:, :3], atol=1e-6)
    assert not torch.allclose(first[:, 3], second[:, 3], atol=1e-3)


def test_the_order_of_items_changes_the_last_state() -> None:
    made = net()
    assert not torch.allclose(made(torch.tensor([[0, 1, 2]]))[:, 3], made(torch.tensor([[1, 0, 2]]))[:, 3], atol=1e-3)


def test_what_fills_up_a_batch_changes_nothing() -> None:
    made = net()
    short = made(torch.tensor([[2, 3]]))
    beside = made(torch.tensor([[2, 3, 5, 5], [0, 1, 2, 3]]))
    assert torch.allclose(short[0], beside[0, :3], atol=1e-6)


def test_an_empty_sequence_has_a_state() -> None:
    assert net()(torch.zeros(2, 0, dtype=torch.int64)).shape == (2, 1, 8)


def test_dropping_keeps_the_mean_and_follows_its_generator() -> None:
    x = torch.ones(200, 200)
    once, again = (dropout(x, 0.25, torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(once, again)
    assert abs(float(once.mean()) - 1) < 0.02
    assert torch.equal(dropout(x, 0.25, None), x)
