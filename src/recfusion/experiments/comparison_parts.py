"""The parts of a comparison: summaries of models, metrics by user activity and item popularity, example lists."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recfusion.core.arrays import FloatArray
from recfusion.evaluation.evaluate import GROUPS
from recfusion.evaluation.metrics import Values
from recfusion.evaluation.significance import Summary, summarise
from recfusion.experiments.paired_tests import BySeed
from recfusion.experiments.result import ExampleItem, Result, Seeds
from recfusion.models.code_digest import CodeState

QUARTILES = 4


@dataclass(frozen=True)
class ModelSummary:
    """A model over its splits."""

    label: str
    model: str  # the name in the registry, or that of the class
    title: str
    place: str  # of a class that is not ours
    code: CodeState  # of all its fits
    code_versions: tuple[str, ...]  # distinct digests and commits of its fits
    settings: dict[str, Any]
    chosen: dict[str, list[Any]]  # setting -> one value per split
    seeds: Seeds
    parameters: int
    epochs: float  # from here on, means over the splits
    fit_seconds: float
    score_seconds: float
    trials: float | None
    cpu_seconds: float | None
    energy_joules: float | None  # measured; None unless all splits have it
    metrics: dict[str, Summary]

    def mean(self, metric: str) -> float:
        return self.metrics[metric].mean

    @classmethod
    def of(cls, label: str, its: BySeed, drawn: Mapping[str, Values]) -> "ModelSummary":
        """Return the summary of a model's results; `drawn` are the bootstrap means of each metric."""
        results = list(its.values())
        first = results[0]
        chosen = sorted({key for one in results for key in one.chosen})
        versions = (f"{one.code} (commit {one.commit})" if one.commit else one.code for one in results if one.code)
        trials = [one.trials for one in results if one.trials is not None]
        cpu = [one.cpu_seconds for one in results if one.cpu_seconds is not None]
        joules = [one.energy_joules for one in results if one.energy_joules is not None]
        summaries = {metric: summarise([one.test[metric] for one in results], d) for metric, d in drawn.items()}
        overall = {name: summarise([np.array([one.overall[name]]) for one in results], None) for name in first.overall}
        return cls(
            label=label,
            model=first.model,
            title=first.title or first.model,
            place=first.place,
            code=joint_code_state(results),
            code_versions=tuple(dict.fromkeys(versions)),
            settings=first.settings,
            chosen={key: [one.chosen.get(key, one.settings.get(key)) for one in results] for key in chosen},
            seeds=tuple(its),
            parameters=first.parameters,
            epochs=float(np.mean([one.epochs for one in results])),
            fit_seconds=float(np.mean([one.fit_seconds for one in results])),
            score_seconds=float(np.mean([one.score_seconds for one in results])),
            trials=float(np.mean(trials)) if trials else None,
            cpu_seconds=float(np.mean(cpu)) if cpu else None,
            energy_joules=float(np.mean(joules)) if len(joules) == len(results) else None,
            metrics=summaries | overall,
        )


def joint_code_state(results: Iterable[Result]) -> CodeState:
    """Return stale if one of the results is, else unknown if one is, else current."""
    states = {one.code_state for one in results}
    return "stale" if "stale" in states else "unknown" if "unknown" in states else "current"


@dataclass(frozen=True)
class Activity:
    """Each model's metrics by quartile of history size.

    The quartiles are over all test users of all splits and thus the same for every model. Users with the same size
    stay together, and empty quartiles are left out.
    """

    sizes: tuple[tuple[int, int], ...]  # smallest and largest history of each group
    users: tuple[int, ...]  # test users over all splits
    models: dict[str, dict[str, list[float | None]]]  # label -> metric -> mean of each group

    @classmethod
    def of(cls, by_model: Mapping[str, BySeed]) -> "Activity":
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
    """Each model's share of held-out items found in the first K, by item popularity."""

    groups: tuple[str, ...]
    items: tuple[int, ...]  # of the first split
    models: dict[str, dict[str, list[float | None]]]  # label -> recall@K -> share of each group

    @classmethod
    def of(cls, by_model: Mapping[str, BySeed]) -> "ItemGroups":
        return cls(
            groups=GROUPS,
            items=_first(next(iter(by_model.values()))).slices.items,
            models={
                label: {f"recall@{k}": _recall(list(its.values()), k) for k in sorted(_first(its).slices.hits)}
                for label, its in by_model.items()
            },
        )


@dataclass(frozen=True)
class ExampleUser:
    """One test user with the list of each model."""

    number: int
    user: str | None
    history: tuple[str, ...]
    more: int  # number of further items in the history
    lists: dict[str, tuple[ExampleItem, ...]]


def example_users(results: Sequence[Result]) -> tuple[ExampleUser, ...]:
    """Return the examples of the split for which most models have them, the first of several."""
    known = [one for one in results if one.examples]
    if not known:
        return ()
    have = Counter(one.seed for one in known)
    seed = min(have, key=lambda seed: (-have[seed], seed))
    shown = [one for one in known if one.seed == seed]
    users = {example.number: example for one in shown for example in one.examples}
    return tuple(
        ExampleUser(
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
