"""Comparing models, and what that found, typed: the one thing that tables, pages and JSON are made of."""

import html
import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl

from recfusion.core.errors import InputError, choices
from recfusion.data.interactions import Interactions
from recfusion.data.options import SplitPlan
from recfusion.data.protocol import Protocol, check_same_protocol
from recfusion.data.signals import BINARY
from recfusion.evaluation.metrics import DEFAULT_METRICS, check_metrics, is_descriptive
from recfusion.experiments.candidate import Models, candidates
from recfusion.experiments.comparison_parts import Activity, ItemGroups, Model, SideBySide, side_by_side
from recfusion.experiments.paired_tests import Seeds, Test, from_best, make_draws, paired_tests
from recfusion.experiments.result import Result
from recfusion.experiments.run import OnEvent, run_candidates
from recfusion.paper.tables import PaperValues, paper_values
from recfusion.training.epoch import Curve

log = logging.getLogger(__name__)
REFERENCE = "ease"  # the model that the others are tested against, where it is among them


@dataclass(frozen=True, repr=False)
class Comparison:
    """Models on the same users: means with intervals, paired tests, and what lies behind them.

    A model may have fewer splits than others: its means are over its own, and a test is over the splits that two
    models share. `tests` are of the best model against every other, `differences` of every other against `reference`.
    """

    protocol: Protocol
    seeds: Seeds
    models: dict[str, Model]
    tests: tuple[Test, ...]
    reference: str | None
    differences: tuple[Test, ...]
    activity: Activity
    item_groups: ItemGroups
    curves: dict[str, list[tuple[int, Curve]]]  # of models that train in epochs: split and curve
    examples: tuple[SideBySide, ...]
    versions: dict[str, str]
    finished: datetime  # of the last fit
    paper: PaperValues | None = None
    title: str = ""
    note: str = ""
    command: str = ""

    @classmethod
    def of(
        cls,
        results: Iterable[Result],
        *,
        reference: str | None = None,
        table: str | None = None,
        title: str = "",
        note: str = "",
        command: str = "",
    ) -> "Comparison":
        """Return the comparison of results, which must all be of one protocol.

        `reference` is EASE where it is among them; `table` names the table of the paper to set beside, by default the
        one of the same data.
        """
        results = list(results)
        if not results:
            raise InputError("There are no results to show: run at least one model.")
        check_same_protocol({f"{one.label}, split {one.seed}": one.protocol.hash for one in results})
        if reference is not None and reference not in {one.label for one in results}:
            raise choices("model to test against", reference, dict.fromkeys(one.label for one in results))
        by_model = _by_model(results)
        reference = reference or (REFERENCE if REFERENCE in by_model else None)
        first = results[0]
        metrics = list(first.test)
        draws = make_draws(by_model, metrics)
        to_reference = [(other, reference) for other in by_model if reference and other != reference]
        models = {
            label: Model.of(label, its, {m: draws(tuple(its))[label, m] for m in metrics})
            for label, its in by_model.items()
        }
        return cls(
            protocol=first.protocol,
            seeds=tuple(sorted({one.seed for one in results})),
            models=models,
            tests=tuple(test for m in metrics for test in paired_tests(by_model, m, draws, from_best(by_model, m))),
            reference=reference,
            differences=tuple(test for m in metrics for test in paired_tests(by_model, m, draws, to_reference)),
            activity=Activity.of(by_model),
            item_groups=ItemGroups.of(by_model),
            curves={
                label: [(seed, one.curve) for seed, one in its.items() if one.curve.epoch]
                for label, its in by_model.items()
                if any(one.curve.epoch for one in its.values())
            },
            examples=side_by_side(results),
            versions=_versions(results),
            finished=max(one.finished for one in results),
            paper=paper_values(first.protocol, {label: model.model for label, model in models.items()}, table),
            title=title,
            note=note,
            command=command,
        )

    @property
    def metrics(self) -> list[str]:
        """The metrics in the order of the protocol."""
        return [name for name in self.protocol.metrics if any(name in model.metrics for model in self.models.values())]

    @property
    def main_metric(self) -> str:
        """The metric that models are ranked by: the last one that says how good the lists are."""
        metrics = self.metrics
        return next((metric for metric in reversed(metrics) if not is_descriptive(metric)), metrics[-1])

    def ranked(self, metric: str | None = None) -> list[str]:
        """Return the labels, the best by `metric` (by default the main one) first."""
        by = metric or self.main_metric
        return sorted(self.models, key=lambda label: -self.models[label].mean(by))

    def best(self, metric: str | None = None) -> str:
        """Return the best model, judged on the splits that it shares with others."""
        by = metric or self.main_metric
        tested = next((test.a for test in self.tests if test.metric == by), None)
        return tested or self.ranked(by)[0]

    def test(self, metric: str, a: str, b: str) -> Test | None:
        """Return the test of two models, whichever of them it is of."""
        known = (*self.tests, *self.differences)
        return next((t for t in known if t.metric == metric and {t.a, t.b} == {a, b}), None)

    def document(self) -> dict[str, Any]:
        """Return the comparison as plain JSON data: `models.<label>.<metric>.mean` and all the rest."""
        document = {
            "protocol": self.protocol.document() | {"assumptions": self.protocol.assumptions()},
            "seeds": list(self.seeds),
            "models": {label: _entry(model) for label, model in self.models.items()},
            "tests": [asdict(test) for test in self.tests],
            "reference": self.reference,
            "reference_tests": [asdict(test) for test in self.differences],
            "slices": {"activity": asdict(self.activity), "popularity": asdict(self.item_groups)},
            "curves": {
                label: [{"seed": seed, **asdict(curve)} for seed, curve in its] for label, its in self.curves.items()
            },
            "examples": [asdict(example) for example in self.examples],
            "versions": self.versions,
            "finished": self.finished.isoformat(),
        }
        for name in ("title", "note", "command"):
            if text := getattr(self, name):
                document[name] = text
        if self.paper is not None:
            document["paper"] = asdict(self.paper)
        found: dict[str, Any] = json.loads(json.dumps(document, allow_nan=False))
        return found

    def to_frame(self) -> pl.DataFrame:
        """Return a row per model and metric: mean, interval, and the difference to the reference with its p-value."""
        rows = []
        for label in self.ranked():
            for metric, summary in self.models[label].metrics.items():
                low, high = summary.ci95 or (None, None)
                row = {"model": label, "metric": metric, "mean": summary.mean, "low": low, "high": high}
                test = next((t for t in self.differences if t.metric == metric and t.a == label), None)
                against, p = (test.difference, test.p_holm) if test else (None, None)
                rows.append(row | {f"minus {self.reference or 'reference'}": against, "p": p})
        return pl.DataFrame(rows, infer_schema_length=None)

    def __repr__(self) -> str:
        means = ", ".join(f"{label} {100 * self.models[label].mean(self.main_metric):.2f}" for label in self.ranked())
        return (
            f"Comparison({self.protocol.name}, splits {', '.join(map(str, self.seeds))}, {self.main_metric}: {means})"
        )

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(metric)}</th>" for metric in self.metrics)
        rows = "".join(
            f"<tr><td>{html.escape(label)}</td>"
            + "".join(f"<td>{100 * self.models[label].mean(metric):.2f}</td>" for metric in self.metrics)
            + "</tr>"
            for label in self.ranked()
        )
        return f"<table><tr><th>model</th>{head}</tr>{rows}</table>"


