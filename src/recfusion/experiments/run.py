"""Fitting candidates on splits: what a store lacks, in parallel processes, each result kept as soon as it is there."""

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

from recfusion.core.errors import InputError
from recfusion.core.files import check_writable_file
from recfusion.core.pool import Failure, Pool, RunTask, SendProgress, TaskEvent, available_cores
from recfusion.data.features import with_features
from recfusion.data.interactions import Interactions
from recfusion.data.load import load
from recfusion.data.options import SplitPlan
from recfusion.data.protocol import Protocol
from recfusion.data.signals import BINARY, check_signals_are_read, used_signals
from recfusion.data.split import Split, split
from recfusion.experiments.candidate import Candidate, Packed, unique
from recfusion.experiments.experiment_file import Experiment
from recfusion.experiments.fit import check_grades, fit_and_judge
from recfusion.experiments.result import Result, append_result, read_results, result_key
from recfusion.models.class_loading import is_importable
from recfusion.training.epoch import Epoch

log = logging.getLogger(__name__)
EventKind: TypeAlias = Literal["planned", "started", "epoch", "finished", "failed"]


@dataclass(frozen=True)
class Task:
    """One fit: a candidate, by its label, on the split of one seed."""

    label: str
    seed: int

    def __str__(self) -> str:
        return f"{self.label}, split {self.seed}"


@dataclass(frozen=True)
class Status:
    """How far the fits have come."""

    done: int  # fits that are in the store, those of earlier runs too
    failed: int
    total: int
    running: Mapping[Task, Epoch | None]  # with the latest epoch, of models that have epochs
    seconds: float  # since this run began
    seconds_left: float | None  # None until every model to come has been fitted once


@dataclass(frozen=True)
class Event:
    """Something that happened to a fit; `planned` comes first and belongs to none."""

    kind: EventKind
    status: Status
    task: Task | None = None
    result: Result | None = None  # of a finished fit
    failure: Failure | None = None


OnEvent = Callable[[Event], None]


@dataclass(frozen=True)
class Ran:
    """What the fits have come to."""

    protocol: Protocol
    results: tuple[Result, ...]  # model by model, in the order of the candidates
    failures: Mapping[Task, Failure]
    computed: int  # results that this run added


