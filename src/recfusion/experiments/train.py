"""Train one model on a data set, and evaluate a saved model on the test users of its split."""

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from recfusion.core.errors import InputError, choices
from recfusion.core.steps import log as steps
from recfusion.data.features import features_of, with_features
from recfusion.data.interactions import Interactions, Signal
from recfusion.data.load import load
from recfusion.data.options import Source, SplitPlan
from recfusion.data.protocol import Protocol, check_same_data
from recfusion.data.signals import AUTO, check_signals_are_read, used_signals, whole_extra
from recfusion.data.split import NobodyToJudge, Split, split
from recfusion.evaluation.evaluate import Evaluation
from recfusion.evaluation.list_evaluation import evaluate_metrics
from recfusion.evaluation.metrics import DEFAULT_METRICS
from recfusion.evaluation.scoring import read_by
from recfusion.evaluation.significance import bootstrap_means, summarise
from recfusion.experiments.candidate import Candidate
from recfusion.experiments.control_costs import control_costs
from recfusion.experiments.fit import check_grades, fit, fit_and_judge
from recfusion.experiments.reorders import reorder_rates
from recfusion.inference.bundle import Bundle
from recfusion.inference.new_items import with_new, without_new
from recfusion.inference.training_rows import TrainingRows
from recfusion.inference.update_rows import described_items
from recfusion.models import abilities
from recfusion.models.abilities import fit_notes, needs_validation, settled, signals_read, without_histories
from recfusion.models.base import Recommender, Shape
from recfusion.models.thinning.parts import continued
from recfusion.models.updating import updater_of
from recfusion.training.epoch import Checkpoint, OnEpoch

log = logging.getLogger(__name__)


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
    signals: str = AUTO,
    judge: bool = False,
    updatable: bool = False,
    costs: bool = False,
    checkpoint: Path | None = None,
    on_epoch: OnEpoch | None = None,
) -> Bundle:
    """Fit a model and return it as a bundle with item names and protocol; `model` is a name, a place or an instance.

    It is fitted on the training users of the seeded split and evaluated on the validation users. With `all_users` it is
    fitted on all users; the number of epochs and the weights of a mixture are then chosen on the split first, or stay
    at their defaults if no split can be made. A model that trains in epochs saves its state in the file `checkpoint`
    and resumes from it. Without `histories` the model holds no user's history.

    `signals` names what it learns from besides the interactions: "binary" (nothing), some of "graded,timed,features",
    or "auto", all that the data has and the model reads. Without a `plan`, users are held out in
    time if timestamps are used (see `usual_plan`).

    Items of the data's item file that no user has, or too few, are placed by their features if the model can do that.

    With `judge` the settings are also evaluated on the test users of the split, before the fit on all users. With
    `costs` the re-ranking controls are measured on the validation users, for the curves of the page's sliders.
    An `updatable` model keeps the rows of its training users, so that `update` can add, change and forget users.
    """
    candidate = model if isinstance(model, Candidate) else Candidate.of("model", model, settings)
    unfitted = candidate.model if histories else without_histories(candidate.model)
    candidate = replace(candidate, model=replace(unfitted))
    use_device(candidate.model, device)
    if updatable:
        check_updatable(candidate.model, candidate.entry.name)
    data = with_features(data, signals, signals_read(candidate.model))
    check_signals_are_read(signals, [(candidate.entry.name, signals_read(candidate.model))])
    used = used_signals(signals, data, signals_read(candidate.model))
    plan = usual_plan(SplitPlan(), used) if plan is None else plan
    check_grades(candidate, data, used)
    protocol = Protocol.of(data, plan, tuple(metrics), used)
    kept = None
    if checkpoint is not None:
        run = [protocol.split_id(seed), candidate.entry.name, candidate.entry.source, candidate.values, all_users]
        kept = Checkpoint(checkpoint, json.dumps(run))
    parts: Split | None = None
    if not all_users or judge or needs_validation(candidate.model, Shape.of(data.matrix)):
        try:
            parts = split(data, plan, seed=seed, used=used)
        except NobodyToJudge:
            if not all_users or judge:
                raise
            told = "No user of '%s' can be held out for validation: epochs and mixture weights are the defaults."
            log.warning(told, data.name)
    found: dict[str, Any] = {}
    searched: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    final, seconds = candidate, 0.0
    if parts is not None:
        first = None if all_users else kept  # the checkpoint belongs to the fit that is saved
        judged = fit_and_judge(candidate, data if judge else None, protocol, parts, checkpoint=first, on_epoch=on_epoch)
        fitted, matrix, seconds = judged.model, parts.train, judged.result.fit_seconds
        notes = fit_notes(fitted)
        if not all_users:
            found["validation"] = with_intervals(judged.validation)
        if judged.test is not None:
            found["test"] = with_intervals(judged.test)
        if all_users:
            final, searched = replace(candidate, model=continued(judged.model)), tuple(judged.model.chosen())
    if all_users:
        everything, matrix = whole_extra(data, used), data.matrix
        steps.info("fit on all users")
        fitted, _, more, _ = fit(final, matrix, None, seed=seed, extra=everything, checkpoint=kept, on_epoch=on_epoch)
        seconds += more
    rates = None
    if data.earlier is not None:
        with suppress(NobodyToJudge):  # a model that was fitted on all users knows what they buy next
            held = split(data, plan, seed=seed, used=used) if parts is None else parts
            own = replace(candidate, model=settled(fitted))
            part = fit(own, held.train, None, seed=seed, extra=held.extra)[0] if parts is None else judged.model
            rates = reorder_rates(part, data, used, np.setdiff1d(np.arange(data.n_users), held.train_users))
    if rates is not None:
        notes += (f"Items are usually bought again after {rates.intervals.mean():.0f} days (--again allowed).",)
    if costs and parts is not None:
        steps.info("cost of the re-ranking controls")
        part_of_it = Bundle.of(candidate.entry, judged.model, data, parts.train, protocol, seed=seed)
        found |= control_costs(part_of_it, parts.valid)
    bundle = Bundle.of(
        *(candidate.entry, fitted, data, matrix, protocol),
        seed=seed,
        all_users=all_users,
        fit_seconds=seconds,
        metrics=found,
        searched=searched,
        notes=notes,
        rates=rates,
    )
    if updatable:
        users = np.arange(data.n_users) if all_users or parts is None else parts.train_users
        extra = everything if all_users else None if parts is None else parts.extra
        ids = data.users[users].cast(pl.String)
        bundle = replace(bundle, training=TrainingRows.of(fitted, ids, matrix, extra))
    return bundle if data.all_items is None else with_new(bundle, data.all_items)


