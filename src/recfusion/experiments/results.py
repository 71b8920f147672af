"""The result document: what a comparison found, as plain JSON data with intervals and paired tests."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from recfusion.core.errors import InputError
from recfusion.data.protocol import check_same_protocol
from recfusion.evaluation.metrics import Values
from recfusion.evaluation.significance import bootstrap_means, holm, paired_difference, summarise
from recfusion.experiments.compare import Run
from recfusion.models.registry import entry


def result_document(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the document of a comparison: `protocol`, `seeds`, `models.<name>.<metric>` and `tests`.

    Every model must have been run under one protocol and on the same seeds, or the means would not be comparable.
    """
    by_model: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        by_model.setdefault(run.name, []).append(run)
    if not by_model:
        raise InputError("There are no results to show: run at least one model.")
    seeds = {name: [run.seed for run in its_runs] for name, its_runs in by_model.items()}
    first = next(iter(by_model.values()))
    protocol = first[0].protocol
    check_same_protocol({f"{run.name}, split {run.seed}": run.protocol.hash for run in runs})
    if any(its_seeds != [run.seed for run in first] for its_seeds in seeds.values()):
        raise InputError(f"Every model must be run on the same splits, got the seeds {seeds}.")

    columns = [(name, metric) for name in by_model for metric in first[0].test.per_user]
    values = {(name, metric): _pooled(by_model[name], metric) for name, metric in columns}
    users = np.concatenate([run.test.users for run in first])
    drawn = dict(zip(columns, bootstrap_means(users, np.stack(list(values.values()), axis=1)).T, strict=True))
    return {
        "protocol": protocol.document() | {"assumptions": protocol.assumptions()},
        "seeds": seeds[first[0].name],
        "models": {
            name: _model_entry(its_runs, {m: d for (n, m), d in drawn.items() if n == name})
            for name, its_runs in by_model.items()
        },
        "tests": _tests(list(by_model), first[0].test.per_user.keys(), values, drawn),
    }


def _pooled(runs: Sequence[Run], metric: str) -> Values:
    return np.concatenate([run.test.per_user[metric] for run in runs])


def _model_entry(runs: Sequence[Run], drawn: dict[str, Values]) -> dict[str, Any]:
    first = runs[0]
    summaries = {m: summarise([run.test.per_user[m] for run in runs], d) for m, d in drawn.items()}
    overall = {name: _overall([run.test.overall[name] for run in runs]) for name in first.test.overall}
    return {
        "title": entry(first.name).title,
        "settings": first.settings,
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


def _tests(names: list[str], metrics: Any, values: Any, drawn: Any) -> list[dict[str, Any]]:
    """Return the best model of each metric against every other, corrected for all tests of that metric."""
    found = []
    for metric in metrics:
        best = max(names, key=lambda name: float(values[name, metric].mean()))
        rest = [name for name in names if name != best]
        differences = [
            paired_difference(values[best, metric], values[other, metric], drawn[best, metric], drawn[other, metric])
            for other in rest
        ]
        corrected = holm([difference.p for difference in differences])
        found += [
            {"metric": metric, "a": best, "b": other, **dataclasses.asdict(difference), "p_holm": p}
            for other, difference, p in zip(rest, differences, corrected, strict=True)
        ]
    return found
