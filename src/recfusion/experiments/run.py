"""Running an experiment: what its store lacks, in parallel processes, each result kept as soon as it is there."""

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Literal, TypeAlias

from recfusion.core.errors import InputError
from recfusion.core.files import check_writable_file
from recfusion.core.processes import available_cores, how_it_ended
from recfusion.data.load import load
from recfusion.data.protocol import Protocol
from recfusion.data.split import split
from recfusion.experiments.results import result_document
from recfusion.experiments.spec import Experiment, Task
from recfusion.experiments.store import Row, append_row, read_rows, row_key
from recfusion.experiments.worker import Failure, start_worker
from recfusion.training.epoch import Epoch

log = logging.getLogger(__name__)


EventKind: TypeAlias = Literal["planned", "started", "epoch", "finished", "failed"]


@dataclass(frozen=True)
class Running:
    """A fit that is going on."""

    task: Task
    epoch: Epoch | None  # the latest one, of a model that has epochs


@dataclass(frozen=True)
class Status:
    """How far an experiment has come."""

    done: int  # fits that are in the store, those of earlier runs too
    failed: int
    total: int
    running: tuple[Running, ...]
    seconds: float  # since this run began
    seconds_left: float | None  # None until every model to come has been fitted once


@dataclass(frozen=True)
class Event:
    """Something that happened to a fit; `planned` comes first and belongs to none."""

    kind: EventKind
    status: Status
    task: Task | None = None
    row: Row | None = None  # of a finished fit
    failure: Failure | None = None


OnEvent = Callable[[Event], None]


@dataclass(frozen=True)
class Outcome:
    """What an experiment has come to."""

    protocol: Protocol
    rows: tuple[Row, ...]  # model by model, in the experiment's order
    failures: tuple[Failure, ...]
    computed: int  # rows that this run added

    def document(self) -> dict[str, Any]:
        """Return the result document of all rows."""
        return result_document([row.run() for row in self.rows])


