"""The result document: what a comparison found, as plain JSON data with intervals and paired tests."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from recfusion.core.errors import InputError, choices
from recfusion.data.protocol import check_same_protocol
from recfusion.evaluation.metrics import Values
from recfusion.evaluation.significance import Difference, bootstrap_means, holm, paired_difference, summarise
from recfusion.experiments.compare import Run
from recfusion.experiments.details import by_activity, by_popularity, curves
from recfusion.experiments.examples import side_by_side
from recfusion.models.registry import entry

Seeds: TypeAlias = tuple[int, ...]
BySeed: TypeAlias = Mapping[int, Run]


def result_document(runs: Sequence[Run], *, reference: str | None = None) -> dict[str, Any]:
    """Return the document of a comparison: `protocol`, `seeds`, `models.<name>.<metric>`, `tests` and more.

    Every run must be of one protocol. A model may have fewer splits than others: its means are over its own `seeds`,
    and a paired test is over the splits that both models have (a pair without a common split has no test). `tests`
    are of the best model; with `reference`, `reference_tests` are of every other model against that one.
    """
    if not runs:
        raise InputError("There are no results to show: run at least one model.")
    check_same_protocol({f"{run.name}, split {run.seed}": run.protocol.hash for run in runs})
    by_model = _by_model(runs)
    protocol, metrics = runs[0].protocol, list(runs[0].test.per_user)
    draws = _Draws(by_model, metrics)
    in_order = {name: list(its_runs.values()) for name, its_runs in by_model.items()}
    against = {}
    if reference is not None:
        if reference not in by_model:
            raise choices("model to test against", reference, by_model)
        against["reference_tests"] = [
            test for metric in metrics for test in _tests(by_model, metric, draws, reference=reference)
        ]
    return {
        "protocol": protocol.document() | {"assumptions": protocol.assumptions()},
        "seeds": sorted({run.seed for run in runs}),
        "models": {
            name: _model_entry(its_runs, {m: draws.of(tuple(by_model[name]))[name, m] for m in metrics})
            for name, its_runs in in_order.items()
        },
        "tests": [test for metric in metrics for test in _tests(by_model, metric, draws)],
        **against,
        "slices": {"activity": by_activity(in_order), "popularity": by_popularity(in_order)},
        "curves": curves(in_order),
        "examples": side_by_side(in_order),
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


def _best(by_model: Mapping[str, BySeed], metric: str) -> str:
    """Return the best model: of those with the most splits the one with the best mean, or what beats it on its own.

    Splits differ more than models do: a model with few of them may owe its mean to an easy one.
    """
    most = max(len(runs) for runs in by_model.values())
    whole = {name: runs for name, runs in by_model.items() if len(runs) == most}
    mark = max(whole, key=lambda name: _pooled(whole[name], tuple(whole[name]), metric).mean())

    def lead(name: str) -> float:
        seeds = tuple(seed for seed in by_model[name] if seed in by_model[mark])
        if not seeds:
            return -math.inf
        ours, theirs = (_pooled(by_model[one], seeds, metric).mean() for one in (name, mark))
        return float(ours - theirs)

    return max(by_model, key=lead)


def _tests(
    by_model: Mapping[str, BySeed], metric: str, draws: _Draws, *, reference: str | None = None
) -> list[dict[str, Any]]:
    """Return a test for each pair (a, b), corrected for all of them.

    a is the best model and b any other; with `reference`, b is that one and a any other.
    """
    if reference is None:
        best = _best(by_model, metric)
        pairs = [(best, other) for other in by_model if other != best]
    else:
        pairs = [(other, reference) for other in by_model if other != reference]
    tested: list[tuple[tuple[str, str], Seeds, Difference]] = []
    for a, b in pairs:
        seeds = tuple(seed for seed in by_model[a] if seed in by_model[b])
        if not seeds:
            continue
        values_a, values_b = (_pooled(by_model[name], seeds, metric) for name in (a, b))
        drawn = draws.of(seeds)
        difference = paired_difference(values_a, values_b, drawn[a, metric], drawn[b, metric])
        tested.append(((a, b), seeds, difference))
    corrected = holm([difference.p for _, _, difference in tested])
    return [
        {"metric": metric, "a": a, "b": b, **dataclasses.asdict(difference), "p_holm": p, "seeds": list(seeds)}
        for ((a, b), seeds, difference), p in zip(tested, corrected, strict=True)
    ]
