"""Guesses the meaning of a rating column (stars, ratings out of ten, counts or flags) and the like threshold.

The name of the column decides if it is clear, else the numbers do. Notes report what was assumed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from recfusion.data.reading.columns import names_counts, names_ratings

Kind = Literal["stars", "tenths", "counts", "flags", "unknown"]
_LIKED = {"stars": 4.0, "tenths": 8.0}  # four fifths of the scale
_DOUBTFUL = 0.4  # with a larger share of ones, stars may be quantities
_MIXED = 0.9  # with a larger share of ratings up to 5, higher ones may be of another scale
_STEP, _FEWEST, _MOST = 2.0, 100, 1_000_000  # a changed scale: ratio of maxima, fewest and most ratings looked at
_MIXED_FAR = 0.3  # the same if the highest are above 10


@dataclass(frozen=True)
class Scale:
    """Statistics of the ratings of a table."""

    low: float
    high: float
    positive: float | None  # the lowest above 0
    rows: int
    whole: bool  # all are whole numbers
    ones: int  # how many are 1
    five: int  # how many are at most 5
    column: str | None = None  # name of the column
    added: bool = False  # they are sums of several rows

    @classmethod
    def of(
        cls, rating: NDArray[np.float32] | None, column: str | None = None, *, added: bool = False
    ) -> "Scale | None":
        """Return the scale of ratings; None if there are none."""
        if rating is None or not len(rating):
            return None
        low, high, whole = float(rating.min()), float(rating.max()), bool((rating == np.floor(rating)).all())
        positive = float(rating[rating > 0].min()) if high > 0 else None
        ones, five = int((rating == 1).sum()), int((rating <= 5).sum())
        return cls(low, high, positive, len(rating), whole, ones, five, column, added)

    def __add__(self, other: "Scale") -> "Scale":
        return replace(
            self,
            low=min(self.low, other.low),
            high=max(self.high, other.high),
            positive=min((p for p in (self.positive, other.positive) if p is not None), default=None),
            **{name: getattr(self, name) + getattr(other, name) for name in ("rows", "ones", "five")},
            whole=self.whole and other.whole,
        )

    @property
    def kind(self) -> Kind:
        """The guessed meaning of the numbers."""
        if self.added:
            return "counts"
        if self.low >= 0 and 1 < self.high <= 5:
            return "stars"
        if self.column is not None and names_ratings(self.column) and self.low > 0 and 5 < self.high <= 10:
            return "tenths"
        return "flags" if self.low <= 0 else "unknown"

    @property
    def liked(self) -> float | None:
        """The like threshold; None if every row counts."""
        return _LIKED.get(self.kind, self.positive if self.low <= 0 else None)

    def sentence(self, threshold: float | None, dropped: str) -> str:
        """Return what was assumed, why, and the option that changes it; `dropped` is the share of dropped rows."""
        found = f"ratings from {self.low:g} to {self.high:g} are"
        if self.kind == "counts":
            why = "as the name says" if names_counts(self.column or "") else "since some are below 0"
            return (
                f"numbers from {self.low:g} to {self.high:g} in '{self.column}' are taken for counts, {why}: "
                "those of a user and an item are added up, and sums above 0 count; --min-rating sets a threshold, "
                "--rating none ignores them"
            )
        if threshold is None:
            return f"{found} not taken for stars, so every row counts: --min-rating sets a threshold"
        if self.kind == "flags":
            return f"{found} taken for counts or flags, and those above 0 count: --min-rating sets another threshold"
        ends = f"{threshold:g} and more count ({dropped} of the rows are dropped): --min-rating none keeps all"
        if self.kind == "tenths":
            return f"{found} taken for ratings out of ten, as the name '{self.column}' says; {ends}"
        ones = self.ones / self.rows if self.whole else 0.0
        doubt = f"; {ones:.0%} of them are 1, as in quantities: --rating none ignores them"
        return f"{found} taken for stars; {ends}{doubt if ones > _DOUBTFUL else ''}"

    def doubts(self) -> Iterator[str]:
        """Yield a note if two scales seem to be mixed."""
        named = self.column is not None and names_ratings(self.column)
        five = self.five / self.rows
        if named and self.high > 5 and (_MIXED if self.high <= 10 else _MIXED_FAR) <= five < 1:
            yield (
                f"{five:.1%} of the ratings are at most 5 and the highest is {self.high:g}: two scales may be "
                "mixed; --min-rating sets the threshold"
            )


def changed_scale(rating: NDArray[np.float32] | None, times: NDArray[np.int64] | None) -> list[str]:
    """Return a note if all ratings up to a moment, or from one on, stay far below the highest of all.

    Both parts need a twentieth of the ratings; of very many, some are looked at.
    """
    if rating is None or times is None or len(rating) < _FEWEST:
        return []
    some = slice(None, None, len(rating) // _MOST + 1)
    order = np.argsort(times[some], kind="stable")
    by_time, when, high = rating[some][order], times[some][order], float(rating.max())
    least = len(order) // 20
    for first, words in ((slice(None), "up to"), (slice(None, None, -1), "from")):
        running = np.maximum.accumulate(by_time[first])
        count = int(np.searchsorted(running, high / _STEP, side="right"))
        if least <= count <= len(order) - least and running[count - 1] > 1:
            day = np.datetime64(int(when[first][count - 1]), "s").astype("datetime64[D]")
            return [
                f"ratings {words} {day} are at most {running[count - 1]:g} ({count / len(order):.0%} of them), others "
                f"up to {high:g}: the scale may have changed; convert one part, or set the threshold with --min-rating"
            ]
    return []


def adds_up(column: str | None, low: float) -> bool:
    """Return whether numbers are added up per user and item: counts by name, or with returns (unless named ratings)."""
    return column is not None and (names_counts(column) or (low < 0 and not names_ratings(column)))
