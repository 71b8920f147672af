"""What lies behind the means of a comparison: results by user activity and item popularity, and the training curves."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recfusion.core.arrays import FloatArray, IntArray
from recfusion.evaluation.slices import GROUPS
from recfusion.experiments.compare import Run

QUARTILES = 4


def by_activity(by_model: Mapping[str, Sequence[Run]]) -> dict[str, Any]:
    """Return each model's metrics in the quartiles of history size.

    The quartiles are those of all test users of all splits, so that they are the same for every model. Users of one
    size stay together, and quartiles that would be empty are left out.
    """
    by_seed = {run.seed: run for runs in by_model.values() for run in runs}
    sizes = np.concatenate([run.history_size for run in by_seed.values()])
    cuts = np.unique(np.quantile(sizes, np.arange(1, QUARTILES) / QUARTILES, method="lower"))
    group = _groups(sizes, cuts)
    kept = [int(place) for place in np.unique(group)]
    return {
        "sizes": [[int(sizes[group == place].min()), int(sizes[group == place].max())] for place in kept],
        "users": [int(np.count_nonzero(group == place)) for place in kept],  # test users over all splits
        "models": {
            name: {metric: _means(runs, metric, cuts, kept) for metric in runs[0].test.per_user}
            for name, runs in by_model.items()
        },
    }


def by_popularity(by_model: Mapping[str, Sequence[Run]]) -> dict[str, Any]:
    """Return the share of held-out items that each model finds in its first K, by the items' popularity group."""
    first = next(iter(by_model.values()))[0].slices
    return {
        "groups": list(GROUPS),
        "items": list(first.items),  # of the first split
        "models": {
            name: {f"recall@{k}": _recall(runs, k) for k in sorted(runs[0].slices.hits)}
            for name, runs in by_model.items()
        },
    }


def curves(by_model: Mapping[str, Sequence[Run]]) -> dict[str, Any]:
    """Return the validation metric epoch by epoch, for the models that train in epochs."""
    return {
        name: [
            {"seed": run.seed, "epoch": list(run.curve.epoch), "metric": list(run.curve.metric)}
            for run in runs
            if run.curve.epoch
        ]
        for name, runs in by_model.items()
        if any(run.curve.epoch for run in runs)
    }


def _groups(sizes: IntArray, cuts: FloatArray) -> IntArray:
    return np.searchsorted(cuts, sizes, side="left")  # a size equal to a cut belongs below it


def _means(runs: Sequence[Run], metric: str, cuts: FloatArray, kept: Sequence[int]) -> list[float | None]:
    group = np.concatenate([_groups(run.history_size, cuts) for run in runs])
    values = np.concatenate([run.test.per_user[metric] for run in runs])
    return [float(values[group == place].mean()) if (group == place).any() else None for place in kept]


def _recall(runs: Sequence[Run], k: int) -> list[float | None]:
    hits = np.sum([run.slices.hits[k] for run in runs], axis=0)
    held_out = np.sum([run.slices.held_out for run in runs], axis=0)
    return [int(hit) / int(of) if of else None for hit, of in zip(hits, held_out, strict=True)]
