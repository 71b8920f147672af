"""Runs Python tasks on Spark, and skips those that have written their files."""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from recfusion.core.errors import InputError, TaskError
from recfusion.spark.record_batches import read_about
from recfusion.spark.session import brief

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Task = TypeVar("Task")
Output = TypeVar("Output")


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
