"""Tuning trials on Spark: the data is broadcast once, and each trial is a Spark job of one task."""

import functools
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from uuid import uuid4

from recfusion.core.errors import InputError
from recfusion.core.pool import Failure, RunTask, attempt
from recfusion.experiments.candidate import PackedJob
from recfusion.experiments.tuning.engine import Engine, NextTrial, OnTrial, TrialJob, TrialRequest
from recfusion.models.class_loading import is_importable
from recfusion.spark.session import brief, task_cores, task_slots, use_cores

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import SparkSession

_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class _Task:
    """The function that Spark sends; small, because it holds only the handle of the broadcast."""

    key: str
    job: "Broadcast[PackedJob]" = field(compare=False)
    threads: int = field(compare=False)

    def __call__(self, asked: TrialRequest) -> object:
        work = _started(self)
        use_cores(self.threads)  # after the libraries of the model are loaded
        return attempt(work, asked, lambda _: None)


@functools.cache
def _started(task: _Task) -> RunTask:
    """Return the function that runs trials, started once per worker process."""
    return task.job.value.start()


def spark_engine(session: "SparkSession", parallel: int | None = None) -> Engine:
    """Return an engine that runs up to `parallel` trials at once; by default as many as the cluster can."""

    def run(job: TrialJob, next_trial: NextTrial, on_event: OnTrial, seconds: float) -> None:
        context = session.sparkContext
        threads = task_cores(session)
        kind = job.entry.load()
        if not is_importable(kind):
            raise InputError(
                f"Spark's workers cannot import the class {kind.__name__}: put it into a file (file.py:Class) or a "
                "package."
            )
        shared = context.broadcast(PackedJob.of(replace(job, threads=threads), [kind]))
        task = _Task(uuid4().hex, shared, threads)

        def do(asked: TrialRequest) -> object:
            try:
                return context.parallelize([asked], 1).map(task).collect()[0]
            except Exception as error:  # of pyspark or the JVM: the task died with its process
                return Failure(f"Its Spark task failed: {brief(error)}")

        deadline = time.monotonic() + seconds
        at_once = parallel or task_slots(session)
        running: dict[Future[object], TrialRequest] = {}
        pool = ThreadPoolExecutor(at_once)
        try:
            while time.monotonic() < deadline:
                while len(running) < at_once and (asked := next_trial()) is not None:
                    on_event("started", asked, None)
                    running[pool.submit(do, asked)] = asked
                if not running:
                    break
                ended, _ = wait(running, _POLL_SECONDS, FIRST_COMPLETED)
                if context._jsc.sc().isStopped():
                    raise InputError("Spark ended while trials were running: run the same command again to resume.")
                for future in ended:
                    on_event("ended", running.pop(future), future.result())
        finally:
            if running:
                context.cancelAllJobs()
            pool.shutdown(wait=False, cancel_futures=True)
            shared.unpersist()

    return run
