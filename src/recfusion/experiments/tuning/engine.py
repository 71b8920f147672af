"""What a trial is to those who run it, and the engine that runs trials in processes of this machine."""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from recfusion.core.errors import InputError
from recfusion.core.pool import Job, Kind, Pool, Tell, Work, available_cores
from recfusion.data.protocol import Protocol
from recfusion.data.split import Split
from recfusion.experiments.candidate import Candidate, Packed
from recfusion.experiments.fit import fit_and_judge
from recfusion.models.class_loading import is_importable
from recfusion.models.registry import Entry
from recfusion.training.trial import Trial, is_below_median

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Asked:
    """A trial that is to be run."""

    number: int
    settings: Mapping[str, Any]
    medians: tuple[float, ...] = ()  # below which a trial ends, by epoch from the first


@dataclass(frozen=True)
class TrialJob:
    """What all trials of a search share. The test users are no part of it."""

    entry: Entry
    given: Mapping[str, Any]
    metric: str
    protocol: Protocol
    parts: Split
    threads: int | None = None

    def start(self) -> Work:
        def work(asked: Asked, tell: Tell) -> Trial:
            candidate = Candidate("trial", self.entry, self.entry.make({**self.given, **asked.settings}))
            judged = fit_and_judge(
                *(candidate, None, self.protocol, self.parts),
                threads=self.threads,
                on_epoch=tell,
                stop=lambda epoch: is_below_median(epoch, asked.medians),
            )
            result, score = judged.result, judged.result.validation[self.metric]
            if not math.isfinite(score):
                raise InputError(f"The model's {self.metric} is {score}.")
            return Trial(
                settings=dict(asked.settings),
                score=score,
                number=asked.number,
                status="ok" if judged.stopped is None else "stopped",
                chosen=result.chosen,
                reason=f"below the median of the trials before it in epoch {judged.stopped}" * bool(judged.stopped),
                curve=result.curve,
                seconds=result.fit_seconds,
            )

        return work


# Runs trials: the job, the next trial (None at the end), what to tell of each, how many there are, and for how long.
NextTrial: TypeAlias = Callable[[], Asked | None]
OnTrial: TypeAlias = Callable[[Kind, Asked, object], None]
Engine: TypeAlias = Callable[[TrialJob, NextTrial, OnTrial, float], None]


def local_engine(parallel: int = 1, threads: int | None = None) -> Engine:
    """Return the engine of so many processes of this machine; 0: trials run in this process.

    Each process has `threads` threads; by default the cores are divided among them.
    """
    if parallel < 0 or (threads is not None and threads < 1):
        raise InputError(f"Expected at least one process and thread, got {parallel} and {threads}.")

    def run(job: TrialJob, next_trial: NextTrial, on_event: OnTrial, seconds: float) -> None:
        kind = job.entry.load()
        workers = parallel if is_importable(kind) else 0
        if workers < parallel:
            log.warning("Trials of %s run in this process: others cannot import the class.", kind.__name__)
        share = threads or max(1, available_cores() // max(1, parallel))
        job = replace(job, threads=share)
        packed: Job = Packed.of(job, [kind]) if workers else job
        Pool(packed, job, next_trial, on_event, workers, share, seconds=seconds).run()

    return run
