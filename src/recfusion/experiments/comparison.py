"""Compare models. Tables, pages and JSON are all made from a `Comparison`."""

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
from recfusion.data.features import with_features
from recfusion.data.interactions import Interactions
from recfusion.data.options import SplitPlan
from recfusion.data.protocol import Protocol, check_same_protocol
from recfusion.data.signals import BINARY
from recfusion.evaluation.metrics import DEFAULT_METRICS
from recfusion.experiments.candidate import Models, candidates
from recfusion.experiments.comparison_parts import Activity, ExampleUser, ItemGroups, ModelSummary, example_users
from recfusion.experiments.custom_metric import main_metric, named_metrics
from recfusion.experiments.experiment_file import parse_seeds
from recfusion.experiments.paired_tests import LEVEL, PairedTest, from_best, make_draws, paired_tests
from recfusion.experiments.result import Result, Seeds
from recfusion.experiments.rules import rule_costs, rules_document
from recfusion.experiments.run import OnEvent, run_candidates
from recfusion.inference.request import Filters, Reranking
from recfusion.paper.tables import PaperValues, paper_values
from recfusion.training.epoch import Curve

log = logging.getLogger(__name__)
MARKS = f"Means x 100 with 95 % intervals over users; *: significantly below the best (p < {LEVEL:g}, Holm)."
REFERENCE = "ease"  # the model that the others are tested against, if it is among them


