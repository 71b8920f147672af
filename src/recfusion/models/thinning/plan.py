"""The parts of the mixture for some data, by counts and signals alone, so that every machine plans the same model.

Only a machine without torch plans another one: it leaves out the networks and says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from recfusion.core.extras import is_installed
from recfusion.models.base import Shape

EXACT_ITEMS = 20_000  # with more items, neighbours and a few factors replace a matrix of items by items
DENSE_ITEMS = 50_000  # with more items, parts with dense rows of items are left out
_EXACT = ("thinning-linear", "thinning-pairs")
_DENSE, LOCAL = "thinning-deep", "thinning-local"
LOW_PASS = "low-pass"  # beside thinning-local, for tastes that reach beyond neighbourhoods
ORDER, DISLIKES, FEATURES = "thinning-order", "thinning-signals", "thinning-features"
NETWORKS = (_DENSE, ORDER)
WITHOUT_TORCH = (
    "The networks are left out because torch is not installed, which costs about half a point of NDCG@100 on "
    "MovieLens 1M: pip install 'recfusion[nets]'"
)
LARGE = 300_000  # from so many interactions on the large net is worth its time in a mixture


@dataclass(frozen=True)
class Plan:
    """The parts of a mixture, and the reasons for every change."""

    parts: tuple[str, ...]
    reasons: tuple[str, ...]


def plan(members: Sequence[str], shape: Shape) -> Plan:
    """Return the parts to fit for `members`; if none is left, thinning-local is fitted.

    Signals change a mixture of thinning denoisers: with times the networks read histories in order, and dislikes
    and features add a closed form that reads them.
    """
    parts: list[str] = []
    reasons: list[str] = []
    if shape.items > EXACT_ITEMS and {*_EXACT} & {*members}:
        reasons += [
            f"With {shape.items} items, {name} {instead}"
            for name, (there, instead) in _additions(shape).items()
            if there
        ]
    for name in _with_signals(members, shape):
        if name in NETWORKS and not is_installed("torch"):
            reasons.append(WITHOUT_TORCH)
        elif name in _EXACT and shape.items > EXACT_ITEMS:
            reasons.append(
                f"With {shape.items} items, {LOCAL} replaces {name}: its matrix of items by items would be too large"
            )
            if LOCAL not in parts:
                parts += [LOCAL, LOW_PASS] if shape.items <= DENSE_ITEMS else [LOCAL]
        elif name in NETWORKS and shape.items > DENSE_ITEMS:
            reasons.append(f"With {shape.items} items, {name} is left out: it is made for fewer items")
        elif name != LOCAL or LOCAL not in parts:  # it may already replace another part
            parts.append(name)
    return Plan(tuple(parts) or (LOCAL,), tuple(dict.fromkeys(reasons)))


def _additions(shape: Shape) -> dict[str, tuple[bool, str]]:
    """Return the parts that signals add to exact models: whether there is the signal, and what many items change."""
    featured = shape.item_features + shape.user_features > 0
    return {
        DISLIKES: (
            shape.dislikes > 0 or shape.timed,
            "is not added, because it needs a matrix of items by items: dislikes are only masked, and trends not read",
        ),
        FEATURES: (featured, "only places new items and users without history: features change no other scores"),
    }


def _with_signals(members: Sequence[str], shape: Shape) -> list[str]:
    """Return the members that read the signals too."""
    parts = [ORDER if shape.timed and name == _DENSE else name for name in members]
    added = [name for name, (there, _) in _additions(shape).items() if there and {*_EXACT} & {*parts}]
    return parts + [name for name in added if name not in parts and (name == FEATURES or shape.items <= EXACT_ITEMS)]
