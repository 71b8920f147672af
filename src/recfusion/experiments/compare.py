"""Comparing models: every model on the same users of the same splits, one run at a time."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recfusion.core.arrays import Csr, IntArray
from recfusion.core.rng import stream
from recfusion.data.interactions import Interactions
from recfusion.data.protocol import Protocol
from recfusion.data.settings import SplitPlan
from recfusion.data.split import Fold, Split, split
from recfusion.evaluation.evaluate import Evaluation, evaluate
from recfusion.evaluation.metrics import DEFAULT_METRICS, parse_metric
from recfusion.evaluation.slices import PopularitySlices, popularity_slices
from recfusion.experiments.examples import Example, examples
from recfusion.models.base import Recommender, setting_values
from recfusion.models.registry import make_model
from recfusion.training.epoch import Checkpoint, Epoch

OnEpoch = Callable[[Epoch], None]


@dataclass(frozen=True)
class Curve:
    """A training, epoch by epoch; empty for a closed form."""

    epoch: tuple[int, ...] = ()
    loss: tuple[float | None, ...] = ()  # None where it was no finite number
    metric: tuple[float | None, ...] = ()  # on the validation users
    seconds: tuple[float, ...] = ()

    @classmethod
    def of(cls, epochs: Sequence[Epoch]) -> "Curve":
        """Return the curve of the epochs that a training yielded."""
        return cls(
            epoch=tuple(epoch.number for epoch in epochs),
            loss=tuple(epoch.loss if math.isfinite(epoch.loss) else None for epoch in epochs),
            metric=tuple(epoch.metric for epoch in epochs),
            seconds=tuple(epoch.seconds for epoch in epochs),
        )


@dataclass(frozen=True)
class Run:
    """One model fitted on one split and judged on its test users."""

    protocol: Protocol
    name: str  # what tables call it
    model: str  # its name in the registry
    seed: int
    settings: dict[str, Any]  # as asked for: None where the fit was to choose
    chosen: dict[str, Any]  # those that the fit chose
    parameters: int
    curve: Curve
    fit_seconds: float
    test: Evaluation
    history_size: IntArray  # items that the model was shown of each test user
    slices: PopularitySlices  # of the test users
    validation: dict[str, float]  # each metric's mean over the validation users
    examples: tuple[Example, ...]  # lists of a few test users

    @property
    def epochs(self) -> int:
        """How many epochs the training took; 0 for a closed form."""
        return len(self.curve.epoch)


def fit_model(
    model: Recommender,
    name: str,
    train: Csr,
    valid: Fold | None,
    *,
    seed: int,
    checkpoint: Checkpoint | None = None,
    on_epoch: OnEpoch | None = None,
) -> float:
    """Fit `model` on `train` and return the seconds it took; the seed's stream is that of the registry's `name`."""
    start = time.perf_counter()
    for epoch in model.epochs(train, valid, rng=stream(seed, f"fit {name}"), checkpoint=checkpoint):
        if on_epoch is not None:
            on_epoch(epoch)
    return time.perf_counter() - start


def run_model(
    data: Interactions,
    protocol: Protocol,
    parts: Split,
    model_name: str,
    settings: Mapping[str, Any],
    *,
    name: str | None = None,
    threads: int | None = None,
    on_epoch: OnEpoch | None = None,
) -> Run:
    """Fit a model of the registry on one split of `data`, judge it, and return the run; `name` is its label."""
    model = make_model(model_name, settings)
    asked = setting_values(model)
    epochs: list[Epoch] = []

    def watch(epoch: Epoch) -> None:
        epochs.append(epoch)
        if on_epoch is not None:
            on_epoch(epoch)

    seconds = fit_model(model, model_name, parts.train, parts.valid, seed=parts.seed, on_epoch=watch)
    lengths = sorted({parse_metric(metric)[1] for metric in protocol.metrics})
    return Run(
        protocol=protocol,
        name=name or model_name,
        model=model_name,
        seed=parts.seed,
        settings=asked,
        chosen={key: value for key, value in setting_values(model).items() if value != asked[key]},
        parameters=model.n_parameters,
        curve=Curve.of(epochs),
        fit_seconds=seconds,
        test=evaluate(model, parts.test, parts.train, protocol.metrics, threads=threads),
        history_size=np.diff(parts.test.history.indptr).astype(np.int64),
        slices=popularity_slices(model, parts.test, parts.train, lengths, threads=threads),
        validation=evaluate(model, parts.valid, parts.train, protocol.metrics, threads=threads).mean(),
        examples=examples(model, data, parts.test),
    )


def compare(
    data: Interactions,
    models: Mapping[str, Mapping[str, Any]],
    seeds: Sequence[int],
    *,
    plan: SplitPlan | None = None,
    metrics: Sequence[str] = DEFAULT_METRICS,
    on_epoch: Callable[[str, int, Epoch], None] | None = None,
) -> Iterator[Run]:
    """Yield a run for each seed and model; `models` maps a name to its settings (empty: the defaults).

    `on_epoch` is told the model, the seed and each epoch of the models that have epochs.
    """
    plan = plan or SplitPlan()
    protocol = Protocol.of(data, plan, tuple(metrics))
    for seed in seeds:
        parts = split(data, plan, seed=seed)
        for name, settings in models.items():

            def watch(epoch: Epoch, name: str = name, seed: int = seed) -> None:
                if on_epoch is not None:
                    on_epoch(name, seed, epoch)

            yield run_model(data, protocol, parts, name, settings, on_epoch=watch)
