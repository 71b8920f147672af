"""The paired tests of a comparison: which models differ significantly, over the splits that both have."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np

from recfusion.core.arrays import IntArray
from recfusion.evaluation.metrics import Values
from recfusion.evaluation.significance import Difference, bootstrap_means, holm, paired_difference
from recfusion.experiments.result import Result, Seeds

BySeed: TypeAlias = Mapping[int, Result]
LEVEL = 0.05  # of significance, for corrected p-values
Draws: TypeAlias = Callable[[Seeds], dict[tuple[str, str], Values]]  # (model, metric) -> bootstrap means (draws,)


@dataclass(frozen=True)
class PairedTest:
    """A paired test of a minus b over the splits that both have."""

    metric: str
    a: str
    b: str
    difference: float
    ci95: tuple[float, float] | None  # like both p-values, None with a single test user
    p: float | None
    p_holm: float | None  # with Holm's correction over the tests of one kind and metric
    seeds: Seeds

    @property
    def is_significant(self) -> bool:
        """Whether the corrected p-value is below LEVEL and the interval lies on one side of zero."""
        if self.ci95 is None or self.p_holm is None:
            return False
        low, high = self.ci95
        return self.p_holm < LEVEL and not low <= 0 <= high

    def of(self, label: str) -> tuple[float, tuple[float, float] | None]:
        """Return the difference and its interval with `label` as the first model."""
        if label == self.a:
            return self.difference, self.ci95
        return -self.difference, self.ci95 and (-self.ci95[1], -self.ci95[0])


def make_draws(by_model: Mapping[str, BySeed], metrics: Sequence[str]) -> Draws:
    """Return a cached function from splits to bootstrap means of all models that have these splits."""

    @cache
    def draws(seeds: Seeds) -> dict[tuple[str, str], Values]:
        sharing = {label: its for label, its in by_model.items() if set(seeds) <= set(its)}
        columns = [(label, metric) for label in sharing for metric in metrics]
        values = [pooled(sharing[label], seeds, metric) for label, metric in columns]
        users = np.concatenate([next(iter(sharing.values()))[seed].users for seed in seeds])
        means = bootstrap_means(users, np.stack(values, axis=1))
        return dict(zip(columns, means.T, strict=True))

    return draws


def pooled(its: BySeed, seeds: Seeds, metric: str) -> Values:
    """Return the per-user values of a metric, concatenated over some splits."""
    return np.concatenate([its[seed].test[metric] for seed in seeds])


def from_best(by_model: Mapping[str, BySeed], metric: str) -> list[tuple[str, str]]:
    """Return the pairs of the best model with every other.

    The best is found on shared splits, because splits differ more than models do: first the best mean among the models
    with the most splits, then the model with the largest lead over it on its own splits.
    """
    most = max(len(its) for its in by_model.values())
    whole = {label: its for label, its in by_model.items() if len(its) == most}
    mark = max(whole, key=lambda label: pooled(whole[label], tuple(whole[label]), metric).mean())

    def lead(label: str) -> float:
        seeds = tuple(seed for seed in by_model[label] if seed in by_model[mark])
        if not seeds:
            return -math.inf
        ours, theirs = (pooled(by_model[one], seeds, metric).mean() for one in (label, mark))
        return float(ours - theirs)

    best = max(by_model, key=lead)
    return [(best, other) for other in by_model if other != best]


def paired_tests(
    by_model: Mapping[str, BySeed], metric: str, draws: Draws, pairs: Sequence[tuple[str, str]]
) -> list[PairedTest]:
    """Return the corrected tests of the pairs that share a split."""
    tested = []
    for a, b in pairs:
        seeds = tuple(seed for seed in by_model[a] if seed in by_model[b])
        if seeds:
            ours, theirs = (pooled(by_model[label], seeds, metric) for label in (a, b))
            drawn = draws(seeds)
            tested.append((a, b, seeds, paired_difference(ours, theirs, drawn[a, metric], drawn[b, metric])))
    corrected = holm([found.p for *_, found in tested])
    return [
        PairedTest(metric, a, b, found.difference, found.ci95, found.p, p, seeds)
        for (a, b, seeds, found), p in zip(tested, corrected, strict=True)
    ]


def paired_differences(users: IntArray, a: Mapping[str, Values], b: Mapping[str, Values]) -> dict[str, Difference]:
    """Return the difference a minus b of each metric, with one value per row of `users`."""
    both = [values[metric] for values in (a, b) for metric in a]
    drawn = bootstrap_means(users, np.stack(both, axis=1))
    return {
        metric: paired_difference(a[metric], b[metric], drawn[:, place], drawn[:, len(a) + place])
        for place, metric in enumerate(a)
    }
