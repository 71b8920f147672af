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
from recfusion.data.split import split
from recfusion.evaluation.evaluate import Evaluation, evaluate
from recfusion.evaluation.metrics import DEFAULT_METRICS
from recfusion.evaluation.significance import bootstrap_means, summarise
from recfusion.experiments.candidate import Candidate
from recfusion.experiments.judge import fit, fit_and_judge
from recfusion.models.base import Recommender
from recfusion.models.settings import open_names
from recfusion.serving.bundle import Bundle
from recfusion.training.epoch import Checkpoint, OnEpoch


def train(
    model: str | Recommender | Candidate,
    data: Interactions,
    settings: Mapping[str, Any] | None = None,
    *,
    plan: SplitPlan | None = None,
    seed: int = 0,
    all_users: bool = False,
    metrics: Sequence[str] = DEFAULT_METRICS,
    device: str = "cpu",
    histories: bool = True,
    checkpoint: Path | None = None,
    on_epoch: OnEpoch | None = None,
) -> Bundle:
    """Return a fitted model with its names and protocol; `model` is a name, a place or an instance.

    It learns from the training users of the seeded split and is judged on the validation users; with `all_users` it
    learns from everybody, and nobody is left to judge it on. What is chosen on validation users, open settings and the
    number of epochs, is then chosen on those of the split first. A model that trains keeps its state in the file
    `checkpoint` and goes on from it where it is there. Without `histories` no row of a user stays in the model.
    """
    candidate = model if isinstance(model, Candidate) else Candidate.of("model", model, settings)
    unfitted = candidate.model if histories else candidate.model.without_histories()
    candidate = replace(candidate, model=replace(unfitted))
    use_device(candidate.model, device)
    plan = plan or SplitPlan()
    protocol = Protocol.of(data, plan, tuple(metrics))
    kept = None
    if checkpoint is not None:
        run = [protocol.split_id(seed), candidate.entry.name, candidate.entry.source, candidate.values, all_users]
        kept = Checkpoint(checkpoint, json.dumps(run))
    if all_users:
        searched: tuple[str, ...] = ()
        seconds = 0.0
        if _is_open(candidate.model):
            parts = split(data, plan, seed=seed)
            tried, _, seconds, _ = fit(candidate, parts.train, parts.valid, seed=seed, on_epoch=on_epoch)
            searched = tuple(tried.chosen())
            candidate = replace(candidate, model=tried.settled())
        fitted, _, more, _ = fit(candidate, data.matrix, None, seed=seed, checkpoint=kept, on_epoch=on_epoch)
        return Bundle.of(
            *(candidate.entry, fitted, data, data.matrix, protocol),
            seed=seed,
            all_users=True,
            fit_seconds=seconds + more,
            searched=searched,
        )
    parts = split(data, plan, seed=seed)
    judged = fit_and_judge(candidate, None, protocol, parts, checkpoint=kept, on_epoch=on_epoch)
    return Bundle.of(
        *(candidate.entry, judged.model, data, parts.train, protocol),
        seed=seed,
        fit_seconds=judged.result.fit_seconds,
        metrics={"validation": with_intervals(judged.validation)},
    )


def _is_open(model: Recommender) -> bool:
    """Return whether a fit chooses something on validation users: open settings, or the number of epochs."""
    kind = type(model)
    trains = kind.settled is not Recommender.settled
    return trains or any(getattr(model, name) is None for name in open_names(kind))


def use_device(model: Recommender, device: str) -> None:
    """Tell a model that computes with torch where to; closed forms stay on the CPU."""
    if device not in ("cpu", "cuda"):
        raise choices("device", device, ("cpu", "cuda"))
    if device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise InputError("Device cuda is asked for, but torch finds no CUDA here: use --device cpu.")
    model.use_device(device)


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
        found[name] = {"mean": summary.mean, "ci95": summary.ci95, "users": len(evaluation.users)}
    return found | {name: {"mean": value} for name, value in evaluation.overall.items()}
