"""More than ones: which signals are used, and what a model that reads them is given of some users.

A model that reads none never sees any of this. What was seen and not liked is masked for every model all the same.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray, IntArray
from recfusion.core.errors import InputError, choices
from recfusion.data.interactions import Features, Interactions, Signal

BINARY = "binary"
# What a user asks for -> what is then read of the data, as far as it is there.
ASKED: Mapping[str, tuple[Signal, ...]] = {
    "graded": ("grades",),
    "timed": ("times",),
    "features": ("item_features", "user_features"),
}
_HOW = {
    "graded": "name the column of the ratings or counts with --rating",
    "timed": "name the column of the times with --time",
    "features": "describe the items with --items",
}
Rows: TypeAlias = slice | IntArray


@dataclass(frozen=True)
class Extra:
    """What is known of some users beside their ones; row r belongs to row r of their histories.

    `grades` and `times` have the stored entries of the histories, in their order. A stored 0 is a value like any
    other, so read `.data` and `.indices` and do not add or multiply these matrices.
    """

    grades: Csr | None = None  # (users, items): rating or count
    times: Csr | None = None  # (users, items): seconds since 1970
    disliked: Csr | None = None  # (users, items): the ratings of what was seen and not liked
    disliked_times: Csr | None = None
    item_features: Features | None = None  # a row per item
    user_features: Features | None = None  # a row per user here

    def rows(self, rows: Rows) -> "Extra":
        """Return the same of some of the users."""
        cut = {name: None if matrix is None else matrix[rows] for name, matrix in self._matrices().items()}
        users = self.user_features
        return replace(self, **cut, user_features=None if users is None else replace(users, matrix=users.matrix[rows]))

    def columns(self, items: IntArray) -> "Extra":
        """Return the same over some of the items."""
        cut = {name: None if matrix is None else matrix[:, items] for name, matrix in self._matrices().items()}
        known = self.item_features
        return replace(self, **cut, item_features=None if known is None else replace(known, matrix=known.matrix[items]))

    def only(self, signals: Collection[Signal]) -> "Extra | None":
        """Return what a model that reads `signals` may see; None where that is nothing."""
        graded, timed = "grades" in signals, "times" in signals
        found = Extra(
            grades=self.grades if graded else None,
            times=self.times if timed else None,
            disliked=self.disliked if graded else None,
            disliked_times=self.disliked_times if graded and timed else None,
            item_features=self.item_features if "item_features" in signals else None,
            user_features=self.user_features if "user_features" in signals else None,
        )
        return found if any(value is not None for value in vars(found).values()) else None

    def _matrices(self) -> dict[str, Csr | None]:
        return {
            "grades": self.grades,
            "times": self.times,
            "disliked": self.disliked,
            "disliked_times": self.disliked_times,
        }


def parse_signals(text: str) -> tuple[str, ...]:
    """Return the names of what is asked for, "binary" or some of "graded,timed,features"; none for "binary"."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    wrong = next((name for name in names if name not in (BINARY, *ASKED)), None)
    if wrong is not None or not names:
        raise choices("signals", wrong or text, (BINARY, *ASKED))
    if BINARY in names and len(names) > 1:
        raise InputError(f"Expected binary alone or other signals without it, got '{text}'.")
    return tuple(name for name in names if name != BINARY)


def used_signals(asked: str, data: Interactions) -> tuple[Signal, ...]:
    """Return what of the data is used when `asked` for; what the data has none of is an error."""
    found: list[Signal] = []
    for name in parse_signals(asked):
        there = [signal for signal in ASKED[name] if signal in data.signals]
        if not there and name == "features" and data.source.items is not None:
            raise InputError(
                f"Signals 'features' are asked for, but --items says nothing of use of the {data.n_items:,} items of "
                f"'{data.name}': check that its ids are those of the data, and its columns."
            )
        if not there:
            raise InputError(f"Signals '{name}' are asked for, but '{data.name}' has none: {_HOW[name]}.")
        found += there
    return tuple(found)


def asked_signals(used: Collection[Signal]) -> str:
    """Return what one asks for to use these signals."""
    return ",".join(name for name, signals in ASKED.items() if set(signals) & set(used)) or BINARY


def check_read(used: Collection[Signal], reads: Iterable[tuple[str, Collection[Signal]]]) -> None:
    """Raise where no model reads a signal; grades are of use to every model, since what was disliked is masked."""
    models = list(reads)
    for name, signals in ASKED.items():
        asked = set(signals) & set(used)
        if asked and name != "graded" and not any(asked & set(its) for _, its in models):
            listed = ", ".join(label for label, _ in models)
            raise InputError(
                f"Signals '{name}' are asked for, but {listed} reads none of them: choose a model that does "
                "(`recfusion models` says which), or leave them out."
            )


def valued(pattern: Csr, values: NDArray[Any]) -> Csr:
    """Return a matrix with the stored entries of `pattern` and these values."""
    return csr_array((values, pattern.indices, pattern.indptr), shape=pattern.shape)


def whole_extra(data: Interactions, used: Collection[Signal]) -> Extra | None:
    """Return the signals of all users with their whole histories; None where none are used."""
    if not used:
        return None
    disliked, when = data.disliked, data.disliked_times
    return Extra(
        grades=None if data.grades is None else valued(data.matrix, data.grades),
        times=None if data.times is None else valued(data.matrix, data.times),
        disliked=disliked,
        disliked_times=None if disliked is None or when is None else valued(disliked, when),
        item_features=data.item_features,
        user_features=data.user_features,
    ).only(used)


def all_grades(*given: Csr | FloatArray | None) -> FloatArray:
    """Return all grades that there are in some matrices or arrays, those of dislikes among them."""
    parts = [one if isinstance(one, np.ndarray) else one.data for one in given if one is not None]
    return np.concatenate(parts) if parts else np.zeros(0, np.float32)


def kept(matrix: Csr | None, keep: NDArray[np.bool_]) -> Csr | None:
    """Return a matrix with only the stored entries where `keep` is true, with their values."""
    if matrix is None:
        return None
    before = np.concatenate([[0], np.cumsum(keep)])
    parts = (matrix.data[keep], matrix.indices[keep], before[matrix.indptr].astype(matrix.indptr.dtype))
    return csr_array(parts, shape=matrix.shape)
