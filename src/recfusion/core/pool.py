"""A process pool that reports progress and results."""

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
# Waiting threads sleep: those of OpenMP and OpenBLAS would spin on cores that other processes need.
SLEEPING_THREADS = {"OMP_WAIT_POLICY": "PASSIVE", "OPENBLAS_THREAD_TIMEOUT": "4"}

T = TypeVar("T")
SendProgress: TypeAlias = Callable[[object], None]
RunTask: TypeAlias = Callable[[Any, SendProgress], object]  # (task, send progress) -> result
TaskEvent: TypeAlias = Literal["started", "progress", "ended"]


class Job(Protocol):
    """What all tasks share; it is sent to each worker process once."""

    def start(self) -> RunTask:
        """Return the function that runs tasks; called in the process that runs them."""


@dataclass(frozen=True)
class Failure:
    """The result of a task that failed."""

    reason: str
    details: str = ""  # the traceback of an unexpected error


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def attempt(run_task: RunTask, task: object, send_progress: SendProgress) -> object:
    """Return the result of a task, or a Failure if it raises."""
    try:
        return run_task(task, send_progress)
    except InputError as error:
        return Failure(str(error))
    except MemoryError:
        return Failure("There is not enough memory for it: use fewer workers or a larger machine.")
    except Exception as error:
        return Failure(f"{type(error).__name__}: {error}", traceback.format_exc())


@dataclass
class Pool(Generic[T]):
    """Up to `workers` processes with `threads` threads each; with 0 workers, all tasks run in this process.

    `next_task` returns the next task, or None at the end; it is called after `on_event` has handled the events before.
    `on_event` receives ("started", task, None), ("progress", task, message) and ("ended", task, result or Failure).
    Tasks for which `runs_here` is true run in this process, one at a time. No process outlives `run`; those still busy
    after `seconds` are terminated.
    """

    job: Job  # as it is sent to the workers
    local_job: Job  # as this process uses it
    next_task: Callable[[], T | None]
    on_event: Callable[[TaskEvent, T, object], None]
    workers: int
    threads: int
    runs_here: Callable[[T], bool] = lambda _: False
    seconds: float = float("inf")

    def run(self) -> None:
        """Run all tasks."""
        self._deadline = time.monotonic() + self.seconds
        self._busy: dict[Connection, tuple[SpawnProcess, T]] = {}
        self._run_task: RunTask | None = None
        try:
            while len(self._busy) < self.workers and (task := self._next()) is not None:
                self._start_worker(task)
            while self._busy and (left := self._deadline - time.monotonic()) > 0:
                for pipe in connection.wait(list(self._busy), None if left == float("inf") else left):
                    self._receive(cast("Connection", pipe))  # another class on Windows
            if not self.workers:
                self._next()
        finally:
            self._stop_workers(list(self._busy))

    def _next(self) -> T | None:
        """Run the tasks that belong in this process, and return the next one for a worker."""
        while time.monotonic() < self._deadline and (task := self.next_task()) is not None:
            self.on_event("started", task, None)
            if self.workers and not self.runs_here(task):
                return task
            self._run_task = self._run_task or self.local_job.start()
            progress = functools.partial(self.on_event, "progress", task)
            self.on_event("ended", task, attempt(self._run_task, task, progress))
        return None

    def _receive(self, pipe: Connection) -> None:
        """Handle one message of a worker; after a result, send it the next task."""
        process, task = self._busy[pipe]
        try:
            is_end, message = pipe.recv()
        except (EOFError, OSError):  # the process died
            is_end, message = True, Failure(_cause_of_death(process))
        self.on_event("ended" if is_end else "progress", task, message)
        if is_end:
            following = self._next()
            if following is None or not process.is_alive():
                self._stop_workers([pipe])
                if following is not None:
                    self._start_worker(following)
            else:
                self._busy[pipe] = (process, following)
                _send(pipe, following)

    def _start_worker(self, task: T) -> None:
        context = multiprocessing.get_context("spawn")
        pipe, theirs = context.Pipe()
        with theirs, _spawn_environment(self.threads):
            process = context.Process(target=_worker_main, args=(theirs, self.job), daemon=True)
            process.start()
        self._busy[pipe] = (process, task)
        _send(pipe, task)

    def _stop_workers(self, pipes: list[Connection]) -> None:
        stopped = [(pipe, self._busy.pop(pipe)[0]) for pipe in pipes]
        for pipe, process in stopped:
            process.terminate()  # it holds no state that must be saved
            pipe.close()
        for _, process in stopped:
            process.join()


def _send(pipe: Connection, task: object) -> None:
    with suppress(OSError):  # a process that has just died shows up as the end of its pipe
        pipe.send(task)


def _worker_main(pipe: Connection, job: Job) -> None:
    """Run the tasks that arrive until the pipe is closed or the parent process ends."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    run_task: RunTask | None = None
    with suppress(EOFError, OSError):  # nobody listens any more
        while True:
            task = pipe.recv()
            run_task = run_task or job.start()
            pipe.send((True, attempt(run_task, task, lambda message: pipe.send((False, message)))))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _cause_of_death(process: SpawnProcess) -> str:
    process.join()
    code = process.exitcode or 0
    how = f"by signal {-code}, possibly out of memory" if code < 0 else f"with exit code {code}"
    return f"Its process was ended {how}."


@contextmanager
def _spawn_environment(threads: int) -> Iterator[None]:
    """Set the threads of a process that starts in the block, how many and that they sleep, and block Ctrl-C in it.

    Libraries read the number of threads when they are loaded, so it must be in the environment from the start. The new
    process inherits the blocked signal; a signal that arrives here meanwhile is delivered after the block.
    """
    changed = {**SLEEPING_THREADS, **os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads))}
    before = dict(os.environ)
    masks = hasattr(signal, "pthread_sigmask")  # not on Windows: there Ctrl-C also reaches and ends the workers
    if masks:
        resource_tracker.ensure_running()  # starting it later would unblock the signal
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    os.environ.update(changed)
    try:
        yield
    finally:
        for name in changed.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
        if masks:
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)