@dataclass(frozen=True, repr=False)
class Comparison:
    """Models on the same users: means with intervals, paired tests, and details.

    A model may have fewer splits than others: its means are over its own splits, and a test is over the splits that
    both models have. `tests` compare the best model with every other, `differences` every other with `reference`.
    """

    protocol: Protocol
    seeds: Seeds
    models: dict[str, ModelSummary]
    tests: tuple[PairedTest, ...]
    reference: str | None
    differences: tuple[PairedTest, ...]
    activity: Activity
    item_groups: ItemGroups
    curves: dict[str, list[tuple[int, Curve]]]  # split and curve, of models that train in epochs
    examples: tuple[ExampleUser, ...]
    versions: dict[str, str]
    finished: datetime  # of the last fit
    paper: PaperValues | None = None
    costs: tuple[PairedTest, ...] = ()  # of the rules of the protocol: each model with minus without them
    title: str = ""
    note: str = ""
    command: str = ""
    deciding: str = ""  # the metric that ranks the models, if it was named

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
        deciding: str | None = None,
    ) -> "Comparison":
        """Return the comparison of results, which must all have the same protocol.

        `reference` defaults to EASE if it is among them. The metric `deciding` ranks the models; by default it is the
        last one of the protocol that measures accuracy. `table` names the table of the paper to compare with (default:
        the one of the same data).
        """
        results = list(results)
        if not results:
            raise InputError("Expected at least one result to show, got none: run a model first.")
        check_same_protocol({f"{one.label}, split {one.seed}": one.protocol.hash for one in results})
        if reference is not None and reference not in {one.label for one in results}:
            raise choices("model to test against", reference, dict.fromkeys(one.label for one in results), "reference")
        if deciding is not None and deciding not in results[0].protocol.metrics:
            raise choices("deciding metric", deciding, results[0].protocol.metrics, "deciding")
        by_model = _by_model(results)
        reference = reference or (REFERENCE if REFERENCE in by_model else None)
        first = results[0]
        metrics = list(first.test)
        draws = make_draws(by_model, metrics)
        to_reference = [(other, reference) for other in by_model if reference and other != reference]
        models = {
            label: ModelSummary.of(label, its, {m: draws(tuple(its))[label, m] for m in metrics})
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
            examples=example_users(results),
            versions=_versions(results),
            finished=max(one.finished for one in results),
            paper=paper_values(first.protocol, {label: model.model for label, model in models.items()}, table),
            costs=rule_costs(by_model, metrics),
            title=title,
            note=note,
            command=command,
            deciding=deciding or "",
        )

    @property
    def metrics(self) -> list[str]:
        """The metrics in the order of the protocol."""
        return [name for name in self.protocol.metrics if any(name in model.metrics for model in self.models.values())]

    @property
    def main_metric(self) -> str:
        """The metric that ranks the models: the deciding one, or the last one that measures accuracy."""
        return self.deciding or main_metric(self.metrics)

    def ranked(self, metric: str | None = None) -> list[str]:
        """Return the labels from best to worst by `metric` (default: the main one)."""
        by = metric or self.main_metric
        return sorted(self.models, key=lambda label: -self.models[label].mean(by))

    def best(self, metric: str | None = None) -> str:
        """Return the best model on the splits that it shares with others."""
        by = metric or self.main_metric
        tested = next((test.a for test in self.tests if test.metric == by), None)
        return tested or self.ranked(by)[0]

    def advice(self) -> str:
        """Return which model to use, how far it leads, and which models do not differ significantly from it."""
        metric, best = self.main_metric, self.best()
        tests = [test for test in self.tests if test.metric == metric]
        apart = [label for label in self.models if label not in (best, *(test.b for test in tests))]
        rest = f" It shares no split with {', '.join(apart)}." if apart else ""
        found = f"Use {best}: its {metric} is {100 * self.models[best].mean(metric):.2f}"
        if not tests:
            return f"{found}, and there is no other model to compare it with.{rest}"
        ties = [test.b for test in tests if not test.is_significant]
        if not ties:
            least = min(tests, key=lambda test: test.difference)
            ends = " ({:.2f} to {:.2f})".format(*(100 * end for end in least.ci95)) if least.ci95 else ""
            gain = f"{100 * least.difference:.2f} points{ends} more than the next, {least.b}"
            return f"{found}, {gain}, and no other model comes close (p < {LEVEL:g} with Holm's correction).{rest}"
        seconds = {label: self.models[label].fit_seconds for label in (best, *ties)}
        quick = min(ties, key=lambda label: seconds[label])
        found += f", the highest, but {', '.join(ties)} {'do' if len(ties) > 1 else 'does'} not differ significantly"
        if seconds[quick] < min(seconds[best] / 2, seconds[best] - 1):  # less is chance
            found += f"; {quick} fits in {seconds[quick]:.1f} s instead of {seconds[best]:.1f} s"
        return f"{found}.{rest}"

    def test(self, metric: str, a: str, b: str) -> PairedTest | None:
        """Return the test of two models, in either order."""
        known = (*self.tests, *self.differences)
        return next((t for t in known if t.metric == metric and {t.a, t.b} == {a, b}), None)

    def document(self) -> dict[str, Any]:
        """Return the comparison as plain JSON data, such as `models.<label>.<metric>.mean`."""
        document = {
            "protocol": self.protocol.document() | {"assumptions": self.protocol.assumptions()},
            "seeds": list(self.seeds),
            "models": {label: _entry(model) for label, model in self.models.items()},
            "tests": [asdict(test) for test in self.tests],
            "deciding": self.main_metric,
            "advice": self.advice(),
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
        if self.costs:
            document["rule_costs"] = [asdict(cost) for cost in self.costs]
        if self.paper is not None:
            document["paper"] = asdict(self.paper)
        found: dict[str, Any] = json.loads(json.dumps(document, allow_nan=False))
        return found

    def to_frame(self) -> pl.DataFrame:
        """Return one row per model and metric: mean, interval, difference to the reference and its p-value."""
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
        splits = ", ".join(map(str, self.seeds))
        return f"Comparison({self.protocol.name}, splits {splits}, {self.main_metric}: {means})"

    def cell(self, label: str, metric: str) -> str:
        """Return a mean x 100 with its interval, and * if the best model is significantly better."""
        found = self.models[label].metrics[metric]
        test = next((t for t in self.tests if t.metric == metric and t.b == label), None)
        mark = "*" if test is not None and test.is_significant else ""
        ends = f" ({100 * found.ci95[0]:.2f} to {100 * found.ci95[1]:.2f})" if found.ci95 else ""
        return f"{100 * found.mean:.2f}{mark}{ends}"

    def _repr_html_(self) -> str:
        lines = [["model", *self.metrics]]
        lines += [[label, *(self.cell(label, metric) for metric in self.metrics)] for label in self.ranked()]
        rows = ["".join(f"<td>{html.escape(cell)}</td>" for cell in line) for line in lines]
        return f"<table><tr>{'</tr><tr>'.join(rows)}</tr></table><p>{html.escape(MARKS)}</p>"


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
    deciding: str | None = None,
    user_ids: bool = False,
    keep_stale: bool = False,
    filters: Filters | None = None,
    reranking: Reranking | None = None,
    on_event: OnEvent | None = None,
) -> Comparison:
    """Fit every model on every split and return their metrics with intervals and paired tests.

    `models` is a list of names, or maps labels to instances, names, places ("file.py:Class") or settings. `splits` is
    their number, or the list of their seeds. `signals` names what is used besides the interactions, some of
    "graded,timed,features"; disliked items are then masked for all models. Fits that `store` has are not run again,
    unless they are stale (made by other code; `keep_stale` uses them), and each result is saved at once. `workers`
    processes run in parallel; 0 fits in this process. With `filters` and `reranking`, the lists of test users are made
    under these rules, and `costs` says what they cost each model. The others are tested against `reference` (default:
    EASE). The metric `deciding` ranks the models (see `Comparison.of`).
    """
    seeds = parse_seeds(splits, "splits")
    planned = candidates(models)
    labels = [candidate.label for candidate in planned]
    if reference is not None and reference not in labels:
        raise choices("model to test against", reference, labels, "reference")
    run = run_candidates(
        with_features(data, signals),
        [(candidate, seeds) for candidate in planned],
        plan=plan or SplitPlan(),
        metrics=named_metrics(metrics),
        signals=signals,
        store=store,
        workers=workers,
        user_ids=user_ids,
        keep_stale=keep_stale,
        rules=rules_document(filters, reranking),
        on_event=on_event,
    )
    for task, failure in run.failures.items():
        if failure.details:
            log.error("%s: %s", task, failure.details)
        raise InputError(f"The fit of {task} failed: {failure.reason}")
    return Comparison.of(run.results, reference=reference, deciding=deciding)


