"""What a preparation assumed and dropped, in sentences that say how to choose otherwise."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from recfusion.data.interactions import PreparationStep
from recfusion.data.settings import Preparation

_MUCH = 0.1  # a share that a user should know of


@dataclass(frozen=True)
class Scale:
    """The ratings of a table: between what, and which share of them is 1 where all are whole numbers (else 0)."""

    low: float
    high: float
    ones: float

    @classmethod
    def of(cls, rating: NDArray[np.float32] | None) -> "Scale | None":
        """Return the scale of ratings, None where there are none."""
        if rating is None or not len(rating):
            return None
        whole = bool((rating == np.floor(rating)).all())
        return cls(float(rating.min()), float(rating.max()), float((rating == 1).mean()) if whole else 0.0)


def preparation_notes(
    asked: Preparation, threshold: float | None, scale: Scale | None, steps: Sequence[PreparationStep]
) -> Iterator[str]:
    """Yield what a reader of the protocol card should know of the preparation, from its `steps`."""
    rows = steps[0].interactions

    def lost(step: str, what: str = "interactions") -> int:
        return sum(getattr(a, what) - getattr(b, what) for a, b in pairwise(steps) if b.step.startswith(step))

    repeated, disliked = lost("one row per user and item") / rows, lost("rating at least") / rows
    if repeated > _MUCH:
        yield f"{share(repeated)} of the rows repeat a user and an item, and one of them counts"
    if asked.min_rating == "auto" and scale is not None:
        yield _guess(scale, threshold, disliked)
    elif disliked > _MUCH:
        yield f"{share(disliked)} of the rows are rated below {threshold:g} and dropped: --min-rating none keeps them"
    for kind, other, least in (
        ("users", "items", asked.min_items_per_user),
        ("items", "users", asked.min_users_per_item),
    ):
        before = next(getattr(a, kind) for a, b in pairwise(steps) if b.step.startswith(kind))
        rare, gone = lost(f"{kind} with", kind) / max(before, 1), lost(f"{kind} with") / rows
        if max(rare, gone) > _MUCH:
            yield (
                f"{share(rare)} of the {kind} ({share(gone)} of the rows) had fewer than {least} {other} and were "
                f"dropped: --min-{other}-per-{kind[:-1]} 1 keeps them"
            )


def _guess(scale: Scale, threshold: float | None, dropped: float) -> str:
    found = f"ratings from {scale.low:g} to {scale.high:g} are"
    if threshold is None:
        return f"{found} not taken for stars, so every row counts: --min-rating sets the least that counts"
    if scale.low <= 0 and threshold != 4:
        return f"{found} taken for counts or flags, of which those above 0 count: --min-rating sets another threshold"
    doubt = f"; {share(scale.ones)} of them are 1, as in quantities: --rating none leaves them out"
    return (
        f"{found} taken for stars, of which 4 and more count ({share(dropped)} of the rows are dropped): --min-rating "
        f"none keeps all{doubt if scale.ones > 0.4 else ''}"
    )


def share(part: float) -> str:
    """Return a share in words."""
    return "under 1%" if 0 < part < 0.005 else f"{part:.0%}"
