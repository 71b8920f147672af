"""The result document: what a comparison found, as plain JSON data with intervals and paired tests."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from recfusion.core.errors import InputError
from recfusion.data.protocol import check_same_protocol
from recfusion.evaluation.metrics import Values
from recfusion.evaluation.significance import Difference, bootstrap_means, holm, paired_difference, summarise
from recfusion.experiments.compare import Run
from recfusion.models.registry import entry

Seeds: TypeAlias = tuple[int, ...]
BySeed: TypeAlias = Mapping[int, Run]


def result_document(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the document of a comparison: `protocol`, `seeds`, `models.<name>.<metric>` and `tests`.

    Every run must be of one protocol. A model may have fewer splits than others: its means are over its own `seeds`,
    and a paired test is over the splits that both models have (a pair without a common split has no test).
    """
    if not runs:
        raise InputError("There are no results to show: run at least one model.")
    check_same_protocol({f"{run.name}, split {run.seed}": run.protocol.hash for run in runs})
    by_model = _by_model(runs)
    protocol, metrics = runs[0].protocol, list(runs[0].test.per_user)
    draws = _Draws(by_model, metrics)
    return {
        "protocol": protocol.document() | {"assumptions": protocol.assumptions()},
        "seeds": sorted({run.seed for run in runs}),
        "models": {
            name: _model_entry(list(its_runs.values()), {m: draws.of(tuple(its_runs))[name, m] for m in metrics})
            for name, its_runs in by_model.items()
        },
        "tests": [test for metric in metrics for test in _tests(by_model, metric, draws)],
    }


def _by_model(runs: Sequence[Run]) -> dict[str, dict[int, Run]]:
    """Return name -> seed -> run, names in the order they came in and seeds in their own."""
    by_model: dict[str, dict[int, Run]] = {run.name: {} for run in runs}
    for run in sorted(runs, key=lambda run: run.seed):
        its_runs = by_model[run.name]
        if run.seed in its_runs:
            raise InputError(f"There are two results of {run.name} on split {run.seed}: keep one of them.")
        its_runs[run.seed] = run
        first = next(iter(its_runs.values()))
        if (run.model, run.settings) != (first.model, first.settings):
            raise InputError(f"The results of {run.name} are of different settings: give each its own name.")
    return by_model


class _Draws:
    """Bootstrap means of all models that share some splits, drawn once for each such set of splits."""

    def __init__(self, by_model: Mapping[str, BySeed], metrics: Sequence[str]) -> None:
        self._by_model, self._metrics = by_model, metrics
        self._drawn: dict[Seeds, dict[tuple[str, str], Values]] = {}

    def of(self, seeds: Seeds) -> dict[tuple[str, str], Values]:
        """Return (model, metric) -> bootstrap means (draws,) over `seeds`, for the models that have them all."""
        if self._metrics and seeds not in self._drawn:
            sharing = {name: runs for name, runs in self._by_model.items() if set(seeds) <= set(runs)}
            columns = [(name, metric) for name in sharing for metric in self._metrics]
            values = [_pooled(sharing[name], seeds, metric) for name, metric in columns]
            users = np.concatenate([next(iter(sharing.values()))[seed].test.users for seed in seeds])
            means = bootstrap_means(users, np.stack(values, axis=1))
            self._drawn[seeds] = dict(zip(columns, means.T, strict=True))
        return self._drawn.get(seeds, {})


def _pooled(runs: BySeed, seeds: Seeds, metric: str) -> Values:
    return np.concatenate([runs[seed].test.per_user[metric] for seed in seeds])


def _model_entry(runs: Sequence[Run], drawn: Mapping[str, Values]) -> dict[str, Any]:
    first = runs[0]
    summaries = {m: summarise([run.test.per_user[m] for run in runs], d) for m, d in drawn.items()}
    chosen = {key for run in runs for key in run.chosen}
    overall = {name: _overall([run.test.overall[name] for run in runs]) for name in first.test.overall}
    return {
        "title": entry(first.model).title,
        "model": first.model,
        "settings": first.settings,
        "chosen": {key: [run.chosen.get(key, run.settings[key]) for run in runs] for key in sorted(chosen)},
        "seeds": [run.seed for run in runs],
        "n_splits": len(runs),
        "parameters": first.parameters,
        "epochs": float(np.mean([run.epochs for run in runs])),
        "fit_seconds": float(np.mean([run.fit_seconds for run in runs])),
        "score_seconds": float(np.mean([run.test.seconds for run in runs])),
        **{metric: dataclasses.asdict(summary) for metric, summary in summaries.items()},
        **overall,
    }


def _overall(values: list[float]) -> dict[str, Any]:
    """Return a metric that has one value per split and none per user: it has no interval over users."""
    first, middle, third = (float(q) for q in np.quantile(values, [0.25, 0.5, 0.75]))
    return {"mean": float(np.mean(values)), "ci95": None, "median": middle, "iqr": (first, third), "splits": values}


def _tests(by_model: Mapping[str, BySeed], metric: str, draws: _Draws) -> list[dict[str, Any]]:
    """Return the model with the best mean against every other, corrected for all tests of that metric."""
    best = max(by_model, key=lambda name: float(_pooled(by_model[name], tuple(by_model[name]), metric).mean()))
    differences: dict[str, tuple[Seeds, Difference]] = {}
    for other, runs in by_model.items():
        seeds = tuple(seed for seed in by_model[best] if seed in runs)
        if other == best or not seeds:
            continue
        a, b = (_pooled(by_model[name], seeds, metric) for name in (best, other))
        drawn = draws.of(seeds)
        differences[other] = seeds, paired_difference(a, b, drawn[best, metric], drawn[other, metric])
    corrected = holm([difference.p for _, difference in differences.values()])
    return [
        {"metric": metric, "a": best, "b": other, **dataclasses.asdict(difference), "p_holm": p, "seeds": list(seeds)}
        for (other, (seeds, difference)), p in zip(differences.items(), corrected, strict=True)
    ]
