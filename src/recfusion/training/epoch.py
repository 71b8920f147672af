"""Records of a training: epochs, learning curves, and the place of a checkpoint. Importing them needs no torch."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Epoch:
    """The results of one epoch."""

    number: int
    of: int  # largest number of epochs
    loss: float
    metric: float | None  # on the validation users
    best_metric: float | None
    best_epoch: int
    seconds: float


@dataclass(frozen=True)
class Checkpoint:
    """The file of a checkpoint, and the identity of the run that owns it."""

    path: Path
    run: str


OnEpoch = Callable[[Epoch], None]


def warmup_cosine(epoch: int, epochs: int, rising: int) -> float:
    """Return the learning rate's factor in an epoch: linear warm-up over `rising` epochs, and cosine decay to 0."""
    return min(1.0, epoch / min(rising, epochs)) * 0.5 * (1 + math.cos(math.pi * (epoch - 1) / epochs))


@dataclass(frozen=True)
class Curve:
    """The learning curve of a training; empty for a closed form."""

    epoch: tuple[int, ...] = ()
    loss: tuple[float | None, ...] = ()  # None if not finite
    metric: tuple[float | None, ...] = ()  # on the validation users
    seconds: tuple[float, ...] = ()

    @classmethod
    def of(cls, epochs: Sequence[Epoch]) -> "Curve":
        return cls(
            epoch=tuple(epoch.number for epoch in epochs),
            loss=tuple(epoch.loss if math.isfinite(epoch.loss) else None for epoch in epochs),
            metric=tuple(epoch.metric for epoch in epochs),
            seconds=tuple(epoch.seconds for epoch in epochs),
        )
