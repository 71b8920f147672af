"""The one pool of worker processes: tasks go in, and what they tell on the way and come to in the end is heard here."""

import functools
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar, cast

from recfusion.core.errors import InputError

THREAD_VARIABLES = tuple(
    f"{library}_THREADS" for library in ("OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "VECLIB_MAXIMUM", "POLARS_MAX")
)

T = TypeVar("T")
Report: TypeAlias = Callable[[object], None]
Work: TypeAlias = Callable[[Any, Report], object]  # a task, and how to report its progress -> its result
TaskEvent: TypeAlias = Literal["started", "told", "ended"]


class Job(Protocol):
    """What all tasks share. It is sent to each process once."""

    def start(self) -> Work:
        """Return what does the tasks, in the process that does them."""


@dataclass(frozen=True)
class Failure:
    """A task that came to nothing."""

    reason: str
    details: str = ""  # the traceback of an error that nobody foresaw


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def attempt(work: Work, task: object, tell: Report) -> object:
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
    on_event: Callable[[TaskEvent, T, object], None]
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
            is_end, message = True, Failure(_how_it_ended(process))
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
        context = multiprocessing.get_context("spawn")
        line, theirs = context.Pipe()
        with theirs, _starting(self.threads):
            process = context.Process(target=_live, args=(theirs, self.job), daemon=True)
            process.start()
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


def _live(line: Connection, job: Job) -> None:
    """Live as a worker: do the tasks that the line brings until it is closed, or the process at its end is gone."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    work: Work | None = None
    with suppress(EOFError, OSError):  # nobody is there any more to hear of it
        while True:
            task = line.recv()
            work = work or job.start()
            line.send((True, attempt(work, task, lambda told: line.send((False, told)))))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _how_it_ended(process: SpawnProcess) -> str:
    process.join()
    code = process.exitcode or 0
    how = f"by signal {-code}, perhaps for want of memory" if code < 0 else f"with exit code {code}"
    return f"Its process was ended {how}."


@contextmanager
def _starting(threads: int) -> Iterator[None]:
    """Let a process that starts within the block have its number of threads, and leave Ctrl-C to this one.

    Libraries read the number as they are loaded, so it must be in the environment from the start. The process
    inherits the blocked signal; one that arrives here meanwhile is delivered after the block.
    """
    before = {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ}
    masks = hasattr(signal, "pthread_sigmask")  # Windows has none: there Ctrl-C reaches the workers too, which end
    if masks:
        resource_tracker.ensure_running()  # its own start would lift the block
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    try:
        yield
    finally:
        for name in THREAD_VARIABLES:
            del os.environ[name]
        os.environ.update(before)
        if masks:
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)
