"""A worker process: it reads the data once and fits what it is asked for, with its share of the cores."""

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

from recfusion.core.errors import InputError
from recfusion.data.load import load
from recfusion.data.protocol import Protocol
from recfusion.data.split import Split, split
from recfusion.experiments.compare import run_model
from recfusion.experiments.spec import Experiment, Task
from recfusion.experiments.store import Row

_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "POLARS_MAX_THREADS",
)


@dataclass(frozen=True)
class Failure:
    """A fit that came to nothing; it counts as not run."""

    task: Task
    reason: str
    details: str = ""  # the traceback of an error that nobody foresaw


def start_worker(experiment: Experiment, protocol_hash: str, threads: int) -> tuple[SpawnProcess, Connection]:
    """Start a process and return it with the line to it: tasks go in; epochs and a row or a failure come out."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with theirs, _starting(threads):
        process = context.Process(target=_work, args=(theirs, experiment, protocol_hash, threads), daemon=True)
        process.start()
    return process, ours


@contextmanager
def _starting(threads: int) -> Iterator[None]:
    """Let a process that starts within the block have its number of threads, and leave Ctrl-C to this one.

    Libraries read the number as they are loaded, so it must be in the environment from the start. The process
    inherits the blocked signal; one that arrives here meanwhile is delivered after the block.
    """
    resource_tracker.ensure_running()  # its own start would lift the block
    before = {name: os.environ.get(name) for name in _THREAD_VARIABLES}
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, str(threads)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)


def _work(line: Connection, experiment: Experiment, protocol_hash: str, threads: int) -> None:
    """Live as a worker: read the data once, then fit what the line asks for until it is closed."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    parts: Split | None = None
    data = None
    with suppress(EOFError, OSError):  # nobody is there any more to hear of it
        while True:
            task: Task = line.recv()
            try:
                if data is None:
                    data = load(experiment.data, experiment.preparation)
                protocol = Protocol.of(data, experiment.split, experiment.metrics)
                if protocol.hash != protocol_hash:
                    raise InputError("The data changed after the experiment began: start it again.")
                if parts is None or parts.seed != task.seed:
                    parts = split(data, experiment.split, seed=task.seed)
                plan = experiment.plan(task.label)
                run = run_model(
                    *(protocol, parts, plan.model, plan.settings),
                    name=task.label,
                    threads=threads,
                    on_epoch=line.send,
                )
                answer: Row | Failure = Row.of(run, threads=threads)
            except InputError as error:
                answer = Failure(task, str(error))
            except MemoryError:
                answer = Failure(task, "There is not enough memory for it: use fewer workers or a larger machine.")
            except Exception as error:
                answer = Failure(task, f"{type(error).__name__}: {error}", traceback.format_exc())
            line.send(answer)


def _end_with_parent() -> None:
    """End this process when the one that started it is gone, however that came about."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
