"""What lies behind the means of a comparison: results by user activity and by item popularity."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recfusion.core.arrays import FloatArray, IntArray
from recfusion.evaluation.evaluate import GROUPS
from recfusion.experiments.result import Result

QUARTILES = 4


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
    def of(cls, by_model: Mapping[str, Mapping[int, Result]]) -> "Activity":
        """Return the groups of a comparison's results."""
        by_seed = {seed: one for its in by_model.values() for seed, one in its.items()}
        sizes = np.concatenate([one.history_size for one in by_seed.values()])
        cuts = np.unique(np.quantile(sizes, np.arange(1, QUARTILES) / QUARTILES, method="lower"))
        group = _groups(sizes, cuts)
        kept = [int(place) for place in np.unique(group)]
        return cls(
            sizes=tuple((int(sizes[group == place].min()), int(sizes[group == place].max())) for place in kept),
            users=tuple(int(np.count_nonzero(group == place)) for place in kept),
            models={
                label: {metric: _means(list(its.values()), metric, cuts, kept) for metric in _first(its).test}
                for label, its in by_model.items()
            },
        )

    def document(self) -> dict[str, Any]:
        """Return the groups as JSON data."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class ItemGroups:
    """The share of held-out items that each model finds in its first K, by the items' popularity."""

    groups: tuple[str, ...]
    items: tuple[int, ...]  # of the first split
    models: dict[str, dict[str, list[float | None]]]  # label -> recall@K -> a share for each group

    @classmethod
    def of(cls, by_model: Mapping[str, Mapping[int, Result]]) -> "ItemGroups":
        """Return the groups of a comparison's results."""
        return cls(
            groups=GROUPS,
            items=_first(next(iter(by_model.values()))).slices.items,
            models={
                label: {f"recall@{k}": _recall(list(its.values()), k) for k in sorted(_first(its).slices.hits)}
                for label, its in by_model.items()
            },
        )

    def document(self) -> dict[str, Any]:
        """Return the groups as JSON data."""
        return dataclasses.asdict(self)


def _first(its: Mapping[int, Result]) -> Result:
    return next(iter(its.values()))


def _groups(sizes: IntArray, cuts: FloatArray) -> IntArray:
    return np.searchsorted(cuts, sizes, side="left")  # a size equal to a cut belongs below it


def _means(results: Sequence[Result], metric: str, cuts: FloatArray, kept: Sequence[int]) -> list[float | None]:
    group = np.concatenate([_groups(one.history_size, cuts) for one in results])
    values = np.concatenate([one.test[metric] for one in results])
    return [float(values[group == place].mean()) if (group == place).any() else None for place in kept]


def _recall(results: Sequence[Result], k: int) -> list[float | None]:
    hits = np.sum([one.slices.hits[k] for one in results], axis=0)
    held_out = np.sum([one.slices.held_out for one in results], axis=0)
    return [int(hit) / int(of) if of else None for hit, of in zip(hits, held_out, strict=True)]
