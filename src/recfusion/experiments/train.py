"""Training one model on a data set, and judging it again later on the users that were kept from it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from recfusion.core.errors import InputError, choices
from recfusion.data.interactions import Interactions
from recfusion.data.load import load
from recfusion.data.protocol import Protocol
from recfusion.data.settings import Source, SplitPlan
from recfusion.data.split import Split, split
from recfusion.evaluation.evaluate import Evaluation, evaluate
from recfusion.evaluation.metrics import DEFAULT_METRICS
from recfusion.evaluation.significance import bootstrap_means, summarise
from recfusion.experiments.compare import OnEpoch, fit_model
from recfusion.models.base import Recommender, setting_values
from recfusion.models.bundle import Bundle
from recfusion.models.registry import make_model
from recfusion.training.epoch import Checkpoint, Epoch


def train(
    name: str,
    data: Interactions,
    settings: Mapping[str, Any] | None = None,
    *,
    plan: SplitPlan | None = None,
    seed: int = 0,
    all_users: bool = False,
    metrics: Sequence[str] = DEFAULT_METRICS,
    device: str = "cpu",
    checkpoint: Path | None = None,
    on_epoch: OnEpoch | None = None,
) -> Bundle:
    """Return a fitted model with its names and protocol.

    It learns from the training users of the seeded split and is judged on the validation users; with `all_users` it
    learns from everybody, and nobody is left to judge it on. What is chosen on validation users, open settings and the
    number of epochs, is then chosen on those of the split first. A model that trains keeps its state in the file
    `checkpoint` and goes on from it where it is there.
    """
    plan = plan or SplitPlan()
    protocol = Protocol.of(data, plan, tuple(metrics))
    model = make_model(name, settings)
    asked = setting_values(model)
    set_device(model, device)
    kept = None
    if checkpoint is not None:
        run = json.dumps([protocol.split_id(seed), name, setting_values(model), all_users])
        kept = Checkpoint(checkpoint, run)
    if all_users:
        model = _settled(model, name, split(data, plan, seed=seed), seed, on_epoch)
        seconds = fit_model(model, name, data.matrix, None, seed=seed, checkpoint=kept, on_epoch=on_epoch)
        return Bundle.of(
            *(name, model, data, data.matrix, protocol),
            seed=seed,
            all_users=True,
            fit_seconds=seconds,
            chosen=_chosen(model, asked),
        )
    parts = split(data, plan, seed=seed)
    seconds = fit_model(model, name, parts.train, parts.valid, seed=seed, checkpoint=kept, on_epoch=on_epoch)
    judged = with_intervals(evaluate(model, parts.valid, parts.train, metrics))
    return Bundle.of(
        *(name, model, data, parts.train, protocol),
        seed=seed,
        fit_seconds=seconds,
        metrics={"validation": judged},
        chosen=_chosen(model, asked),
    )


def _chosen(model: Recommender, asked: Mapping[str, Any]) -> list[str]:
    """Return the settings whose values the fit has changed."""
    return [key for key, value in setting_values(model).items() if value != asked[key]]


def _settled(model: Recommender, name: str, parts: Split, seed: int, on_epoch: OnEpoch | None) -> Recommender:
    """Return a fresh copy of `model` with what a fit on a split chooses: open settings and the number of epochs."""
    if not hasattr(model, "max_epochs") and None not in setting_values(model).values():
        return model
    best = 1

    def watch(epoch: Epoch) -> None:
        nonlocal best
        best = epoch.best_epoch
        if on_epoch is not None:
            on_epoch(epoch)

    tried = replace(model)
    fit_model(tried, name, parts.train, parts.valid, seed=seed, on_epoch=watch)
    settled = replace(tried)
    if hasattr(settled, "max_epochs"):
        settled.max_epochs = best
    return settled


def set_device(model: Recommender, device: str) -> None:
    """Tell a model that computes with torch where to; closed forms stay on the CPU."""
    if device not in ("cpu", "cuda"):
        raise choices("device", device, ("cpu", "cuda"))
    if hasattr(model, "device"):
        import torch

        if device == "cuda" and not torch.cuda.is_available():
            raise InputError("Device cuda is asked for, but torch finds no CUDA here: use --device cpu.")
        model.device = device


def evaluate_bundle(bundle: Bundle, source: Source | None = None) -> dict[str, Any]:
    """Return the metrics of a saved model on the test users of its own split, rebuilt from its protocol.

    `source` may say where the same data lies now; other data is refused.
    """
    if bundle.all_users:
        raise InputError(
            "This model was trained on all users, so none is left to judge it on: train without --all-users."
        )
    protocol = bundle.protocol
    data = load((source or protocol.source).model_copy(update={"items": None}), protocol.preparation)
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
