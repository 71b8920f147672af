"""Worker processes with a line to each: started with their share of the cores, heard of when they die, never left."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import connection, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "POLARS_MAX_THREADS",
)


def start_process(work: Callable[..., None], args: Sequence[Any], threads: int) -> tuple[SpawnProcess, Connection]:
    """Start a process that runs work(line, *args) with that many threads; return it with our end of the line."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with theirs, _starting(threads):
        process = context.Process(target=work, args=(theirs, *args), daemon=True)
        process.start()
    return process, ours


def end_with_parent() -> None:
    """Let this process end when the one that started it is gone, however that came about."""
    threading.Thread(target=_wait_for_parent, daemon=True).start()


def how_it_ended(process: SpawnProcess) -> str:
    """Return a sentence for a process whose line has closed."""
    process.join()
    code = process.exitcode or 0
    how = f"by signal {-code}, perhaps for want of memory" if code < 0 else f"with exit code {code}"
    return f"Its process was ended {how}."


def available_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def _starting(threads: int) -> Iterator[None]:
    """Let a process that starts within the block have its number of threads, and leave Ctrl-C to this one.

    Libraries read the number as they are loaded, so it must be in the environment from the start. The process
    inherits the blocked signal; one that arrives here meanwhile is delivered after the block.
    """
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    masks = hasattr(signal, "pthread_sigmask")  # Windows has none: there Ctrl-C reaches the workers too, which end
    if masks:
        resource_tracker.ensure_running()  # its own start would lift the block
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        if masks:
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)


def _wait_for_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
