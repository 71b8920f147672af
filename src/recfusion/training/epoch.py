"""What drivers of a training see of it; light enough for models that do not train."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Epoch:
    """What one epoch came to."""

    number: int
    of: int  # epochs at the most
    loss: float
    metric: float | None  # on the validation users
    best_metric: float | None
    best_epoch: int
    seconds: float


@dataclass(frozen=True)
class Checkpoint:
    """Where a run keeps its state, and what it calls itself."""

    path: Path
    run: str


OnEpoch = Callable[[Epoch], None]


def risen_and_fallen(epoch: int, epochs: int, rising: int) -> float:
    """Return the share of the highest learning rate in an epoch: it rises evenly, and falls like a cosine to 0."""
    return min(1.0, epoch / min(rising, epochs)) * 0.5 * (1 + math.cos(math.pi * (epoch - 1) / epochs))


@dataclass(frozen=True)
class Curve:
    """A training, epoch by epoch; empty for a closed form."""

    epoch: tuple[int, ...] = ()
    loss: tuple[float | None, ...] = ()  # None where it was no finite number
    metric: tuple[float | None, ...] = ()  # on the validation users
    seconds: tuple[float, ...] = ()

    @classmethod
    def of(cls, epochs: Sequence[Epoch]) -> "Curve":
        """Return the curve of the epochs that a training yielded."""
        return cls(
            epoch=tuple(epoch.number for epoch in epochs),
            loss=tuple(epoch.loss if math.isfinite(epoch.loss) else None for epoch in epochs),
            metric=tuple(epoch.metric for epoch in epochs),
            seconds=tuple(epoch.seconds for epoch in epochs),
        )
