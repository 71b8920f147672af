"""Kinds of events and their weights: how events with an item add up to having it or not."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from recfusion.core.errors import InputError

# At a sum of 1 an item joins the user's history, at -1 it leaves it. A kind with weight 0 is only counted.
WEIGHTS = {
    "have": 1.0,
    "purchase": 1.0,
    "like": 1.0,
    "cart": 0.5,
    "view": 0.1,
    "click": 0.0,
    "skip": 0.0,
    "dislike": -1.0,
    "return": -1.0,
}
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")


@dataclass
class Standing:
    """Whether a user has an item, by the user's events with it in their order."""

    has: bool | None = None  # None: the events do not say
    time: float = 0.0  # of the last event that counted
    quantity: float = 0.0  # units that the user has
    evidence: float = 0.0  # sum of smaller weights since `has` was decided
    times: list[float] = field(default_factory=list)  # of the events that added units, since the user last had none

    def add(self, weight: float, time: float, quantity: float | None) -> bool:
        """Add an event and return whether it decided; no `quantity` means one unit, or all of a return."""
        self.evidence = round(self.evidence + weight, 9)
        sign = weight if abs(weight) >= 1 else self.evidence if abs(self.evidence) >= 1 else 0.0
        if sign == 0:
            return False
        self.evidence, self.time = 0.0, time
        if sign > 0:
            self.quantity += 1.0 if quantity is None else quantity
            self.times.append(time)
        else:
            self.quantity = 0.0 if quantity is None else max(0.0, self.quantity - quantity)
        self.has = self.quantity > 0
        if not self.has:
            self.times.clear()
        return True


def parse_weights(texts: Iterable[str]) -> dict[str, float]:
    """Return weights of kinds given as texts such as `view=0.2`."""
    found = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            weight = float(value)
        except ValueError:
            weight = float("nan")
        if not _NAME.fullmatch(name) or not -1 <= weight <= 1:
            raise InputError(
                f"Expected KIND=WEIGHT with a name in lower-case letters and a weight from -1 to 1, got {text!r}: "
                "write view=0.2, for example.",
                "event_weight",
            )
        found[name] = weight
    return found
