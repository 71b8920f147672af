"""How one trial runs, and the engine that runs trials in processes of this machine."""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from recfusion.core.errors import InputError
from recfusion.core.pool import Job, Pool, RunTask, SendProgress, TaskEvent, available_cores
from recfusion.data.protocol import Protocol
from recfusion.data.split import Split
from recfusion.experiments.candidate import Candidate, PackedJob
from recfusion.experiments.fit import fit_and_judge
from recfusion.models.class_loading import is_importable
from recfusion.models.registry import Entry
from recfusion.training.trial import Trial, is_below_median

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrialRequest:
    """A trial to run."""

    number: int
    settings: Mapping[str, Any]
    medians: tuple[float, ...] = ()  # a trial below the median of an epoch is stopped


@dataclass(frozen=True)
class TrialJob:
    """What all trials of a search share; it contains no test users."""

    entry: Entry
    given: Mapping[str, Any]
    metric: str
    protocol: Protocol
    parts: Split
    threads: int | None = None

    def start(self) -> RunTask:
        def work(request: TrialRequest, report: SendProgress) -> Trial:
            candidate = Candidate("trial", self.entry, self.entry.make({**self.given, **request.settings}))
            judged = fit_and_judge(
                *(candidate, None, self.protocol, self.parts),
                threads=self.threads,
                on_epoch=report,
                stop=lambda epoch: is_below_median(epoch, request.medians),
            )
            result, score = judged.result, judged.result.validation[self.metric]
            if not math.isfinite(score):
                raise InputError(f"Expected a finite {self.metric}, got {score}: try other settings.")
            return Trial(
                settings=dict(request.settings),
                score=score,
                number=request.number,
                status="ok" if judged.stopped is None else "stopped",
                chosen=result.chosen,
                reason=f"below the median of the trials before it in epoch {judged.stopped}" * bool(judged.stopped),
                curve=result.curve,
                seconds=result.fit_seconds,
            )

        return work


# Runs trials. Arguments: the job, the next trial (None at the end), the handler of events, and the time limit.
NextTrial: TypeAlias = Callable[[], TrialRequest | None]
OnTrial: TypeAlias = Callable[[TaskEvent, TrialRequest, object], None]
Engine: TypeAlias = Callable[[TrialJob, NextTrial, OnTrial, float], None]


def local_engine(parallel: int = 1, threads: int | None = None) -> Engine:
    """Return an engine with this many processes on this machine; 0 runs trials in this process.

    Each process has `threads` threads (default: an equal share of the cores).
    """
    if parallel < 0 or (threads is not None and threads < 1):
        raise InputError(f"Expected at least one process and thread, got {parallel} and {threads}: change them.")

    def run(job: TrialJob, next_trial: NextTrial, on_event: OnTrial, seconds: float) -> None:
        kind = job.entry.load()
        workers = parallel if is_importable(kind) else 0
        if workers < parallel:
            log.warning("Trials of %s run in this process: other processes cannot import the class.", kind.__name__)
        share = threads or max(1, available_cores() // max(1, parallel))
        job = replace(job, threads=share)
        packed: Job = PackedJob.of(job, [kind]) if workers else job
        Pool(packed, job, next_trial, on_event, workers, share, seconds=seconds).run()

    return run
