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
