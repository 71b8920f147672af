"""What a search may choose from: intervals and choices, by name."""

import math
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

    @property
    def ends(self) -> tuple[float, float]:
        """Where to draw between, on the scale of the draw: the first and last integer have their whole share."""
        margin = 0.5 if self.integer else 0.0
        low, high = self.low - margin, self.high + margin
        return (math.log(low), math.log(high)) if self.log else (low, high)

    def draw(self, rng: np.random.Generator) -> float | int:
        """Draw a number."""
        value = float(rng.uniform(*self.ends))
        return self.within(math.exp(value) if self.log else value)

    def within(self, value: float) -> float | int:
        """Return the nearest number of the interval."""
        inside = min(max(float(value), self.low), self.high)
        return round(inside) if self.integer else inside

    def holds(self, value: Any) -> bool:
        """Return whether a number lies in the interval."""
        return value is not None and self.low <= value <= self.high


@dataclass(frozen=True)
class Choice:
    """One of several values without an order."""

    options: tuple[Any, ...]

    def draw(self, rng: np.random.Generator) -> Any:
        """Draw an option."""
        return self.options[int(rng.integers(len(self.options)))]

    def holds(self, value: Any) -> bool:
        """Return whether a value is one of the options."""
        return value in self.options


Space: TypeAlias = Mapping[str, Interval | Choice]


def space_document(space: Space) -> dict[str, Any]:
    """Return a space as JSON data, in the words of a TOML file."""
    return {
        name: {"choices": list(each.options)}
        if isinstance(each, Choice)
        else {"low": each.low, "high": each.high, "log": each.log, "integer": each.integer}
        for name, each in space.items()
    }


def holds(space: Space, settings: Mapping[str, Any]) -> bool:
    """Return whether settings lie in a space, so that a search over it can learn from them."""
    return all(name in settings and each.holds(settings[name]) for name, each in space.items())