def check_updatable(model: Recommender, name: str) -> None:
    """Raise unless fitted models of this kind can be updated."""
    if updater_of(model) is None:
        raise InputError(
            f"Expected a model that can be updated, got {name}: choose thinning-linear or thinning-pairs, or train "
            "without --updatable.",
            "updatable",
        )


def usual_plan(plan: SplitPlan, used: Collection[Signal]) -> SplitPlan:
    """Return the plan with the usual kind of split: with timestamps the last part of a history is predicted."""
    return plan.model_copy(update={"kind": "temporal" if "times" in used else "strong"})


def planned_shape(model: Recommender, data: Interactions, signals: str = AUTO) -> Shape:
    """Return the size of a fit on all users, with the signals that the model reads."""
    data = with_features(data, signals, signals_read(model))
    extra = whole_extra(data, used_signals(signals, data, signals_read(model)))
    return Shape.of(data.matrix, read_by(model, extra))


def use_device(model: Recommender, device: str) -> None:
    """Set the device of a model that computes with torch; closed forms stay on the CPU."""
    if device not in ("cpu", "cuda"):
        raise choices("device", device, ("cpu", "cuda"), "device")
    if device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise InputError("Torch finds no CUDA device on this machine: use --device cpu.", "device")
    abilities.use_device(model, device)


def evaluate_bundle(bundle: Bundle, source: Source | None = None) -> dict[str, Any]:
    """Return the metrics of a saved model on the test users of its split, which is rebuilt from its protocol.

    `source` may name the new place of the same data; other data is refused.
    """
    parts = rebuild_split(bundle, source)
    model = without_new(bundle).model
    return with_intervals(evaluate_metrics(model, parts.test, parts.train, bundle.protocol.metrics))


def rebuild_split(bundle: Bundle, source: Source | None = None) -> Split:
    """Return the split of a saved model, rebuilt from its protocol; see `evaluate_bundle`."""
    if bundle.all_users:
        raise InputError(
            "Expected a model with test users, got one trained on all users: train without --all-users. The report of "
            "a night has the answers about its model."
        )
    if bundle.updates:
        raise InputError("Expected a model as it was trained, got one that was updated since: evaluate that folder.")
    protocol = bundle.protocol
    asked, used = source or protocol.source, protocol.signals.used
    if "user_features" not in used:  # a file that is not read may be gone
        asked = asked.model_copy(update={"users_file": None})
    elif asked.users_file is None:
        raise InputError("Expected the file of users, whose features the model reads: add --users-file.", "users_file")
    data = load(asked.model_copy(update={"items": None}), protocol.preparation)
    if bundle.recipes.items is not None:  # the folder holds the item table; items added later come last
        described = described_items(bundle.items.head(protocol.items), bundle.recipes.items)
        data = replace(data, item_features=features_of(bundle.recipes.items, described))
    if bundle.recipes.users is not None and data.user_table is not None:
        data = replace(data, user_features=features_of(bundle.recipes.users, data.user_table))
    check_same_data(protocol, data, "that the model was trained on")
    if data.digest(used) != protocol.signals.digest:
        users = " and --users-file" if "user_features" in used else ""
        raise InputError(
            f"Expected the {' and '.join(used)} that the model was trained on, got other ones in '{data.name}': name "
            f"the original with --data{users}.",
            "data",
        )
    return split(data, protocol.plan, seed=bundle.seed, used=used)


def with_intervals(evaluation: Evaluation) -> dict[str, Any]:
    """Return mean and interval of each metric, as in metrics.json."""
    names = list(evaluation.per_user)
    drawn = bootstrap_means(evaluation.users, np.stack([evaluation.per_user[name] for name in names], axis=1))
    found: dict[str, Any] = {}
    for name, column in zip(names, drawn.T, strict=True):
        summary = summarise([evaluation.per_user[name]], column)
        found[name] = {"mean": summary.mean, "ci95": summary.ci95, "users": len(evaluation.users)}
    return found | {name: {"mean": value} for name, value in evaluation.overall.items()}
