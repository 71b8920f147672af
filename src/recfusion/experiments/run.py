"""Fit candidates on splits in parallel processes, skip the fits that a store has, and save each result at once."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from recfusion.core.errors import InputError
from recfusion.core.files import check_writable_file
from recfusion.core.pool import Failure, Pool, RunTask, SendProgress, TaskEvent, available_cores
from recfusion.core.steps import listening
from recfusion.data.features import with_features
from recfusion.data.interactions import Interactions
from recfusion.data.load import load
from recfusion.data.options import SplitPlan
from recfusion.data.protocol import Protocol
from recfusion.data.signals import BINARY, Extra, check_signals_are_read, used_signals, whole_extra
from recfusion.data.split import Split, split
from recfusion.evaluation.scoring import read_by
from recfusion.experiments.candidate import Candidate, PackedJob, unique
from recfusion.experiments.custom_metric import load_metric, origins
from recfusion.experiments.experiment_file import Experiment
from recfusion.experiments.fit import check_grades, fit_and_judge
from recfusion.experiments.fit_queue import FitQueue, Task
from recfusion.experiments.result import (
    Result,
    ResultKey,
    best_rows,
    complete_bytes,
    newest_source,
    read_results,
    result_key,
)
from recfusion.experiments.rules import check_rules
from recfusion.experiments.tuning.equal_budget import fit_with_budget
from recfusion.models.abilities import signals_read
from recfusion.models.base import Shape
from recfusion.models.class_loading import is_importable
from recfusion.models.code_digest import code_state
from recfusion.training.epoch import Epoch

log = logging.getLogger(__name__)
EventKind: TypeAlias = Literal["planned", "started", "step", "epoch", "finished", "failed"]


@dataclass(frozen=True)
class Status:
    """The progress of a run."""

    done: int  # fits in the store, including those of earlier runs
    failed: int
    total: int
    running: Mapping[Task, Epoch | None]  # with the latest epoch, for models that train in epochs
    seconds: float  # since the start of this run
    seconds_left: float | None  # by finished fits, else by forecasts; None if a remaining model has neither
    steps: Mapping[Task, str] = field(default_factory=dict)  # of running fits, such as the part of a mixture


@dataclass(frozen=True)
class Event:
    """An event of a run; the first one is `planned` and has no task."""

    kind: EventKind
    status: Status
    task: Task | None = None
    result: Result | None = None  # of a finished fit
    failure: Failure | None = None


OnEvent = Callable[[Event], None]


@dataclass(frozen=True)
class RunSummary:
    """The results and failures of a run."""

    protocol: Protocol
    results: tuple[Result, ...]  # model by model, in the order of the candidates
    failures: Mapping[Task, Failure]
    computed: int  # results that this run added


@dataclass(frozen=True)
class FitJob:
    """The fits of a run, as each process gets them."""

    data: Interactions
    protocol: Protocol
    candidates: Mapping[str, Candidate]
    threads: int | None
    user_ids: bool
    first: Split | None  # the split of the first task
    custom_metrics: tuple[str, ...] = ()  # places of metrics that are not ours

    def start(self) -> RunTask:
        parts = self.first
        for place in self.custom_metrics:
            load_metric(place)

        def work(task: Task, report: SendProgress) -> Result:
            nonlocal parts
            if parts is None or parts.seed != task.seed:
                used = self.protocol.signals.used
                parts = split(self.data, self.protocol.plan, seed=task.seed, used=used)
            known = (self.candidates[task.label], self.data, self.protocol, parts)
            with listening(report):
                if known[0].tune:
                    return fit_with_budget(*known, threads=self.threads, user_ids=self.user_ids, report=report)
                return fit_and_judge(*known, threads=self.threads, user_ids=self.user_ids, on_epoch=report).result

        return work


def run_candidates(
    data: Interactions,
    candidates: Sequence[tuple[Candidate, Sequence[int]]],
    *,
    plan: SplitPlan,
    metrics: Sequence[str],
    signals: str = BINARY,
    store: str | Path | None = None,
    workers: int | None = None,
    user_ids: bool = False,
    keep_stale: bool = False,
    rules: Mapping[str, Any] | None = None,
    on_event: OnEvent | None = None,
) -> RunSummary:
    """Fit each candidate on the splits of its seeds, skip the fits that `store` has, and save each result at once.

    Stored results of other code than today's are stale: they are reported and fitted again, or used with `keep_stale`.
    `data` must have its features already if `signals` asks for them. `rules` (see `rules_document`) are filters and
    re-ranking weights of the lists of test users.

    `workers` processes run in parallel (default: one per core; 0: all fits in this process), each with an equal share
    of the cores as threads. The numbers do not depend on the number of workers, except for rounding in sums that
    several threads divide. A failed fit is reported and the others continue. A class that other processes cannot
    import, such as a notebook's, is fitted in this process. In a script, call it under
    `if __name__ == "__main__":`, because the processes import the script's module.
    """
    if workers is not None and workers < 0:
        raise InputError(f"Expected at least one worker, or 0 for this process, got {workers}: change it.", "workers")
    if store is not None:
        check_writable_file(Path(store))
    unique([candidate.label for candidate, _ in candidates])
    by_label = {candidate.label: candidate for candidate, _ in candidates}
    check_signals_are_read(signals, [(candidate.label, signals_read(candidate.model)) for candidate, _ in candidates])
    used = used_signals(signals, data)
    if rules:
        check_rules(data, rules)
    protocol = Protocol.of(data, plan, tuple(metrics), used, rules)
    offset = 0 if store is None else complete_bytes(store)
    stored = [] if store is None else read_results(store)
    found = match_results(candidates, protocol, newest_source(stored), any_source=True)
    found |= match_results(candidates, protocol, stored)
    codes = {label: candidate.code for label, candidate in by_label.items()}
    stale = [
        task
        for task, result in found.items()
        if result.source != by_label[task.label].entry.source or code_state(result.code, codes[task.label]) == "stale"
    ]
    if stale:
        told = "are used" if keep_stale else "are fitted again (--keep-stale or keep_stale=True uses them)"
        log.warning("Stored results of other code %s: %s.", told, "; ".join(map(str, stale)))
        found = {task: result for task, result in found.items() if keep_stale or task not in stale}
    seeds = dict.fromkeys(seed for _, its in candidates for seed in its)
    # Split by split, so that an unfinished run has complete splits to show.
    tasks = [Task(candidate.label, seed) for seed in seeds for candidate, its in candidates if seed in its]
    missing = [task for task in tasks if task not in found]
    # Data that cannot be split is refused here once, and not by every fit.
    first = split(data, plan, seed=missing[0].seed, used=used) if missing else None
    for label in dict.fromkeys(task.label for task in missing):
        check_grades(by_label[label], data, used)
    # The threads follow from the options and not from the number of missing fits: sums in another order differ in
    # their last digits, and resuming a run must not change a number.
    cores = available_cores()
    workers = cores if workers is None else workers
    threads = max(1, cores // workers) if workers else None
    custom = origins(metrics)
    if custom is None:
        log.warning("A metric is known in this process only, so all models are fitted here.")
        workers = 0
    job = FitJob(data, protocol, by_label, threads, user_ids, first, custom or ())
    extra = whole_extra(data, used)
    forecasts = {label: _forecast(by_label[label], data, extra) for label in {task.label for task in missing}}
    progress = _Progress(tasks, found, max(1, min(workers, len(missing))), forecasts)
    report = on_event or (lambda _: None)
    queue = FitQueue(
        {task: _key(by_label[task.label], protocol, task.seed) for task in missing},
        {task: codes[task.label] for task in missing},
        None if store is None else Path(store),
        offset,
        on_stored=lambda task, result: report(progress.add_stored(task, result)),
    )
    _run_missing(queue, job, progress, workers, report)
    ordered = (Task(candidate.label, seed) for candidate, its in candidates for seed in its)
    results = tuple(progress.results[task] for task in ordered if task in progress.results)
    return RunSummary(protocol, results, progress.failures, progress.computed)


def _run_missing(queue: FitQueue, job: FitJob, progress: "_Progress", workers: int, report: OnEvent) -> None:
    """Run the tasks and save each result when it arrives."""

    def on_event(event: TaskEvent, task: Task, message: object) -> None:
        if event == "ended":
            queue.end(task, message if isinstance(message, Result) else None)
        report(progress.update(event, task, message))

    importable = {label: one for label, one in job.candidates.items() if workers and is_importable(type(one.model))}
    for label in [label for label in job.candidates if workers and label not in importable]:
        log.warning("%s is fitted in this process: other processes cannot import its class.", label)
    shared = replace(job, candidates=importable)
    report(Event("planned", progress.status()))
    pool = Pool(
        job=PackedJob.of(shared, (type(one.model) for one in importable.values())) if importable else job,
        local_job=job,
        next_task=queue.next,
        on_event=on_event,
        workers=workers if importable else 0,
        threads=job.threads or available_cores(),
        runs_here=lambda task: task.label not in importable,
    )
    queue.run(pool.run)


def run_experiment(
    experiment: Experiment,
    store: str | Path,
    *,
    workers: int | None = None,
    user_ids: bool = False,
    keep_stale: bool = False,
    on_event: OnEvent | None = None,
) -> RunSummary:
    """Run the fits of an experiment that `store` lacks; see `run_candidates`."""
    return run_candidates(
        with_features(load(experiment.data, experiment.preparation), experiment.signals),
        experiment.models,
        plan=experiment.split,
        metrics=experiment.metrics,
        signals=experiment.signals,
        store=store,
        workers=workers,
        user_ids=user_ids,
        keep_stale=keep_stale,
        on_event=on_event,
    )


def stored_results(experiment: Experiment, stored: Sequence[Result]) -> list[Result]:
    """Return the stored results that belong to an experiment, in its order; nothing is run."""
    data = with_features(load(experiment.data, experiment.preparation), experiment.signals)
    protocol = Protocol.of(data, experiment.split, experiment.metrics, used_signals(experiment.signals, data))
    return list(match_results(experiment.models, protocol, stored).values())


def match_results(
    candidates: Sequence[tuple[Candidate, Sequence[int]]],
    protocol: Protocol,
    stored: Iterable[Result],
    *,
    any_source: bool = False,
) -> dict[Task, Result]:
    """Return the stored results with the protocol, label, model, source, settings and seeds of these candidates.

    With `any_source` the source may differ: the file of a class that is not ours may have been edited.
    """
    known = best_rows(stored)
    if any_source:
        known = {(*key[:3], "", *key[4:]): result for key, result in known.items()}
    found: dict[Task, Result] = {}
    for candidate, seeds in candidates:
        source = "" if any_source else candidate.entry.source
        keys = {Task(candidate.label, seed): _key(candidate, protocol, seed, source) for seed in seeds}
        found |= {task: known[key] for task, key in keys.items() if key in known}
    return found


def _key(candidate: Candidate, protocol: Protocol, seed: int, source: str | None = None) -> ResultKey:
    known = candidate.entry.source if source is None else source
    return result_key(protocol, candidate.label, candidate.entry.name, known, candidate.values, seed)


def _forecast(candidate: Candidate, data: Interactions, extra: Extra | None) -> float | None:
    """Return the seconds that a fit of a candidate and the trials of its budget should take, if they are known."""
    seconds = candidate.model.forecast(Shape.of(data.matrix, read_by(candidate.model, extra))).seconds
    return None if seconds is None else seconds * (1 + candidate.tune)


@dataclass
class _Progress:
    """The state of a run, and the estimate of the time that is left."""

    tasks: Sequence[Task]
    results: dict[Task, Result]
    side_by_side: int
    forecasts: Mapping[str, float | None]  # label -> seconds
    failures: dict[Task, Failure] = field(default_factory=dict)
    running: dict[Task, Epoch | None] = field(default_factory=dict)
    steps: dict[Task, str] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    started: dict[Task, float] = field(default_factory=dict)
    took: dict[str, list[float]] = field(default_factory=dict)  # label -> seconds of each fit
    computed: int = 0  # results of this run's own fits

    def __post_init__(self) -> None:
        for task, result in self.results.items():
            self.took.setdefault(task.label, []).append(result.fit_seconds + result.score_seconds)

    def update(self, event: TaskEvent, task: Task, message: object) -> Event:
        """Record an event of the pool, and return it as an event of the run."""
        if event == "started":
            self.started[task], self.running[task] = time.monotonic(), None
            return Event("started", self.status(), task)
        if isinstance(message, Epoch):
            self.running[task] = message
            return Event("epoch", self.status(), task)
        if isinstance(message, str):
            self.steps[task], self.running[task] = message, None
            return Event("step", self.status(), task)
        del self.running[task]
        self.steps.pop(task, None)
        if isinstance(message, Result):
            self.results[task] = message
            self.computed += 1
            self.took.setdefault(task.label, []).append(time.monotonic() - self.started[task])
            return Event("finished", self.status(), task, message)
        assert isinstance(message, Failure)
        log.debug("%s: %s %s", task, message.reason, message.details)
        self.failures[task] = message
        return Event("failed", self.status(), task, failure=message)

    def add_stored(self, task: Task, result: Result) -> Event:
        """Record a result that another run stored, and return it as an event of this run."""
        self.results[task] = result
        return Event("finished", self.status(), task, result)

    def status(self) -> Status:
        counts = (len(self.results), len(self.failures), len(self.tasks))
        seconds = time.monotonic() - self.began
        return Status(*counts, dict(self.running), seconds, self._seconds_left(), dict(self.steps))

    def _seconds_left(self) -> float | None:
        left = [task for task in self.tasks if task not in self.results and task not in self.failures]
        means = {label: sum(seconds) / len(seconds) for label, seconds in self.took.items()}
        expected = {task: means.get(task.label, self.forecasts.get(task.label)) for task in left}
        since = {task: time.monotonic() - self.started[task] for task in self.running}
        work = [max(0.0, s - since.get(task, 0.0)) for task, s in expected.items() if s is not None]
        if len(work) < len(left):
            return None
        return max(sum(work) / self.side_by_side, max(work, default=0.0))