def run_experiment(
    experiment: Experiment, store: str | Path, *, workers: int | None = None, on_event: OnEvent | None = None
) -> Outcome:
    """Fit whatever `store` lacks of the experiment, add each result to it at once, and return all of them.

    `workers` processes run side by side (by default one per core), each with an equal share of the cores as threads.
    Numbers are the same for any number of workers, but for the rounding of sums that several threads divide.
    A fit that fails is reported and the others go on. Call it under `if __name__ == "__main__":` in a script, since
    the processes import the script's module.
    """
    if workers is not None and workers < 1:
        raise InputError(f"Expected at least one worker, got {workers}.")
    store = Path(store)
    check_writable_file(store)
    stored = read_rows(store)
    data = load(experiment.data, experiment.preparation)
    protocol = Protocol.of(data, experiment.split, experiment.metrics)
    tasks = experiment.tasks()
    rows = matching_rows(experiment, protocol, stored)
    missing = [task for task in tasks if task not in rows]
    if missing:
        split(data, experiment.split, seed=missing[0].seed)  # data that cannot be split is refused once, not per fit
    del data
    # The threads follow from what was asked for and not from how much is left to do: sums in another order differ in
    # their last digits, and going on after an interruption must not change a number.
    workers = workers or available_cores()
    state = _State(tasks, rows, side_by_side=min(workers, len(missing)))
    crew = _Crew(experiment, protocol, threads=max(1, available_cores() // workers), state=state)
    crew.run(missing, store, on_event or _ignore)
    return Outcome(
        protocol=protocol,
        rows=tuple(_in_order(experiment, rows)),
        failures=tuple(state.failures),
        computed=len(missing) - len(state.failures),
    )


def stored_rows(experiment: Experiment, store: str | Path) -> list[Row]:
    """Return what a store holds of an experiment, in the experiment's order, and run nothing."""
    protocol = Protocol.of(load(experiment.data, experiment.preparation), experiment.split, experiment.metrics)
    return _in_order(experiment, matching_rows(experiment, protocol, read_rows(store)))


def matching_rows(experiment: Experiment, protocol: Protocol, stored: Sequence[Row]) -> dict[Task, Row]:
    """Return those of the stored rows that are results of this very experiment: protocol, model, settings and seed."""
    wanted = {
        row_key(protocol, plan.label, plan.model, plan.values, seed): Task(plan.label, seed)
        for plan in experiment.models
        for seed in plan.seeds
    }
    found: dict[Task, Row] = {}
    for row in stored:
        if row.key in wanted:
            found.setdefault(wanted[row.key], row)  # of several the first counts
    return found


def _in_order(experiment: Experiment, rows: Mapping[Task, Row]) -> list[Row]:
    ordered = [Task(plan.label, seed) for plan in experiment.models for seed in plan.seeds]
    return [rows[task] for task in ordered if task in rows]


def _ignore(event: Event) -> None:
    """Take an event that nobody waits for."""


@dataclass
class _State:
    """What is known on the way, and the estimate of what is to come."""

    tasks: Sequence[Task]
    rows: dict[Task, Row]
    side_by_side: int  # workers
    failures: list[Failure] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    took: dict[str, list[float]] = field(default_factory=dict)  # label -> seconds of each of its fits

    def __post_init__(self) -> None:
        for task, row in self.rows.items():
            self.took.setdefault(task.label, []).append(row.fit_seconds + row.score_seconds)

    def settle(self, worker: "_Worker", result: Row | Failure) -> None:
        """Take in how a worker's task ended."""
        if isinstance(result, Row):
            self.rows[worker.task] = result
            self.took.setdefault(worker.task.label, []).append(time.monotonic() - worker.began)
        else:
            log.debug("%s: %s %s", result.task, result.reason, result.details)
            self.failures.append(result)

    def status(self, crew: Sequence["_Worker"]) -> Status:
        return Status(
            done=len(self.rows),
            failed=len(self.failures),
            total=len(self.tasks),
            running=tuple(Running(worker.task, worker.epoch) for worker in crew),
            seconds=time.monotonic() - self.began,
            seconds_left=self._seconds_left(crew),
        )

    def _seconds_left(self, crew: Sequence["_Worker"]) -> float | None:
        since = {worker.task: time.monotonic() - worker.began for worker in crew}
        failed = {failure.task for failure in self.failures}
        left = [task for task in self.tasks if task not in self.rows and task not in failed]
        if any(task.label not in self.took for task in left):
            return None
        means = {label: sum(seconds) / len(seconds) for label, seconds in self.took.items()}
        work = [max(0.0, means[task.label] - since.get(task, 0.0)) for task in left]
        return max(sum(work) / max(1, self.side_by_side), max(work, default=0.0))


@dataclass
class _Worker:
    """A process with the task it is at."""

    process: SpawnProcess
    task: Task
    began: float
    epoch: Epoch | None = None


@dataclass
class _Crew:
    """The processes of one run; they live until there is nothing left for them, and never longer than the run."""

    experiment: Experiment
    protocol: Protocol
    threads: int
    state: _State
    workers: dict[Connection, _Worker] = field(default_factory=dict)

    def run(self, missing: Sequence[Task], store: Path, on_event: OnEvent) -> None:
        pending = deque(missing)

        def tell(kind: EventKind, task: Task | None = None, result: Row | Failure | None = None) -> None:
            row = result if isinstance(result, Row) else None
            failure = result if isinstance(result, Failure) else None
            on_event(Event(kind, self.state.status(list(self.workers.values())), task, row, failure))

        tell("planned")
        try:
            for _ in range(self.state.side_by_side):
                tell("started", self._hire(pending.popleft()))
            while self.workers:
                for line in connection.wait(list(self.workers)):
                    assert isinstance(line, Connection)
                    worker = self.workers[line]
                    message = self._hear(line)
                    if isinstance(message, Epoch):
                        worker.epoch = message
                        tell("epoch", worker.task)
                        continue
                    if isinstance(message, Row):
                        append_row(store, message)
                    self.state.settle(worker, message)
                    going_on = self._next(line, pending)
                    tell("finished" if isinstance(message, Row) else "failed", worker.task, message)
                    if going_on is not None:
                        tell("started", going_on)
        finally:
            self._dismiss(list(self.workers))

    def _hear(self, line: Connection) -> Epoch | Row | Failure:
        """Return what a worker says; the end of its process is a failure of its task."""
        worker = self.workers[line]
        try:
            message: Epoch | Row | Failure = line.recv()
        except (EOFError, OSError):
            return Failure(worker.task, how_it_ended(worker.process))
        return message

    def _next(self, line: Connection, pending: deque[Task]) -> Task | None:
        """Give a worker its next task, hiring another where it has died; without tasks it goes."""
        worker = self.workers[line]
        if not pending or not worker.process.is_alive():
            self._dismiss([line])
            return self._hire(pending.popleft()) if pending else None
        task = pending.popleft()
        self.workers[line] = _Worker(worker.process, task, time.monotonic())
        with suppress(OSError):  # a process that has just died is heard of as the end of its line
            line.send(task)
        return task

    def _hire(self, task: Task) -> Task:
        process, line = start_worker(self.experiment, self.protocol.hash, self.threads)
        self.workers[line] = _Worker(process, task, time.monotonic())
        with suppress(OSError):
            line.send(task)
        return task

    def _dismiss(self, lines: Sequence[Connection]) -> None:
        gone = [(line, self.workers.pop(line)) for line in lines]
        for line, worker in gone:
            worker.process.terminate()  # it holds nothing but what it computes
            line.close()
        for _, worker in gone:
            worker.process.join()
