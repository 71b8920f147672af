"""What drivers of a training see of it; light enough for models that do not train."""

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
