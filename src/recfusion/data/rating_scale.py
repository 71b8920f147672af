"""What the numbers in a column of ratings mean: stars, grades out of ten, counts or flags; and from which on one likes.

The name of the column decides where it tells, else the numbers do. What was assumed is said.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from recfusion.data.reading.columns import names_counts, names_ratings

Kind = Literal["stars", "tenths", "counts", "flags", "unknown"]
_LIKED = {"stars": 4.0, "tenths": 8.0}  # four fifths of the scale
_DOUBTFUL = 0.4  # share of ones from which on stars look like quantities
_MIXED = 0.9  # share of ratings up to 5 from which on higher ones look like those of another scale
_MIXED_FAR = 0.3  # the same where the highest are above 10: a scale to 100 has few so low


@dataclass(frozen=True)
class Scale:
    """The ratings of a table."""

    low: float
    high: float
    positive: float | None  # the lowest above 0
    ones: float  # the share of them that is 1 where all are whole numbers, else 0
    five: float = 1.0  # the share of them that is 5 at the most
    column: str | None = None  # the name of the column, where there is one
    added: bool = False  # they are sums of several rows

    @classmethod
    def of(
        cls, rating: NDArray[np.float32] | None, column: str | None = None, *, added: bool = False
    ) -> "Scale | None":
        """Return the scale of ratings, None where there are none."""
        if rating is None or not len(rating):
            return None
        positive = float(rating[rating > 0].min()) if rating.max() > 0 else None
        ones = float((rating == 1).mean()) if (rating == np.floor(rating)).all() else 0.0
        five = float((rating <= 5).mean())
        return cls(float(rating.min()), float(rating.max()), positive, ones, five, column, added)

    @property
    def kind(self) -> Kind:
        """What the numbers are taken for."""
        if self.added:
            return "counts"
        if self.low >= 0 and 1 < self.high <= 5:
            return "stars"
        if self.column is not None and names_ratings(self.column) and self.low > 0 and 5 < self.high <= 10:
            return "tenths"
        return "flags" if self.low <= 0 else "unknown"

    @property
    def liked(self) -> float | None:
        """The least that counts as liked; None: everything."""
        return _LIKED.get(self.kind, self.positive if self.low <= 0 else None)

    def sentence(self, threshold: float | None, dropped: str) -> str:
        """Return what was assumed, why, and how to choose otherwise; `dropped` is the share of the rows."""
        found = f"ratings from {self.low:g} to {self.high:g} are"
        if self.kind == "counts":
            why = "as the name says" if names_counts(self.column or "") else "since there are some below 0"
            return (
                f"numbers from {self.low:g} to {self.high:g} in '{self.column}' are taken for counts, {why}: "
                "those of a user and an item are added up, and what is above 0 counts; --min-rating sets another "
                "threshold, --rating none leaves them out"
            )
        if threshold is None:
            return f"{found} not taken for stars, so every row counts: --min-rating sets the least that counts"
        if self.kind == "flags":
            return (
                f"{found} taken for counts or flags, of which those above 0 count: --min-rating sets another threshold"
            )
        ends = f"{threshold:g} and more count ({dropped} of the rows are dropped): --min-rating none keeps all"
        if self.kind == "tenths":
            return f"{found} taken for grades out of ten, as the name '{self.column}' says, of which {ends}"
        doubt = f"; {self.ones:.0%} of them are 1, as in quantities: --rating none leaves them out"
        return f"{found} taken for stars, of which {ends}{doubt if self.ones > _DOUBTFUL else ''}"

    def assumed(self) -> str | None:
        """Return a sentence on a threshold that follows from the largest number alone; None where none does."""
        if self.kind not in _LIKED:
            return None
        taken = "stars" if self.kind == "stars" else "grades out of ten"
        return (
            f"Ratings from {self.low:g} to {self.high:g} were taken for {taken}, since the largest is {self.high:g}, "
            f"and of these {self.liked:g} and more count: mend the ratings off your scale, or say with --min-rating "
            "from which on a row counts."
        )

    def doubts(self) -> Iterator[str]:
        """Yield what looks wrong with the numbers."""
        named = self.column is not None and names_ratings(self.column)
        if named and self.high > 5 and (_MIXED if self.high <= 10 else _MIXED_FAR) <= self.five < 1:
            yield (
                f"{self.five:.1%} of the ratings are 5 at the most and the highest is {self.high:g}: two scales may be "
                "mixed; --min-rating says from which on a row counts"
            )


def adds_up(column: str | None, low: float) -> bool:
    """Return whether the numbers of a user and an item are added up: counts by their name, or returns among them.

    A column of ratings may go below 0 for reasons of its own.
    """
    return column is not None and (names_counts(column) or (low < 0 and not names_ratings(column)))
