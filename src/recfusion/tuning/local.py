"""Trials in processes of this machine, each with its share of the cores."""

import time
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

from recfusion.core.errors import InputError
from recfusion.core.processes import available_cores, end_with_parent, how_it_ended, start_process
from recfusion.training.epoch import Epoch
from recfusion.tuning.trial import Asked, Event, Going, Job, Outcome, run_trial


@dataclass(frozen=True)
class LocalEngine:
    """An engine of `parallel` processes. Each has `threads` threads; by default the cores are divided among them."""

    parallel: int = 1
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.parallel < 1 or (self.threads is not None and self.threads < 1):
            raise InputError(f"Expected at least one process and thread, got {self.parallel} and {self.threads}.")

    def run(
        self, job: Job, next_trial: Callable[[], Asked | None], count: int, seconds: float
    ) -> Generator[Event, None, None]:
        deadline = time.monotonic() + seconds
        threads = self.threads or max(1, available_cores() // self.parallel)
        workers: dict[Connection, tuple[SpawnProcess, Asked]] = {}

        def hire() -> None:
            if (asked := next_trial()) is not None:
                process, line = start_process(_work, (job, threads), threads)
                workers[line] = (process, asked)
                _send(line, asked)

        try:
            for _ in range(min(self.parallel, count)):
                hire()
            while workers and (left := deadline - time.monotonic()) > 0:
                for line in connection.wait(list(workers), None if left == float("inf") else left):
                    assert isinstance(line, Connection)
                    process, asked = workers[line]
                    message = _hear(line, process, asked)
                    yield message
                    if isinstance(message, Going):
                        continue
                    if not process.is_alive():
                        _dismiss(workers, [line])
                        hire()
                    elif (following := next_trial()) is None:
                        _dismiss(workers, [line])
                    else:
                        workers[line] = (process, following)
                        _send(line, following)
        finally:
            _dismiss(workers, list(workers))


def _hear(line: Connection, process: SpawnProcess, asked: Asked) -> Event:
    """Return what a worker says; the end of its process is a failure of its trial."""
    try:
        message: Event = line.recv()
    except (EOFError, OSError):
        return Outcome(asked.number, "failed", dict(asked.settings), reason=how_it_ended(process))
    return message


def _send(line: Connection, asked: Asked) -> None:
    with suppress(OSError):  # a process that has just died is heard of as the end of its line
        line.send(asked)


def _dismiss(workers: dict[Connection, tuple[SpawnProcess, Asked]], lines: list[Connection]) -> None:
    gone = [(line, workers.pop(line)[0]) for line in lines]
    for line, process in gone:
        process.terminate()  # it holds nothing but what it computes
        line.close()
    for _, process in gone:
        process.join()


def _work(line: Connection, job: Job, threads: int) -> None:
    """Live as a worker: run the trials that the line asks for until it is closed."""
    end_with_parent()
    with suppress(EOFError, OSError):  # nobody is there any more to hear of it
        while True:
            asked: Asked = line.recv()

            def tell(epoch: Epoch, number: int = asked.number) -> None:
                line.send(Going(number, epoch))

            line.send(run_trial(job, asked, threads=threads, on_epoch=tell))