def _by_model(results: Sequence[Result]) -> dict[str, dict[int, Result]]:
    """Return label -> seed -> result, with labels in the given order and seeds sorted."""
    by_model: dict[str, dict[int, Result]] = {one.label: {} for one in results}
    for one in sorted(results, key=lambda one: one.seed):
        if not len(one.users):
            raise InputError(f"Expected test users for {one.label} on split {one.seed}, got none: leave it out.")
        its = by_model[one.label]
        first = next(iter(its.values()), one)
        if (one.model, one.source, one.settings) != (first.model, first.source, first.settings):
            raise InputError(
                f"Expected one set of settings for {one.label}, got several: name the experiment to show with "
                "--experiment, or give each its own label."
            )
        if one.seed in its:
            raise InputError(f"Expected one result of {one.label} on split {one.seed}, got two: keep one of them.")
        its[one.seed] = one
    return by_model


def _versions(results: Sequence[Result]) -> dict[str, str]:
    """Return the versions of the packages, all of them if results differ."""
    found: dict[str, dict[str, None]] = {}
    for name, version in (pair for one in results for pair in one.versions.items()):
        found.setdefault(name, {})[version] = None
    return {name: ", ".join(versions) for name, versions in found.items()}


def _entry(model: ModelSummary) -> dict[str, Any]:
    """Return a model as JSON data, with its metrics among its other properties."""
    entry = asdict(model)
    metrics = entry.pop("metrics")
    return {**entry, "n_splits": len(model.seeds), **metrics}
