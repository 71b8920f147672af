"""The training loop: a generator of epochs. Whoever drives it decides when to stop and what to show."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from recfusion.core.arrays import Csr
from recfusion.core.errors import InputError
from recfusion.training.batches import shuffled_batches

Loss = Callable[[Csr], Tensor]  # a batch of users -> mean loss


@dataclass(frozen=True)
class Phase:
    """A pass over the training users with a loss of its own, in which one part of the net learns."""

    loss: Loss
    part: nn.Module | None = None  # None: all of it
    before: Callable[[], None] | None = None  # done once, as the phase begins


@dataclass(frozen=True)
class Pass:
    """One epoch: a pass over the training users for each phase."""

    epoch: int
    loss: float  # mean over the batches of the first phase
    seconds: float


class DivergedError(InputError):
    """The loss is not a number any more; the weights of the last good epoch are kept."""

    def __init__(self, epoch: int) -> None:
        super().__init__(
            f"The loss became NaN or infinite in epoch {epoch} and training stopped: lower the learning rate (lr)."
        )
        self.epoch = epoch


def train_epochs(
    net: nn.Module,
    optimizer: torch.optim.Optimizer,
    phases: Sequence[Phase],
    train: Csr,
    *,
    batch_size: int,
    rng: torch.Generator,
    first: int = 1,
    rate: Callable[[int], float] | None = None,
) -> Iterator[Pass]:
    """Yield after each epoch: every phase passes once over the rows of `train` in a random order, for ever.

    `rate` gives an epoch's learning rate; without it the optimizer's own stays.
    """
    epoch = first
    while True:
        start = time.perf_counter()
        if rate is not None:
            for group in optimizer.param_groups:
                group["lr"] = rate(epoch)
        losses = []
        for phase in phases:
            batches = shuffled_batches(train, batch_size, rng)
            values = []
            with _learning(net, phase):
                for rows in batches:
                    optimizer.zero_grad(set_to_none=True)
                    value = phase.loss(rows)
                    values.append(float(value.detach()))
                    if not math.isfinite(values[-1]):
                        raise DivergedError(epoch)
                    value.backward()  # type: ignore[no-untyped-call]
                    optimizer.step()
            losses.append(sum(values) / max(1, len(values)))
        yield Pass(epoch, losses[0], time.perf_counter() - start)
        epoch += 1


@contextmanager
def _learning(net: nn.Module, phase: Phase) -> Iterator[None]:
    """Let only the phase's part have gradients; an optimizer passes over parameters without one."""
    net.train()
    if phase.before is not None:
        phase.before()
    if phase.part is None:
        yield
        return
    learning = {id(parameter) for parameter in phase.part.parameters()}
    resting = [p for p in net.parameters() if p.requires_grad and id(p) not in learning]
    for parameter in resting:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in resting:
            parameter.requires_grad_(True)
