"""The training loop: a generator of epochs. Whoever drives it decides when to stop and what to show."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from recfusion.core.arrays import Csr
from recfusion.core.errors import InputError
from recfusion.training.batches import shuffled_batches

Loss = Callable[[Csr], Tensor]  # a batch of users -> mean loss


@dataclass(frozen=True)
class Pass:
    """One pass over the training users."""

    epoch: int
    loss: float
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
    loss: Loss,
    train: Csr,
    *,
    batch_size: int,
    rng: torch.Generator,
    first: int = 1,
) -> Iterator[Pass]:
    """Yield after each pass over the rows of `train` in a random order, for ever."""
    epoch = first
    while True:
        start = time.perf_counter()
        net.train()
        total, n_batches = 0.0, 0
        for rows in shuffled_batches(train, batch_size, rng):
            optimizer.zero_grad(set_to_none=True)
            value = loss(rows)
            number = float(value.detach())
            if number - number != 0:  # NaN or infinite
                raise DivergedError(epoch)
            value.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total, n_batches = total + number, n_batches + 1
        yield Pass(epoch, total / max(1, n_batches), time.perf_counter() - start)
        epoch += 1
