"""Comparing models: every model on the same users of the same splits, one run at a time."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recfusion.core.arrays import Csr
from recfusion.core.rng import stream
from recfusion.data.interactions import Interactions
from recfusion.data.protocol import Protocol
from recfusion.data.settings import SplitPlan
from recfusion.data.split import Fold, split
from recfusion.evaluation.evaluate import Evaluation, evaluate
from recfusion.evaluation.metrics import DEFAULT_METRICS
from recfusion.models.base import Recommender, setting_values
from recfusion.models.registry import make_model
from recfusion.training.epoch import Checkpoint, Epoch

OnEpoch = Callable[[Epoch], None]


@dataclass(frozen=True)
class Run:
    """One model fitted on one split and judged on its test users."""

    protocol: Protocol
    name: str
    seed: int
    settings: dict[str, Any]
    parameters: int
    epochs: int  # 0 for a closed form
    fit_seconds: float
    test: Evaluation


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
    """Fit `model` on `train` and return the seconds it took; the seed's stream is the model's own."""
    start = time.perf_counter()
    for epoch in model.epochs(train, valid, rng=stream(seed, f"fit {name}"), checkpoint=checkpoint):
        if on_epoch is not None:
            on_epoch(epoch)
    return time.perf_counter() - start


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
            model = make_model(name, settings)
            epochs: list[Epoch] = []

            def watch(epoch: Epoch, name: str = name, seed: int = seed, epochs: list[Epoch] = epochs) -> None:
                epochs.append(epoch)
                if on_epoch is not None:
                    on_epoch(name, seed, epoch)

            seconds = fit_model(model, name, parts.train, parts.valid, seed=seed, on_epoch=watch)
            test = evaluate(model, parts.test, parts.train, metrics)
            yield Run(protocol, name, seed, setting_values(model), model.n_parameters, len(epochs), seconds, test)
