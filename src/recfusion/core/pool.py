"""The one pool of worker processes: tasks go in, and what they tell on the way and come to in the end is heard here."""

import functools
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar, cast

from recfusion.core.errors import InputError
from recfusion.core.processes import end_with_parent, how_it_ended, start_process

T = TypeVar("T")
Tell: TypeAlias = Callable[[object], None]
Work: TypeAlias = Callable[[Any, Tell], object]  # a task, and how to tell of it on the way -> what it came to
Kind: TypeAlias = Literal["started", "told", "ended"]


class Job(Protocol):
    """What all tasks share. It is sent to each process once."""

    def start(self) -> Work:
        """Return what does the tasks, in the process that does them."""


@dataclass(frozen=True)
class Failure:
    """A task that came to nothing."""

    reason: str
    details: str = ""  # the traceback of an error that nobody foresaw


def attempt(work: Work, task: object, tell: Tell) -> object:
    """Return what a task comes to; an error is a failure of the task alone."""
    try:
        return work(task, tell)
    except InputError as error:
        return Failure(str(error))
    except MemoryError:
        return Failure("There is not enough memory for it: use fewer workers or a larger machine.")
    except Exception as error:
        return Failure(f"{type(error).__name__}: {error}", traceback.format_exc())


@dataclass
class Pool(Generic[T]):
    """Up to `workers` processes, each with so many threads; with none, all tasks are done in this process.

    `next_task` gives the next task and None at the end; it is called after `on_event` has taken what came before.
    `on_event` is told that a task has started, what it tells, and what it came to. Tasks of which `here` is true are
    done in this process, one by one. The processes never outlive `run`, and those that are still at work when
    `seconds` are over are ended.
    """

    job: Job  # as the processes get it
    own: Job  # as this process has it
    next_task: Callable[[], T | None]
    on_event: Callable[[Kind, T, object], None]
    workers: int
    threads: int
    here: Callable[[T], bool] = lambda _: False
    seconds: float = float("inf")

    def run(self) -> None:
        self._deadline = time.monotonic() + self.seconds
        self._crew: dict[Connection, tuple[SpawnProcess, T]] = {}
        self._work: Work | None = None
        try:
            while len(self._crew) < self.workers and (task := self._next()) is not None:
                self._hire(task)
            while self._crew and (left := self._deadline - time.monotonic()) > 0:
                for line in connection.wait(list(self._crew), None if left == float("inf") else left):
                    self._hear(cast("Connection", line))  # by another class on Windows
            if not self.workers:
                self._next()
        finally:
            self._dismiss(list(self._crew))

    def _next(self) -> T | None:
        """Return the next task for a process; those before it that belong here are done."""
        while time.monotonic() < self._deadline and (task := self.next_task()) is not None:
            self.on_event("started", task, None)
            if self.workers and not self.here(task):
                return task
            self._work = self._work or self.own.start()
            tell = functools.partial(self.on_event, "told", task)
            self.on_event("ended", task, attempt(self._work, task, tell))
        return None

    def _hear(self, line: Connection) -> None:
        process, task = self._crew[line]
        try:
            is_end, message = line.recv()
        except (EOFError, OSError):  # the end of its process is a failure of its task
            is_end, message = True, Failure(how_it_ended(process))
        self.on_event("ended" if is_end else "told", task, message)
        if is_end:
            following = self._next()
            if following is None or not process.is_alive():
                self._dismiss([line])
                if following is not None:
                    self._hire(following)
            else:
                self._crew[line] = (process, following)
                _send(line, following)

    def _hire(self, task: T) -> None:
        process, line = start_process(_live, (self.job, self.threads), self.threads)
        self._crew[line] = (process, task)
        _send(line, task)

    def _dismiss(self, lines: list[Connection]) -> None:
        gone = [(line, self._crew.pop(line)[0]) for line in lines]
        for line, process in gone:
            process.terminate()  # it holds nothing but what it computes
            line.close()
        for _, process in gone:
            process.join()


def _send(line: Connection, task: object) -> None:
    with suppress(OSError):  # a process that has just died is heard of as the end of its line
        line.send(task)


def _live(line: Connection, job: Job, threads: int) -> None:  # noqa: ARG001
    """Live as a worker: do the tasks that the line brings until it is closed."""
    end_with_parent()
    work: Work | None = None
    with suppress(EOFError, OSError):  # nobody is there any more to hear of it
        while True:
            task = line.recv()
            work = work or job.start()
            line.send((True, attempt(work, task, lambda told: line.send((False, told)))))
