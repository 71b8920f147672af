"""A worker process: it reads the data once and fits what it is asked for, with its share of the cores."""

import traceback
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

from recfusion.core.errors import InputError
from recfusion.core.processes import end_with_parent, start_process
from recfusion.data.load import load
from recfusion.data.protocol import Protocol
from recfusion.data.split import Split, split
from recfusion.experiments.compare import run_model
from recfusion.experiments.spec import Experiment, Task
from recfusion.experiments.store import Row


@dataclass(frozen=True)
class Failure:
    """A fit that came to nothing; it counts as not run."""

    task: Task
    reason: str
    details: str = ""  # the traceback of an error that nobody foresaw


def start_worker(experiment: Experiment, protocol_hash: str, threads: int) -> tuple[SpawnProcess, Connection]:
    """Start a process and return it with the line to it: tasks go in; epochs and a row or a failure come out."""
    return start_process(_work, (experiment, protocol_hash, threads), threads)


def _work(line: Connection, experiment: Experiment, protocol_hash: str, threads: int) -> None:
    """Live as a worker: read the data once, then fit what the line asks for until it is closed."""
    end_with_parent()
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
                    *(data, protocol, parts, plan.model, plan.settings),
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
