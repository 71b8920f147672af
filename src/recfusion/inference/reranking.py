"""Knobs of taste: terms of the score with a stated meaning. At rest, a list is the plain one, bit for bit."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from recfusion.core.arrays import Csr, FloatArray, IntArray, row_numbers
from recfusion.core.errors import InputError
from recfusion.inference.categories import Categories

_LEAST_SHOWN = 0.2  # the share of a user's taste that a history is taken to show at the highest adventurousness
_EXPONENT = 1.5  # of popularity when its knob is at 1
_DELTA = 0.01  # where a score counts as near the median, in distances from the median to the best
_SMOOTH = 0.05  # chance that an item's category is another than the table says: keeps logarithms finite
_GUIDANCE = 0.3  # exponent of a wish of 1: more, and nothing without the wished value is left

Wishes = Mapping[str, Mapping[str, float]]  # column of the item table -> value -> weight or share


@dataclass(frozen=True)
class Knobs:
    """How lists lean.

    `adventurousness` (0 to 1): the history is taken to show a share a = 1 - .8 v of the user's taste, as if thinning
    had removed the rest. The n (1 - a) / a likeliest missing items are taken for granted: they join the history of n
    items, and the list is what comes after them.
    `popularity` (-1 to 1): relevance is multiplied by (n_j + mean n)^(1.5 v), n_j being the item's number of users.
    `wish` ({"genres": {"Drama": 1, "Horror": -.5}}, each -1 to 1): guidance; relevance is multiplied by
    (p(g | j) / p(g))^(.3 w) for each wished value g. Relevance is how far a score lies above the user's median; lists
    then show its logarithm with these terms added.
    `shares` ({"genres": {"Drama": .6, "Comedy": .3}}): values of which the list should hold such shares; it is chosen
    greedily for scores and closeness to them (calibrated recommendations, Steck 2018), weighed by `calibration`.
    `diversity` (0 to 1): maximal marginal relevance (Carbonell and Goldstein 1998) over the model's own similarity of
    items: what is close to an item already in the list gives way.
    """

    adventurousness: float = 0.0
    popularity: float = 0.0
    wish: Wishes = field(default_factory=dict)
    shares: Wishes = field(default_factory=dict)
    calibration: float = 0.9
    diversity: float = 0.0

    def __post_init__(self) -> None:
        limits = {"adventurousness": 0, "popularity": -1, "calibration": 0, "diversity": 0}
        for name, least in limits.items():
            check_share(name, getattr(self, name), least)
        for name, wishes in {"wish": self.wish, "shares": self.shares}.items():
            if not isinstance(wishes, Mapping) or not all(isinstance(inner, Mapping) for inner in wishes.values()):
                raise InputError(f"Expected {name} as {{column: {{value: number}}}}, got {wishes!r}.")
        for column, wished in self.wish.items():
            for value, weight in wished.items():
                check_share(f"wish of {column} {value}", weight, -1)
        for column, wanted in self.shares.items():
            for value, share in wanted.items():
                check_share(f"share of {column} {value}", share, 0)
            if not 0 < sum(wanted.values()) <= 1 + 1e-6:
                raise InputError(f"Expected shares of {column} that add up to at most 1, got {sum(wanted.values()):g}.")
        if len(self.shares) > 1:
            raise InputError(f"Expected shares of one column, got {len(self.shares)}: choose one of them.")


def assumed_items(lengths: FloatArray, adventurousness: float) -> FloatArray:
    """Return n (1 - a) / a, rounded, for histories of n items: how much of the taste is taken for granted."""
    a = 1 - (1 - _LEAST_SHOWN) * adventurousness
    return np.round(lengths * (1 - a) / a)


def knob_terms(knobs: Knobs, categories: Callable[[str], Categories], counts: IntArray) -> dict[str, FloatArray]:
    """Return what each soft knob adds to the logarithm of relevance, (items,), by the name that reasons give it."""
    terms: dict[str, FloatArray] = {}
    if knobs.popularity:
        logs = np.log(counts + max(float(counts.mean()), 1e-12))
        terms["popularity"] = _EXPONENT * knobs.popularity * (logs - logs.mean())
    for column, wished in knobs.wish.items():
        table = categories(column)
        for value, weight in wished.items():
            number = table.number(value)
            own = _SMOOTH / len(table.names) + (1 - _SMOOTH) * table.chance(number)
            terms[f"{column}: {value}"] = _GUIDANCE * weight * (np.log(own) - np.log(own.mean()))
    return {name: term.astype(np.float32) for name, term in terms.items() if np.any(term)}


def log_relevance(scores: FloatArray, seen: Csr) -> FloatArray:
    """Return the logarithm of how far scores lie above the user's median, the best unseen item at 0; (users, items).

    In t = (score - median) / (best - median) it is log((t + root(t^2 + d^2)) / 2), d = .01: log t for what is worth
    recommending, and still in order below the median. -inf stays.
    """
    unseen = scores.copy()
    unseen[row_numbers(seen), seen.indices] = -np.inf
    best = unseen.max(1, keepdims=True)
    middle = _median(scores)
    lowest = np.min(scores, axis=1, keepdims=True, where=np.isfinite(scores), initial=np.inf)
    middle = np.where(np.isfinite(middle), middle, np.where(np.isfinite(lowest), lowest, 0))
    t = (scores - middle) / np.maximum(np.where(np.isfinite(best), best - middle, 1), 1e-12)
    far = np.abs(t) + np.hypot(t, _DELTA)
    with np.errstate(divide="ignore"):
        return np.log(np.where(t > 0, far, _DELTA**2 / far) / 2).astype(np.float32)


def _median(scores: FloatArray) -> FloatArray:
    """Return the median of each row, (users, 1), by one selection: numpy's own takes ten times as long."""
    half = scores.shape[1] // 2
    parted = np.partition(scores, half, axis=1)
    upper = parted[:, half : half + 1]
    lower = parted[:, :half].max(axis=1, keepdims=True) if scores.shape[1] % 2 == 0 else upper
    return ((upper + lower) / 2).astype(np.float32)


def check_share(name: str, value: object, least: float = 0) -> None:
    """Raise unless a value lies between `least` and 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= 1:
        raise InputError(f"Expected {name} between {least:g} and 1, got {value!r}.")
