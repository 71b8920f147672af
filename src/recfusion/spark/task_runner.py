"""Plain Python tasks on Spark, and the folder in which a job keeps what they made until it is done."""

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
Found = TypeVar("Found")


class TaskError(InputError):
    """A task died with its process; the input is not to blame."""


def run_tasks(session: "SparkSession", work: Callable[[Task], Found], tasks: Sequence[Task]) -> list[Found]:
    """Return what `work` makes of each task, in order; what a user can put right is raised as the task said it."""
    if not tasks:
        return []
    try:
        each = session.sparkContext.parallelize(tasks, len(tasks))
        found = each.map(functools.partial(_attempt, work)).collect()
    except Exception as error:  # of pyspark, or raised by the JVM
        raise TaskError(f"A Spark task failed: {brief(error)}; what is done is kept.") from None
    done = []
    for one in found:
        if isinstance(one, InputError):
            raise one
        done.append(one)
    return done


def _attempt(work: Callable[[Task], Found], task: Task) -> Found | InputError:
    try:
        return work(task)
    except InputError as error:
        return error


def make_files(
    session: "SparkSession", work: Callable[[Task], object], tasks: Mapping[Path, Task]
) -> list[dict[str, Any]]:
    """Return what the files of tasks say beside their rows; those that are not there, or not whole, are made first."""
    run_tasks(session, work, [task for file, task in tasks.items() if read_about(file) is None])
    return [read_about(file) or {} for file in tasks]


@contextmanager
def stages_of(folder: Path, job: dict[str, Any]) -> Iterator[Path]:
    """Yield where a job keeps its work until the block ends well; the folder of another job is refused.

    Where the input or the options are refused no work is left behind: the corrected job may have the folder.
    """
    claim_folder(folder, job)
    try:
        yield folder.absolute() / STAGES  # tasks have another working folder
    except (TaskError, WriteError):
        raise
    except InputError:
        shutil.rmtree(folder / STAGES, ignore_errors=True)
        if not any(folder.glob(PARTS)):
            (folder / JOB).unlink(missing_ok=True)
        raise
    shutil.rmtree(folder / STAGES, ignore_errors=True)
