"""Which parts the mixture has on data of a given size: by counts alone, so that every machine plans the same model."""

from collections.abc import Sequence
from dataclasses import dataclass

from recfusion.models.base import Shape

EXACT_ITEMS = 20_000  # beyond, a matrix of items by items is replaced by neighbours and a few factors
DENSE_ITEMS = 50_000  # beyond, parts with a dense row of items for each landmark user or hidden unit are left out
_EXACT = ("thinning-linear", "thinning-pairs")
_DENSE = ("thinning-kernel", "thinning-deep")
LOCAL = "thinning-local"
LARGE = 300_000  # interactions from which on the large net is worth its time in a mixture


@dataclass(frozen=True)
class Plan:
    """The parts of a mixture, and why they are not those that were named."""

    parts: tuple[str, ...]
    reasons: tuple[str, ...]


def plan(members: Sequence[str], shape: Shape) -> Plan:
    """Return the parts to fit in place of `members`; a mixture of which nothing would be left is thinning-local."""
    parts: list[str] = []
    reasons: list[str] = []
    for name in members:
        if name in _EXACT and shape.items > EXACT_ITEMS:
            reasons.append(f"{LOCAL} stands for {name}, whose matrix of items by items would be too large")
            if LOCAL not in parts:
                parts.append(LOCAL)
        elif name in _DENSE and shape.items > DENSE_ITEMS:
            reasons.append(f"{name} is left out, which is made for fewer items")
        elif name != LOCAL or LOCAL not in parts:  # it may stand for another already
            parts.append(name)
    return Plan(tuple(parts) or (LOCAL,), tuple(dict.fromkeys(reasons)))
