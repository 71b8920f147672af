"""Trials on a Spark cluster, through Hyperopt's SparkTrials: the data is broadcast once, a trial is a task."""

import logging
import threading
import time
import warnings
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from recfusion.core.errors import InputError
from recfusion.models.registry import entry
from recfusion.spark.session import task_cores, task_slots, use_cores
from recfusion.tuning.trial import Asked, Event, Job, Outcome, run_trial

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import SparkSession

_POLL_SECONDS = 0.1
_WAITING = 256  # trials that may have been asked for and not begun; SparkTrials runs 128 at most
_NUMBER = "number"  # the only thing that Hyperopt sees of a trial


@dataclass
class _Objective:
    """What a task runs. Spark pickles it for each trial: small, since of the data it has the broadcast's handle alone.

    `asked` grows while the search goes on; a trial is sent with those asked for last, itself among them.
    """

    job: "Broadcast[Job]"
    asked: dict[int, Asked]
    threads: int

    def add(self, asked: Asked) -> None:
        """Take in a trial; a new dictionary, since a thread of Hyperopt's may be pickling the old one."""
        self.asked = {**self.asked, asked.number: asked}

    def __getstate__(self) -> dict[str, Any]:
        waiting = list(self.asked.items())[-_WAITING:]  # in the order in which they were asked for
        return {"job": self.job, "asked": dict(waiting), "threads": self.threads}

    def __call__(self, point: dict[str, Any]) -> dict[str, Any]:
        asked = self.asked[int(point[_NUMBER])]
        job = self.job.value
        entry(job.model).load()  # brings torch, where the model needs it
        use_cores(self.threads)
        outcome = run_trial(job, asked, threads=self.threads)
        if outcome.score is None:
            return {"status": "fail", "outcome": outcome}
        return {"status": "ok", "loss": -outcome.score, "outcome": outcome}


@dataclass(frozen=True)
class SparkEngine:
    """An engine of up to `parallel` tasks side by side; by default as many as the cluster has room for."""

    session: "SparkSession"
    parallel: int | None = None

    def run(
        self, job: Job, next_trial: Callable[[], Asked | None], count: int, seconds: float
    ) -> Generator[Event, None, None]:
        import hyperopt
        import numpy as np

        logging.getLogger("hyperopt-spark").setLevel(logging.CRITICAL)  # a failed trial is told of by its outcome
        warnings.filterwarnings("ignore", "Spark session is not provided")  # its threads pass on no tags: none are set
        context = self.session.sparkContext
        data = context.broadcast(job)
        objective = _Objective(data, {}, task_cores(self.session))
        trials = hyperopt.SparkTrials(self.parallel or task_slots(self.session), spark_session=self.session)
        broken: list[Exception] = []

        def suggest(ids: Sequence[int], domain: Any, past: Any, seed: int) -> list[Any]:  # noqa: ARG001
            """Give fmin its next trials: our own stateless search, so that either engine goes on from the other's."""
            documents = []
            for place in ids:
                if (asked := next_trial()) is not None:
                    objective.add(asked)
                    misc = {"tid": place, "cmd": domain.cmd, "workdir": domain.workdir}
                    values = {"idxs": {_NUMBER: [place]}, "vals": {_NUMBER: [asked.number]}}
                    documents += past.new_trial_docs([place], [None], [domain.new_result()], [misc | values])
            return documents

        def search() -> None:
            try:
                hyperopt.fmin(
                    objective,
                    {_NUMBER: hyperopt.hp.uniformint(_NUMBER, 0, 2**31)},
                    algo=suggest,
                    max_evals=count,
                    trials=trials,
                    rstate=np.random.default_rng(0),
                    show_progressbar=False,
                    return_argmin=False,
                    verbose=False,
                )
            except Exception as error:
                broken.append(error)

        # fmin waits for its tasks; in a thread of its own it leaves Ctrl-C and the time limit to this one.
        thread = threading.Thread(target=search, daemon=True)
        thread.start()
        try:
            yield from self._outcomes(trials, objective, thread, time.monotonic() + seconds)
        finally:
            if thread.is_alive():
                trials._fmin_cancelled = True
                context.cancelAllJobs()
            data.unpersist()
        if broken:
            raise broken[0]

    def _outcomes(
        self, trials: Any, objective: _Objective, thread: threading.Thread, deadline: float
    ) -> Generator[Event, None, None]:
        """Yield each trial as soon as Hyperopt knows that it has ended."""
        from hyperopt.base import JOB_STATE_DONE, JOB_STATE_ERROR

        told: set[int] = set()
        while True:
            alive = thread.is_alive()
            for document in list(trials._dynamic_trials):
                if document["tid"] not in told and document["state"] in (JOB_STATE_DONE, JOB_STATE_ERROR):
                    told.add(document["tid"])
                    yield _outcome(document, objective.asked[document["misc"]["vals"][_NUMBER][0]])
            if not alive or time.monotonic() > deadline:
                return
            if self.session.sparkContext._jsc.sc().isStopped():
                raise InputError("Spark ended while trials were running: start the same command again to go on.")
            time.sleep(_POLL_SECONDS)


def _outcome(document: Any, asked: Asked) -> Outcome:
    """Return the outcome of a trial's document; a task that brought none died with its process."""
    found = document["result"].get("outcome")
    if isinstance(found, Outcome):
        return found
    kind, details = document["misc"].get("error", ("an unknown error", ""))
    last = next((line for line in reversed((details or "").splitlines()) if line.strip()), kind)
    return Outcome(asked.number, "failed", dict(asked.settings), reason=f"Its Spark task failed: {last.strip()}")