@dataclass(frozen=True)
class Fits:
    """The fits of a run, as each process has them."""

    data: Interactions
    protocol: Protocol
    candidates: Mapping[str, Candidate]
    threads: int | None
    user_ids: bool

    def start(self) -> RunTask:
        parts: Split | None = None

        def work(task: Task, tell: SendProgress) -> Result:
            nonlocal parts
            if parts is None or parts.seed != task.seed:
                used = self.protocol.signals.used
                parts = split(self.data, self.protocol.plan, seed=task.seed, used=used)
            return fit_and_judge(
                *(self.candidates[task.label], self.data, self.protocol, parts),
                threads=self.threads,
                user_ids=self.user_ids,
                on_epoch=tell,
            ).result

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
    on_event: OnEvent | None = None,
) -> Ran:
    """Fit each candidate on the splits of its seeds, but for what `store` has; add each result to it at once.

    `workers` processes run side by side (by default one per core, 0: none, all in this process), each with an equal
    share of the cores as threads. Numbers are the same for any number of workers, but for the rounding of sums that
    several threads divide. A fit that fails is reported and the others go on. A class that other processes cannot
    import, such as a notebook's, is fitted in this one. Call it under `if __name__ == "__main__":` in a script, since
    the processes import the script's module.
    """
    if workers is not None and workers < 0:
        raise InputError(f"Expected at least one worker, or 0 for this process alone, got {workers}.")
    if store is not None:
        check_writable_file(Path(store))
    unique([candidate.label for candidate, _ in candidates])
    by_label = {candidate.label: candidate for candidate, _ in candidates}
    data = with_features(data, signals)
    used = used_signals(signals, data)
    check_signals_are_read(used, [(candidate.label, candidate.model.reads) for candidate, _ in candidates])
    protocol = Protocol.of(data, plan, tuple(metrics), used)
    found = matching(candidates, protocol, [] if store is None else read_results(store))
    seeds = dict.fromkeys(seed for _, its in candidates for seed in its)
    # Split by split, so that an unfinished run has whole splits to show.
    tasks = [Task(candidate.label, seed) for seed in seeds for candidate, its in candidates if seed in its]
    missing = deque(task for task in tasks if task not in found)
    if missing:
        split(data, plan, seed=missing[0].seed)  # data that cannot be split is refused once, not per fit
    for label in dict.fromkeys(task.label for task in missing):
        check_grades(by_label[label], data, used)
    # The threads follow from what was asked for and not from how much is left to do: sums in another order differ in
    # their last digits, and going on after an interruption must not change a number.
    cores = available_cores()
    workers = cores if workers is None else workers
    threads = max(1, cores // workers) if workers else None
    fits = Fits(data, protocol, by_label, threads, user_ids)
    progress = _Progress(tasks, found, side_by_side=max(1, min(workers, len(missing))))
    n_before = len(found)
    _run_missing(missing, fits, progress, workers, store, on_event or (lambda _: None))
    ordered = (Task(candidate.label, seed) for candidate, its in candidates for seed in its)
    results = tuple(progress.results[task] for task in ordered if task in progress.results)
    return Ran(protocol, results, progress.failures, len(results) - n_before)


def _run_missing(
    missing: deque[Task], fits: Fits, progress: "_Progress", workers: int, store: str | Path | None, tell: OnEvent
) -> None:
    """Do the tasks and keep each result as it comes."""

    def hear(kind: TaskEvent, task: Task, message: object) -> None:
        if isinstance(message, Result) and store is not None:
            append_result(store, message)
        tell(progress.take(kind, task, message))

    elsewhere = {label: one for label, one in fits.candidates.items() if workers and is_importable(type(one.model))}
    for label in [label for label in fits.candidates if workers and label not in elsewhere]:
        log.warning("%s is fitted in this process: others cannot import its class.", label)
    shared = replace(fits, candidates=elsewhere)
    tell(Event("planned", progress.status()))
    Pool(
        job=Packed.of(shared, (type(one.model) for one in elsewhere.values())) if elsewhere else fits,
        local_job=fits,
        next_task=lambda: missing.popleft() if missing else None,
        on_event=hear,
        workers=workers if elsewhere else 0,
        threads=fits.threads or available_cores(),
        runs_here=lambda task: task.label not in elsewhere,
    ).run()


def run_experiment(
    experiment: Experiment,
    store: str | Path,
    *,
    workers: int | None = None,
    user_ids: bool = False,
    on_event: OnEvent | None = None,
) -> Ran:
    """Fit whatever `store` lacks of an experiment; see `run_candidates`."""
    return run_candidates(
        load(experiment.data, experiment.preparation),
        experiment.models,
        plan=experiment.split,
        metrics=experiment.metrics,
        signals=experiment.signals,
        store=store,
        workers=workers,
        user_ids=user_ids,
        on_event=on_event,
    )


def stored_results(experiment: Experiment, stored: Sequence[Result]) -> list[Result]:
    """Return those of stored results that are of this very experiment, in its order; nothing is run."""
    data = with_features(load(experiment.data, experiment.preparation), experiment.signals)
    protocol = Protocol.of(data, experiment.split, experiment.metrics, used_signals(experiment.signals, data))
    return list(matching(experiment.models, protocol, stored).values())


def matching(
    candidates: Sequence[tuple[Candidate, Sequence[int]]], protocol: Protocol, stored: Sequence[Result]
) -> dict[Task, Result]:
    """Return those of stored results that are of these candidates: protocol, label, model, code, settings and seed."""
    known = {result.key: result for result in reversed(stored)}  # of several the first counts
    found: dict[Task, Result] = {}
    for candidate, seeds in candidates:
        named = (candidate.label, candidate.entry.name, candidate.entry.source, candidate.values)
        keys = {Task(candidate.label, seed): result_key(protocol, *named, seed) for seed in seeds}
        found |= {task: known[key] for task, key in keys.items() if key in known}
    return found


@dataclass
class _Progress:
    """What is known on the way, and the estimate of what is to come."""

    tasks: Sequence[Task]
    results: dict[Task, Result]
    side_by_side: int
    failures: dict[Task, Failure] = field(default_factory=dict)
    running: dict[Task, Epoch | None] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    started: dict[Task, float] = field(default_factory=dict)
    took: dict[str, list[float]] = field(default_factory=dict)  # label -> seconds of each of its fits

    def __post_init__(self) -> None:
        for task, result in self.results.items():
            self.took.setdefault(task.label, []).append(result.fit_seconds + result.score_seconds)

    def take(self, kind: TaskEvent, task: Task, message: object) -> Event:
        """Take what the pool tells of a task, and return it as an event."""
        if kind == "started":
            self.started[task], self.running[task] = time.monotonic(), None
            return Event("started", self.status(), task)
        if isinstance(message, Epoch):
            self.running[task] = message
            return Event("epoch", self.status(), task)
        del self.running[task]
        if isinstance(message, Result):
            self.results[task] = message
            self.took.setdefault(task.label, []).append(time.monotonic() - self.started[task])
            return Event("finished", self.status(), task, message)
        assert isinstance(message, Failure)
        log.debug("%s: %s %s", task, message.reason, message.details)
        self.failures[task] = message
        return Event("failed", self.status(), task, failure=message)

    def status(self) -> Status:
        return Status(
            done=len(self.results),
            failed=len(self.failures),
            total=len(self.tasks),
            running=dict(self.running),
            seconds=time.monotonic() - self.began,
            seconds_left=self._seconds_left(),
        )

    def _seconds_left(self) -> float | None:
        left = [task for task in self.tasks if task not in self.results and task not in self.failures]
        if any(task.label not in self.took for task in left):
            return None
        since = {task: time.monotonic() - self.started[task] for task in self.running}
        means = {label: sum(seconds) / len(seconds) for label, seconds in self.took.items()}
        work = [max(0.0, means[task.label] - since.get(task, 0.0)) for task in left]
        return max(sum(work) / self.side_by_side, max(work, default=0.0))
