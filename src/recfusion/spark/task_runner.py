"""Runs Python tasks on Spark, and keeps their files in a folder until the job is done."""

import functools
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from recfusion.core.errors import InputError, WriteError
from recfusion.core.job_folder import JOB, STAGES, claim_folder
from recfusion.data.load import PARTS
from recfusion.spark.record_batches import read_about
from recfusion.spark.session import brief

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Task = TypeVar("Task")
Output = TypeVar("Output")


class TaskError(InputError):
    """A task died with its process, not because of its input."""


def run_tasks(session: "SparkSession", work: Callable[[Task], Output], tasks: Sequence[Task]) -> list[Output]:
    """Return work(task) for each task, in order; raises the InputError of a task."""
    if not tasks:
        return []
    try:
        each = session.sparkContext.parallelize(tasks, len(tasks))
        found = each.map(functools.partial(_attempt, work)).collect()
    except Exception as error:  # of pyspark or the JVM
        raise TaskError(f"A Spark task failed: {brief(error)}; what is done is kept.") from None
    for output in found:
        if isinstance(output, InputError):
            raise output
    return [output for output in found if not isinstance(output, InputError)]


def _attempt(work: Callable[[Task], Output], task: Task) -> Output | InputError:
    try:
        return work(task)
    except InputError as error:
        return error


def make_files(
    session: "SparkSession", work: Callable[[Task], object], tasks: Mapping[Path, Task]
) -> list[dict[str, Any]]:
    """Return the metadata of the files of tasks; runs the tasks of files that are missing or incomplete."""
    run_tasks(session, work, [task for file, task in tasks.items() if read_about(file) is None])
    return [read_about(file) or {} for file in tasks]


@contextmanager
def stages_of(folder: Path, job: dict[str, Any]) -> Iterator[Path]:
    """Yield the folder for a job's intermediate files, removed if the block succeeds; refuse a folder of another job.

    After an error about the input or options nothing is left behind, so that the corrected job may use the folder.
    """
    claim_folder(folder, job)
    try:
        yield folder.absolute() / STAGES  # tasks run in another folder
    except (TaskError, WriteError):
        raise
    except InputError:
        shutil.rmtree(folder / STAGES, ignore_errors=True)
        if not any(folder.glob(PARTS)):
            (folder / JOB).unlink(missing_ok=True)
        raise
    shutil.rmtree(folder / STAGES, ignore_errors=True)
