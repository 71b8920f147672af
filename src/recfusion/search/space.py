"""What a search may choose from: intervals and choices, by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np


@dataclass(frozen=True)
class Interval:
    """The numbers from `low` to `high`, spread evenly or, with `log`, evenly over their logarithms."""

    low: float
    high: float
    log: bool = False
    integer: bool = False

    def draw(self, rng: np.random.Generator) -> float | int:
        """Draw a number."""
        if self.log:
            value = float(np.exp(rng.uniform(np.log(self.low), np.log(self.high))))
        else:
            value = float(rng.uniform(self.low, self.high))
        return self.within(value)

    def within(self, value: float) -> float | int:
        """Return the nearest number of the interval."""
        inside = min(max(float(value), self.low), self.high)
        return round(inside) if self.integer else inside


@dataclass(frozen=True)
class Choice:
    """One of several values without an order."""

    options: tuple[Any, ...]

    def draw(self, rng: np.random.Generator) -> Any:
        """Draw an option."""
        return self.options[int(rng.integers(len(self.options)))]


Space: TypeAlias = Mapping[str, Interval | Choice]
