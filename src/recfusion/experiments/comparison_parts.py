"""The parts of a comparison: a model over its splits, results by user activity and item popularity, example lists."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recfusion.core.arrays import FloatArray
from recfusion.evaluation.evaluate import GROUPS
from recfusion.evaluation.metrics import Values
from recfusion.evaluation.significance import Summary, summarise
from recfusion.experiments.paired_tests import BySeed, Seeds
from recfusion.experiments.result import Place, Result

QUARTILES = 4


@dataclass(frozen=True)
class Model:
    """A candidate over its splits."""

    label: str
    model: str  # its name in the registry, or that of its class
    title: str
    place: str  # of a class that is not ours
    settings: dict[str, Any]
    chosen: dict[str, list[Any]]  # by setting, a value for each split
    seeds: Seeds
    parameters: int
    epochs: float  # these are means over the splits
    fit_seconds: float
    score_seconds: float
    trials: float | None
    metrics: dict[str, Summary]

    def mean(self, metric: str) -> float:
        """Return a metric's mean."""
        return self.metrics[metric].mean

    @classmethod
    def of(cls, label: str, its: BySeed, drawn: Mapping[str, Values]) -> "Model":
        """Return a model's results in one; `drawn` are the bootstrap means of each metric."""
        results = list(its.values())
        first = results[0]
        chosen = {key for one in results for key in one.chosen}
        trials = [one.trials for one in results if one.trials is not None]
        summaries = {metric: summarise([one.test[metric] for one in results], d) for metric, d in drawn.items()}
        overall = {name: summarise([np.array([one.overall[name]]) for one in results], None) for name in first.overall}
        return cls(
            label=label,
            model=first.model,
            title=first.title or first.model,
            place=first.place,
            settings=first.settings,
            chosen={key: [one.chosen.get(key, one.settings.get(key)) for one in results] for key in sorted(chosen)},
            seeds=tuple(its),
            parameters=first.parameters,
            epochs=float(np.mean([one.epochs for one in results])),
            fit_seconds=float(np.mean([one.fit_seconds for one in results])),
            score_seconds=float(np.mean([one.score_seconds for one in results])),
            trials=float(np.mean(trials)) if trials else None,
            metrics=summaries | overall,
        )


@dataclass(frozen=True)
class Activity:
    """Each model's metrics in the quartiles of history size.

    The quartiles are those of all test users of all splits, so that they are the same for every model. Users of one
    size stay together, and quartiles that would be empty are left out.
    """

    sizes: tuple[tuple[int, int], ...]  # the smallest and largest history of each group
    users: tuple[int, ...]  # test users over all splits
    models: dict[str, dict[str, list[float | None]]]  # label -> metric -> a mean for each group

    @classmethod
    def of(cls, by_model: Mapping[str, BySeed]) -> "Activity":
        """Return the groups of a comparison's results."""
        by_seed = {seed: one for its in by_model.values() for seed, one in its.items()}
        sizes = np.concatenate([one.history_size for one in by_seed.values()])
        cuts = np.unique(np.quantile(sizes, np.arange(1, QUARTILES) / QUARTILES, method="lower"))
        group = np.searchsorted(cuts, sizes)  # a size equal to a cut belongs below it
        kept = [int(place) for place in np.unique(group)]
        return cls(
            sizes=tuple((int(sizes[group == place].min()), int(sizes[group == place].max())) for place in kept),
            users=tuple(int(np.count_nonzero(group == place)) for place in kept),
            models={
                label: {metric: _means(list(its.values()), metric, cuts, kept) for metric in _first(its).test}
                for label, its in by_model.items()
            },
        )


@dataclass(frozen=True)
class ItemGroups:
    """The share of held-out items that each model finds in its first K, by the items' popularity."""

    groups: tuple[str, ...]
    items: tuple[int, ...]  # of the first split
    models: dict[str, dict[str, list[float | None]]]  # label -> recall@K -> a share for each group

    @classmethod
    def of(cls, by_model: Mapping[str, BySeed]) -> "ItemGroups":
        """Return the groups of a comparison's results."""
        return cls(
            groups=GROUPS,
            items=_first(next(iter(by_model.values()))).slices.items,
            models={
                label: {f"recall@{k}": _recall(list(its.values()), k) for k in sorted(_first(its).slices.hits)}
                for label, its in by_model.items()
            },
        )


@dataclass(frozen=True)
class SideBySide:
    """One test user with the lists of every model that has them."""

    number: int
    user: str | None
    history: tuple[str, ...]
    more: int  # items of the history beyond those
    lists: dict[str, tuple[Place, ...]]


def side_by_side(results: Sequence[Result]) -> tuple[SideBySide, ...]:
    """Return the examples of one split: the one that most models have examples of, and the first of several."""
    known = [one for one in results if one.examples]
    if not known:
        return ()
    have = Counter(one.seed for one in known)
    seed = min(have, key=lambda seed: (-have[seed], seed))
    shown = [one for one in known if one.seed == seed]
    users = {example.number: example for one in shown for example in one.examples}
    return tuple(
        SideBySide(
            number=number,
            user=first.user,
            history=first.history,
            more=first.more,
            lists={one.label: each.places for one in shown for each in one.examples if each.number == number},
        )
        for number, first in users.items()
    )


def _first(its: BySeed) -> Result:
    return next(iter(its.values()))


def _means(results: Sequence[Result], metric: str, cuts: FloatArray, kept: Sequence[int]) -> list[float | None]:
    group = np.searchsorted(cuts, np.concatenate([one.history_size for one in results]))
    values = np.concatenate([one.test[metric] for one in results])
    return [float(values[group == place].mean()) if (group == place).any() else None for place in kept]


def _recall(results: Sequence[Result], k: int) -> list[float | None]:
    hits = np.sum([one.slices.hits[k] for one in results], axis=0)
    held_out = np.sum([one.slices.held_out for one in results], axis=0)
    return [int(hit) / int(of) if of else None for hit, of in zip(hits, held_out, strict=True)]
