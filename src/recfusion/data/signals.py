"""Ratings, timestamps and features: which signals are used, and what a model that reads them receives.

A model that reads no signals never receives any. Items that a user disliked are masked for every model.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray, IntArray, keep_entries
from recfusion.core.errors import InputError, choices
from recfusion.data.interactions import Features, Interactions, Signal

BINARY = "binary"
AUTO = "auto"
# Name of the option -> signals of the data that it selects, if the data has them.
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
EVERY: tuple[Signal, ...] = get_args(Signal)
_MATRICES = ("grades", "times", "disliked", "disliked_times")
RowIndex: TypeAlias = slice | IntArray


@dataclass(frozen=True)
class Extra:
    """Ratings, timestamps and features of some users; row r belongs to row r of their histories.

    `grades` and `times` have the stored entries of the histories, in the same order. A stored 0 is a value, so read
    `.data` and `.indices`, and do not add or multiply these matrices.
    """

    grades: Csr | None = None  # (users, items): rating or count
    times: Csr | None = None  # (users, items): seconds since 1970
    disliked: Csr | None = None  # (users, items): ratings below the like threshold
    disliked_times: Csr | None = None
    item_features: Features | None = None  # a row per item
    user_features: Features | None = None  # a row per user here

    def rows(self, rows: RowIndex) -> "Extra":
        """Return the signals of some of the users."""
        return self._cut("user_features", rows, lambda matrix: matrix[rows])

    def columns(self, items: IntArray) -> "Extra":
        """Return the signals of some of the items."""
        return self._cut("item_features", items, lambda matrix: matrix[:, items])

    def _cut(self, features: str, index: RowIndex, cut: Callable[[Csr], Csr]) -> "Extra":
        parts: dict[str, Any] = {
            name: cut(getattr(self, name)) for name in _MATRICES if getattr(self, name) is not None
        }
        if (known := getattr(self, features)) is not None:
            parts[features] = replace(known, matrix=known.matrix[index])
        return replace(self, **parts)

    def keep(self, entries: NDArray[np.bool_], *names: str) -> "Extra":
        """Return the signals with only the stored `entries` of these matrices."""
        found = {name: getattr(self, name) for name in names}
        return replace(self, **{name: None if m is None else keep_entries(m, entries) for name, m in found.items()})

    def only(self, signals: Collection[Signal]) -> "Extra | None":
        """Return the part that a model which reads `signals` may see; None if that is nothing."""
        visible: set[str] = {*signals} | ({"disliked"} if "grades" in signals else set())
        visible |= {"disliked_times"} if {"grades", "times"} <= visible else set()
        found = {name: value for name, value in vars(self).items() if name in visible and value is not None}
        return Extra(**found) if found else None


def parse_signals(text: str) -> tuple[str, ...]:
    """Return the names in "graded,timed,features" or "auto", or none for "binary"."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    wrong = next((name for name in names if name not in (AUTO, BINARY, *ASKED)), None)
    if wrong is not None or not names:
        raise choices("signals", wrong or text, (AUTO, BINARY, *ASKED), "signals")
    alone = next((name for name in (AUTO, BINARY) if name in names and len(names) > 1), None)
    if alone is not None:
        raise InputError(f"Expected {alone} alone or other signals without it, got '{text}'.", "signals")
    return tuple(name for name in names if name != BINARY)


def used_signals(asked: str, data: Interactions, reads: Collection[Signal] = EVERY) -> tuple[Signal, ...]:
    """Return the signals of the data that `asked` selects; raise if the data has none of a kind.

    "auto" selects all that the data has and the model `reads`, without ratings or times that are all equal.
    """
    found: list[Signal] = []
    names = parse_signals(asked)
    if AUTO in names:
        every = (signal for signals in ASKED.values() for signal in signals)
        return tuple(
            signal for signal in every if signal in data.signals and signal in reads and _differs(signal, data)
        )
    for name in names:
        there = [signal for signal in ASKED[name] if signal in data.signals]
        if not there and name == "features" and data.source.items is not None:
            raise InputError(
                f"Signals 'features' are requested, but --items has no usable column for the {data.n_items:,} items of "
                f"'{data.name}': check its ids and its columns.",
                "items",
            )
        if not there:
            raise InputError(f"Signals '{name}' are requested, but '{data.name}' has none: {_HOW[name]}.", "signals")
        found += there
    return tuple(found)


def _differs(signal: Signal, data: Interactions) -> bool:
    """Return whether a signal has more than one value; dislikes are values of ratings too."""
    values = {"grades": data.grades, "times": data.times}.get(signal)
    return values is None or (signal == "grades" and data.disliked is not None) or bool(values.min() < values.max())


def asked_signals(used: Collection[str]) -> str:
    """Return the option that selects these signals."""
    return ",".join(name for name, signals in ASKED.items() if set(signals) & set(used)) or BINARY


def check_signals_are_read(asked: str, reads: Iterable[tuple[str, Collection[Signal]]]) -> None:
    """Raise if no model reads a signal that `asked` names; ratings serve every model, which masks disliked items."""
    models = list(reads)
    for name in parse_signals(asked):
        signals = set(ASKED.get(name, ()))
        if signals and name != "graded" and not any(signals & set(its) for _, its in models):
            listed = ", ".join(label for label, _ in models)
            raise InputError(
                f"Signals '{name}' are requested, but {listed} does not read them: choose a model that does "
                "(see `recfusion models`), or leave them out.",
                "signals",
            )


def valued(pattern: Csr, values: NDArray[Any]) -> Csr:
    """Return a matrix with the stored entries of `pattern` and other values."""
    return csr_array((values, pattern.indices, pattern.indptr), shape=pattern.shape)


def whole_extra(data: Interactions, used: Collection[Signal]) -> Extra | None:
    """Return the signals of all users with their whole histories; None if none are used."""
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
    """Return all ratings in these matrices or arrays, concatenated."""
    parts = [one if isinstance(one, np.ndarray) else one.data for one in given if one is not None]
    return np.concatenate(parts) if parts else np.zeros(0, np.float32)
