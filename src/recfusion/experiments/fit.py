"""Fit a candidate on the training users of a split and evaluate it on the validation and test users."""

import json
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from recfusion.core.arrays import Csr, IntArray, column_counts
from recfusion.core.pool import available_cores
from recfusion.core.rng import stream
from recfusion.core.steps import log as steps
from recfusion.data.column_roles import column_roles, parse_roles
from recfusion.data.interactions import Interactions, Signal
from recfusion.data.protocol import Protocol
from recfusion.data.signals import Extra, all_grades
from recfusion.data.split import Fold, Split
from recfusion.evaluation.evaluate import Evaluation
from recfusion.evaluation.list_evaluation import evaluate_metrics
from recfusion.evaluation.scoring import read_by
from recfusion.experiments.candidate import Candidate
from recfusion.experiments.checked_scorer import CheckedScorer
from recfusion.experiments.energy import POWERCAP, EnergyMeter
from recfusion.experiments.result import Example, ExampleItem, Result, package_versions
from recfusion.experiments.rules import fold_lists, rule_maker
from recfusion.inference.bundle import Bundle
from recfusion.models.abilities import check_rating_values, fit_in_epochs, settled, signals_read
from recfusion.models.base import Recommender
from recfusion.models.code_digest import source_commit
from recfusion.models.registry import OURS
from recfusion.models.self_tuning import judged_users
from recfusion.training.epoch import Checkpoint, Curve, Epoch, OnEpoch

Stop = Callable[[Epoch], bool]
# Example lists of a few test users are stored with each result.
USERS = 3
HISTORY = 12  # stored titles of a user's history
LENGTH = 10  # items of a list
_CELLS, _FEWEST = 1 << 31, 1000  # most scores of validation users (about a minute), and fewest users


@dataclass(frozen=True)
class Fitted:
    """A fitted model, its result, and its evaluations."""

    model: Recommender
    result: Result
    validation: Evaluation
    test: Evaluation | None
    stopped: int | None  # the epoch after which `stop` ended the fit, if it did


def fit(
    candidate: Candidate,
    train: Csr,
    valid: Fold | None,
    *,
    seed: int,
    extra: Extra | None = None,
    checkpoint: Checkpoint | None = None,
    on_epoch: OnEpoch | None = None,
    stop: Stop | None = None,
) -> tuple[Recommender, Curve, float, int | None]:
    """Fit a copy of the candidate's model; return it with its curve, its seconds and the epoch in which it stopped.

    `extra` holds the signals of the training users; the model gets those that it reads. The random stream depends on
    the seed and the model's name, and not on labels or other candidates.
    """
    model = replace(candidate.model)
    rng = stream(seed, f"fit {candidate.entry.name}")
    epochs: list[Epoch] = []
    stopped = None
    began = time.perf_counter()
    for epoch in fit_in_epochs(model, train, valid, read_by(model, extra), rng=rng, checkpoint=checkpoint):
        epochs.append(epoch)
        if on_epoch is not None:
            on_epoch(epoch)
        if stop is not None and stop(epoch):
            stopped = epoch.number
            break
    return model, Curve.of(epochs), time.perf_counter() - began, stopped