def compare(
    data: Interactions,
    models: Models,
    splits: int | Sequence[int] = 1,
    *,
    plan: SplitPlan | None = None,
    metrics: Sequence[str] = DEFAULT_METRICS,
    signals: str = BINARY,
    store: str | Path | None = None,
    workers: int = 0,
    reference: str | None = None,
    user_ids: bool = False,
    on_event: OnEvent | None = None,
) -> Comparison:
    """Fit every model on every split and return what they came to, with intervals and paired tests.

    `models` is a list of names, or maps labels to instances, names, places ("file.py:Class") or settings. `splits` is
    their number, or the list of their seeds. `signals` says what is used beside the ones, some of
    "graded,timed,features"; what users did not like is then masked for models that read nothing of it, too. What
    `store` has is not fitted again, and each result is added to it at once. `workers` processes run side by side; 0
    fits in this process. `reference` is what the others are tested against, EASE by default.
    """
    given = range(splits) if isinstance(splits, int) else splits
    seeds = tuple(given) if isinstance(given, Sequence) else ()
    whole = all(isinstance(seed, int) and seed >= 0 for seed in seeds)
    if not seeds or not whole or len(set(seeds)) < len(seeds):
        raise InputError(f"Expected at least one split, or different seeds from 0, got {splits!r}.")
    planned = candidates(models)
    labels = [candidate.label for candidate in planned]
    if reference is not None and reference not in labels:
        raise choices("model to test against", reference, labels)
    ran = run_candidates(
        data,
        [(candidate, seeds) for candidate in planned],
        plan=plan or SplitPlan(),
        metrics=check_metrics(metrics),
        signals=signals,
        store=store,
        workers=workers,
        user_ids=user_ids,
        on_event=on_event,
    )
    for task, failure in ran.failures.items():
        if failure.details:
            log.error("%s: %s", task, failure.details)
        raise InputError(f"The fit of {task} failed: {failure.reason}")
    return Comparison.of(ran.results, reference=reference)


def _by_model(results: Sequence[Result]) -> dict[str, dict[int, Result]]:
    """Return label -> seed -> result, labels in the order they came in and seeds in their own."""
    by_model: dict[str, dict[int, Result]] = {one.label: {} for one in results}
    for one in sorted(results, key=lambda one: one.seed):
        if not len(one.users):
            raise InputError(f"The result of {one.label}, split {one.seed} has no test users: leave it out.")
        its = by_model[one.label]
        first = next(iter(its.values()), one)
        if (one.model, one.source, one.settings) != (first.model, first.source, first.settings):
            raise InputError(
                f"The results of {one.label} are of different settings, which one table cannot show: name the "
                "experiment to show with --experiment, or give each a label of its own."
            )
        if one.seed in its:
            raise InputError(f"There are two results of {one.label} on split {one.seed}: keep one of them.")
        its[one.seed] = one
    return by_model


def _versions(results: Sequence[Result]) -> dict[str, str]:
    """Return the versions of the packages; several of one package are all named."""
    packages = dict.fromkeys(package for one in results for package in one.versions)
    return {
        package: ", ".join(dict.fromkeys(one.versions[package] for one in results if package in one.versions))
        for package in packages
    }


def _entry(model: Model) -> dict[str, Any]:
    """Return a model as JSON data: its metrics stand among its other properties, by their names."""
    entry = asdict(model)
    metrics = entry.pop("metrics")
    return {**entry, "n_splits": len(model.seeds), **metrics}
