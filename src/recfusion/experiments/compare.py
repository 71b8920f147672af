"""Comparing models: every model on the same users of the same splits, one run at a time."""

import time
from collections.abc import Iterator, Mapping, Sequence
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


@dataclass(frozen=True)
class Run:
    """One model fitted on one split and judged on its test users."""

    protocol: Protocol
    name: str
    seed: int
    settings: dict[str, Any]
    parameters: int
    fit_seconds: float
    test: Evaluation


def fit_model(
    name: str, settings: Mapping[str, Any], train: Csr, valid: Fold | None, *, seed: int
) -> tuple[Recommender, float]:
    """Return a new model fitted on `train`, and the seconds it took; the seed's stream is the model's own."""
    model = make_model(name, settings)
    start = time.perf_counter()
    model.fit(train, valid, rng=stream(seed, f"fit {name}"))
    return model, time.perf_counter() - start


def compare(
    data: Interactions,
    models: Mapping[str, Mapping[str, Any]],
    seeds: Sequence[int],
    *,
    plan: SplitPlan | None = None,
    metrics: Sequence[str] = DEFAULT_METRICS,
) -> Iterator[Run]:
    """Yield a run for each seed and model; `models` maps a name to its settings (empty: the defaults)."""
    plan = plan or SplitPlan()
    protocol = Protocol.of(data, plan, tuple(metrics))
    for seed in seeds:
        parts = split(data, plan, seed=seed)
        for name, settings in models.items():
            model, seconds = fit_model(name, settings, parts.train, parts.valid, seed=seed)
            test = evaluate(model, parts.test, parts.train, metrics)
            yield Run(protocol, name, seed, setting_values(model), model.n_parameters, seconds, test)