def check_grades(candidate: Candidate, data: Interactions, used: Collection[Signal]) -> None:
    """Raise if a candidate reads ratings and the data has rating values that it does not support."""
    if "grades" in used and "grades" in signals_read(candidate.model):
        check_rating_values(candidate.model, all_grades(data.grades, data.disliked), "the data")


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
    """Fit a candidate on one split of `data` and evaluate it; without `data`, on the validation users only.

    If validation users times items are very many, a part of these users is evaluated, the same for all candidates.
    With rules in the protocol, the lists of test users are made under them, and the metrics without them are kept too.
    If the split has a `whole` training matrix, the model that is tested is fitted on it, with the chosen settings.
    """
    cpu, meter = time.process_time(), EnergyMeter(POWERCAP)
    with meter:
        model, curve, seconds, stopped = fit(
            *(candidate, parts.train, parts.valid),
            seed=parts.seed,
            extra=parts.extra,
            checkpoint=checkpoint,
            on_epoch=on_epoch,
            stop=stop,
        )
    cpu = time.process_time() - cpu
    steps.info("evaluation")
    most = max(_FEWEST, _CELLS // max(1, parts.train.shape[1]))
    ids = None if data is None else data.items
    judged = judged_users(parts.valid, most)
    valid = evaluate_metrics(CheckedScorer(model), judged, parts.train, protocol.metrics, threads=threads, ids=ids)
    entry, found, chosen, trials = candidate.entry, None, model.chosen(), model.trials_
    tested: dict[str, Any] = {}
    if data is not None:
        if parts.whole is not None:
            final, before = replace(candidate, model=settled(model)), time.process_time()
            with meter:
                model, _, more, _ = fit(final, parts.whole, None, seed=parts.seed, extra=parts.extra, on_epoch=on_epoch)
            seconds += more
            cpu += time.process_time() - before
        rows = example_rows(parts.test)
        asked: dict[str, Any] = {"threads": threads, "shown": rows, "length": LENGTH, "ids": ids}
        found = evaluate_metrics(CheckedScorer(model), parts.test, parts.train, protocol.metrics, **asked)
        plain = found.per_user if protocol.rules else {}
        if protocol.rules:
            bundle = Bundle.of(entry, model, data, parts.train, protocol, seed=parts.seed)
            asked["make_lists"] = fold_lists(rule_maker(bundle, protocol.rules))
            found = evaluate_metrics(CheckedScorer(model), parts.test, parts.train, protocol.metrics, **asked)
        tested = {
            "score_seconds": found.seconds,
            "overall": found.overall,
            "slices": found.slices,
            "users": found.users,
            "history_size": np.diff(parts.test.history.indptr),
            "test": found.per_user,
            "plain": plain,
            "examples": examples(found.lists, rows, data, parts.test, user_ids=user_ids),
        }
    result = Result(
        label=candidate.label,
        model=entry.name,
        title=entry.title,
        place="" if entry.origin == OURS else entry.place,
        source=entry.source,
        code=candidate.code,
        commit=source_commit(),
        seed=parts.seed,
        settings=candidate.values,
        chosen=json.loads(json.dumps(chosen)),
        parameters=model.n_parameters,
        trials=trials,
        curve=curve,
        fit_seconds=seconds,
        cpu_seconds=cpu,
        energy_joules=meter.joules,
        threads=threads or available_cores(),
        validation=valid.mean(),
        **tested,
        versions=package_versions(),
        finished=datetime.now(UTC),
        protocol=protocol,
    )
    return Fitted(model, result, valid, found, stopped)


def example_rows(fold: Fold) -> list[int]:
    """Return equally spaced rows of a fold, so that the choice favours no model."""
    n_users = len(fold.users)
    return [int(row) for row in np.unique(np.linspace(0, n_users - 1, min(USERS, n_users)).astype(np.int64))]


def examples(
    lists: IntArray, rows: Sequence[int], data: Interactions, fold: Fold, *, user_ids: bool = False
) -> tuple[Example, ...]:
    """Return an example for each of `rows` with its recommended list."""
    names, counts, found = item_names(data), column_counts(data.matrix), []
    for place, row in enumerate(rows):
        items = fold.history[[row]].indices
        known = items[np.argsort(counts[items], kind="stable")]  # the rarest first: they say most about a user
        wanted = set(fold.held_out[[row]].indices.tolist())
        found.append(
            Example(
                number=place + 1,
                history=tuple(names[item] for item in known[:HISTORY]),
                more=max(0, len(known) - HISTORY),
                places=tuple(ExampleItem(names[item], int(item) in wanted) for item in lists[place] if item >= 0),
                user=str(data.users[int(fold.users[row])]) if user_ids else None,
            )
        )
    return tuple(found)


def item_names(data: Interactions) -> list[str]:
    """Return the title or name of each item, or its id if it has none."""
    ids = [str(item) for item in data.items]
    column = column_roles(data.item_table, parse_roles(data.source.roles)).get("title")
    if column is None:
        return ids
    return [str(title or name) for title, name in zip(data.item_table[column].to_list(), ids, strict=True)]
