"""The one path from a candidate to a result: fitted on the training users of a split, judged on the others."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from recfusion.core.arrays import Csr
from recfusion.core.pool import available_cores
from recfusion.core.rng import stream
from recfusion.data.interactions import Interactions
from recfusion.data.protocol import Protocol
from recfusion.data.split import Fold, Split
from recfusion.evaluation.evaluate import Evaluation, evaluate
from recfusion.experiments.candidate import Candidate
from recfusion.experiments.examples import LENGTH, example_rows, examples
from recfusion.experiments.result import Result, now, package_versions
from recfusion.models.base import Recommender
from recfusion.models.registry import OURS
from recfusion.training.epoch import Checkpoint, Curve, Epoch, OnEpoch

Stop = Callable[[Epoch], bool]


@dataclass(frozen=True)
class Fitted:
    """A fitted model, its result, and how it did on the users that were kept from it."""

    model: Recommender
    result: Result
    validation: Evaluation
    test: Evaluation | None
    stopped: int | None  # the epoch after which `stop` ended the fit


def fit(
    candidate: Candidate,
    train: Csr,
    valid: Fold | None,
    *,
    seed: int,
    checkpoint: Checkpoint | None = None,
    on_epoch: OnEpoch | None = None,
    stop: Stop | None = None,
) -> tuple[Recommender, Curve, float, int | None]:
    """Return a fresh copy of the candidate's model fitted on `train`, its curve, its seconds, and where it stopped.

    The seed's stream is that of the model's name, so that a label or another candidate shifts no draws.
    """
    model = replace(candidate.model)
    rng = stream(seed, f"fit {candidate.entry.name}")
    epochs: list[Epoch] = []
    stopped = None
    began = time.perf_counter()
    for epoch in model.epochs(train, valid, rng=rng, checkpoint=checkpoint):
        epochs.append(epoch)
        if on_epoch is not None:
            on_epoch(epoch)
        if stop is not None and stop(epoch):
            stopped = epoch.number
            break
    return model, Curve.of(epochs), time.perf_counter() - began, stopped


def fit_and_judge(
    candidate: Candidate,
    data: Interactions | None,
    protocol: Protocol,
    parts: Split,
    *,
    threads: int | None = None,
    user_ids: bool = False,
    checkpoint: Checkpoint | None = None,
    on_epoch: OnEpoch | None = None,
    stop: Stop | None = None,
) -> Fitted:
    """Fit a candidate on one split of `data` and judge it; without `data`, on the validation users alone."""
    model, curve, seconds, stopped = fit(
        *(candidate, parts.train, parts.valid), seed=parts.seed, checkpoint=checkpoint, on_epoch=on_epoch, stop=stop
    )
    valid = evaluate(model, parts.valid, parts.train, protocol.metrics, threads=threads)
    entry = candidate.entry
    result = Result(
        label=candidate.label,
        model=entry.name,
        title=entry.title,
        place="" if entry.origin == OURS else entry.place,
        source=entry.source,
        seed=parts.seed,
        settings=candidate.values,
        chosen=json.loads(json.dumps(model.chosen())),
        parameters=model.n_parameters,
        trials=model.trials_,
        curve=curve,
        fit_seconds=seconds,
        threads=threads or available_cores(),
        validation=valid.mean(),
        versions=package_versions(),
        finished=now(),
        protocol=protocol,
    )
    found = None
    if data is not None:
        rows = example_rows(parts.test)
        found = evaluate(model, parts.test, parts.train, protocol.metrics, threads=threads, shown=rows, length=LENGTH)
        shown = examples(found.lists, rows, data, parts.test, user_ids=user_ids)
        result = result.judged(found, np.diff(parts.test.history.indptr), shown)
    return Fitted(model, result, valid, found, stopped)
