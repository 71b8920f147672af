"""Training one model on a data set, and judging it again later on the users that were kept from it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.data.load import load
from recfusion.data.protocol import Protocol
from recfusion.data.settings import Source, SplitPlan
from recfusion.data.split import split
from recfusion.evaluation.evaluate import Evaluation, evaluate
from recfusion.evaluation.metrics import DEFAULT_METRICS
from recfusion.evaluation.significance import bootstrap_means, summarise
from recfusion.experiments.compare import fit_model
from recfusion.models.bundle import Bundle


def train(
    name: str,
    data: Interactions,
    settings: Mapping[str, Any] | None = None,
    *,
    plan: SplitPlan | None = None,
    seed: int = 0,
    all_users: bool = False,
    metrics: Sequence[str] = DEFAULT_METRICS,
) -> Bundle:
    """Return a fitted model with its names and protocol.

    It learns from the training users of the seeded split and is judged on the validation users; with `all_users` it
    learns from everybody, and nobody is left to judge it on.
    """
    plan = plan or SplitPlan()
    protocol = Protocol.of(data, plan, tuple(metrics))
    if all_users:
        model, seconds = fit_model(name, settings or {}, data.matrix, None, seed=seed)
        return Bundle.of(name, model, data, data.matrix, protocol, seed=seed, all_users=True, fit_seconds=seconds)
    parts = split(data, plan, seed=seed)
    model, seconds = fit_model(name, settings or {}, parts.train, parts.valid, seed=seed)
    judged = with_intervals(evaluate(model, parts.valid, parts.train, metrics))
    return Bundle.of(
        name, model, data, parts.train, protocol, seed=seed, fit_seconds=seconds, metrics={"validation": judged}
    )


def evaluate_bundle(bundle: Bundle, source: Source | None = None) -> dict[str, Any]:
    """Return the metrics of a saved model on the test users of its own split, rebuilt from its protocol.

    `source` may say where the same data lies now; other data is refused.
    """
    if bundle.all_users:
        raise InputError(
            "This model was trained on all users, so none is left to judge it on: train without --all-users."
        )
    protocol = bundle.protocol
    data = load(source or protocol.source, protocol.preparation)
    if data.fingerprint != protocol.fingerprint:
        raise InputError(
            f"Expected the data that the model was trained on ({protocol.name}: {protocol.users:,} users, "
            f"{protocol.items:,} items, {protocol.interactions:,} interactions), got other data ({data.name}: "
            f"{data.n_users:,}, {data.n_items:,}, {data.n_interactions:,}): name the original with --data."
        )
    parts = split(data, protocol.plan, seed=bundle.seed)
    return with_intervals(evaluate(bundle.model, parts.test, parts.train, protocol.metrics))


def with_intervals(evaluation: Evaluation) -> dict[str, Any]:
    """Return mean and interval of each metric, as they go into metrics.json."""
    names = list(evaluation.per_user)
    drawn = bootstrap_means(evaluation.users, np.stack([evaluation.per_user[name] for name in names], axis=1))
    found: dict[str, Any] = {}
    for name, column in zip(names, drawn.T, strict=True):
        summary = summarise([evaluation.per_user[name]], column)
        found[name] = {"mean": summary.mean, "ci95": list(summary.ci95), "users": len(evaluation.users)}
    return found | {name: {"mean": value} for name, value in evaluation.overall.items()}
