"""Confidence intervals and paired tests from one value per user, also if splits share users.

A test user of several splits has several values that are not independent. So users are drawn with all their values (a
cluster bootstrap); with one split this is the ordinary bootstrap over users. All columns (models and metrics) share the
same draws, so differences between them are paired. With a single user there is no interval and no test.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recfusion.core.arrays import IntArray
from recfusion.core.rng import RngLike, make_rng
from recfusion.evaluation.metrics import Values

DRAWS = 30_000  # with twenty models Holm multiplies the smallest p by 19: it can still be below .001
_DRAWS_AT_ONCE = 200


@dataclass(frozen=True)
class Summary:
    """A metric over users and splits."""

    mean: float  # over all test users of all splits
    ci95: tuple[float, float] | None  # of that mean, bootstrap over users; None with fewer than two users
    median: float  # over splits, of each split's mean
    iqr: tuple[float, float]  # over splits
    splits: tuple[float, ...]  # each split's mean


@dataclass(frozen=True)
class Difference:
    """The paired difference of two columns of values."""

    difference: float
    ci95: tuple[float, float] | None  # None, like p, if all values are of one user
    p: float | None


def bootstrap_means(users: IntArray, values: Values, *, rng: RngLike = 0, draws: int = DRAWS) -> Values:
    """Return bootstrap means (draws, columns) of `values` (rows, columns); `users` has the user of each row.

    With a single user they are NaN: all draws would be equal and look certain.
    """
    _, cluster = np.unique(users, return_inverse=True)
    counts = np.bincount(cluster).astype(np.float64)
    n = len(counts)
    if n < 2:
        return np.full((draws, values.shape[1]), np.nan)
    sums = np.stack([np.bincount(cluster, column, n) for column in values.T], axis=1)  # (users, columns)
    generator = make_rng(rng)
    means = np.empty((draws, values.shape[1]))
    for start in range(0, draws, _DRAWS_AT_ONCE):
        size = min(_DRAWS_AT_ONCE, draws - start)
        drawn = generator.integers(0, n, (size, n)) + n * np.arange(size)[:, None]
        times = np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n).astype(np.float64)
        means[start : start + size] = (times @ sums) / (times @ counts)[:, None]
    return means


def summarise(split_values: Sequence[Values], drawn: Values | None) -> Summary:
    """Return the summary of one column, from its values per split and its bootstrap means (draws,), if any."""
    means = [float(values.mean()) for values in split_values]
    first, middle, third = np.quantile(means, [0.25, 0.5, 0.75])
    return Summary(
        mean=float(np.concatenate(split_values).mean()),
        ci95=None if drawn is None else _interval(drawn),
        median=float(middle),
        iqr=(float(first), float(third)),
        splits=tuple(means),
    )


def paired_difference(a: Values, b: Values, drawn_a: Values, drawn_b: Values) -> Difference:
    """Return mean(a - b) with its interval and a two-sided bootstrap test of no difference.

    p is the share of bootstrap differences, centred on zero, that are at least as large as the observed one; it is
    never below 1 / (draws + 1).
    """
    observed = float((a - b).mean())
    drawn = drawn_a - drawn_b
    interval = _interval(drawn)
    if interval is None:
        return Difference(observed, None, None)
    extreme = int(np.count_nonzero(np.abs(drawn - observed) >= abs(observed)))
    return Difference(observed, interval, (extreme + 1) / (len(drawn) + 1))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return Holm's step-down adjusted p-values: jointly valid, never smaller than the raw ones.

    None means not tested and is not counted.
    """
    tested = sorted((p, which) for which, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    running = 0.0
    for place, (p, which) in enumerate(tested):
        running = max(running, min(1.0, (len(tested) - place) * p))
        adjusted[which] = running
    return adjusted


def _interval(drawn: Values) -> tuple[float, float] | None:
    if np.isnan(drawn).any():
        return None
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)
