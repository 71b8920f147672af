"""The parts of the mixture for data of a given size, by counts alone, so that every machine plans the same model."""

from collections.abc import Sequence
from dataclasses import dataclass

from recfusion.models.base import Shape

EXACT_ITEMS = 20_000  # with more items, neighbours and a few factors replace a matrix of items by items
DENSE_ITEMS = 50_000  # with more items, parts with dense rows of items are left out
_EXACT = ("thinning-linear", "thinning-pairs")
_DENSE, LOCAL = "thinning-deep", "thinning-local"
LARGE = 300_000  # from so many interactions on the large net is worth its time in a mixture


@dataclass(frozen=True)
class Plan:
    """The parts of a mixture, and the reasons for every change."""

    parts: tuple[str, ...]
    reasons: tuple[str, ...]


def plan(members: Sequence[str], shape: Shape) -> Plan:
    """Return the parts to fit for `members`; if none is left, thinning-local is fitted."""
    parts: list[str] = []
    reasons: list[str] = []
    for name in members:
        if name in _EXACT and shape.items > EXACT_ITEMS:
            reasons.append(f"{LOCAL} replaces {name}: its matrix of items by items would be too large")
            if LOCAL not in parts:
                parts.append(LOCAL)
        elif name == _DENSE and shape.items > DENSE_ITEMS:
            reasons.append(f"{name} is left out: it is made for fewer items")
        elif name != LOCAL or LOCAL not in parts:  # it may already replace another part
            parts.append(name)
    return Plan(tuple(parts) or (LOCAL,), tuple(dict.fromkeys(reasons)))
