"""Compares recipes on the same test users, and fits the better one on today's data.

A recipe is a model with its settings, its signals and its preparation. The split is made before rare users and items
are dropped, so that all recipes are judged on the same users and held-out items. Each recipe prepares the training part
in its own way. Items that it does not know count as misses. Users with no item that it knows get the most popular ones,
as in the service.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray, IntArray, column_counts
from recfusion.data.column_roles import column_roles, parse_roles
from recfusion.data.features import features_of, with_features
from recfusion.data.interactions import Features, Interactions, RawData, Signal, to_columns
from recfusion.data.merge import decoded
from recfusion.data.options import Preparation, SplitPlan
from recfusion.data.prepare import prepare
from recfusion.data.signals import BINARY, Extra, asked_signals, check_signals_are_read, used_signals, whole_extra
from recfusion.data.split import Fold, NobodyToJudge, Split, split
from recfusion.evaluation.evaluate import Evaluation, evaluate
from recfusion.evaluation.metrics import DEFAULT_METRICS
from recfusion.evaluation.scoring import scores
from recfusion.evaluation.significance import bootstrap_means, summarise
from recfusion.experiments.candidate import Candidate
from recfusion.experiments.fit import check_grades, fit
from recfusion.experiments.list_report import gain_over, prices_of, shown_products
from recfusion.experiments.train import train, use_device, usual_plan, with_intervals
from recfusion.inference.bundle import Bundle
from recfusion.models.abilities import fit_notes, settled, signals_read, without_histories
from recfusion.models.base import Recommender
from recfusion.training.epoch import OnEpoch

METRIC = DEFAULT_METRICS[-1]
LISTED = 10  # places of the lists in answers about products and money


@dataclass(frozen=True)
class Recipe:
    """A model with its settings, what it learns from, and how its data is prepared."""

    candidate: Candidate
    preparation: Preparation = Preparation()
    signals: str = BINARY
    feature_columns: str | None = None

    @classmethod
    def of(cls, bundle: Bundle, today: Preparation) -> "Recipe":
        """Return the recipe of a saved model; which ratings count as liked is decided by the preparation of today."""
        protocol = bundle.protocol
        candidate = Candidate(bundle.name, bundle.entry, settled(bundle.model))
        preparation = protocol.preparation.model_copy(update={"min_rating": today.min_rating})
        return cls(candidate, preparation, asked_signals(protocol.signals.used), protocol.source.feature_columns)

    def prepare(self, raw: RawData) -> Interactions:
        """Return the data as this recipe prepares it."""
        source = raw.source.model_copy(update={"feature_columns": self.feature_columns})
        return with_features(
            prepare(replace(raw, source=source), self.preparation), self.signals, signals_read(self.candidate.model)
        )


@dataclass(frozen=True)
class Judged:
    """A recipe after its evaluation."""

    recipe: Recipe  # with all that the fit chose
    searched: tuple[str, ...]  # settings that the fit chose
    notes: tuple[str, ...]  # sentences about the fit
    test: Evaluation
    users: int  # that it learned from
    items: int  # that it can recommend
    seconds: float  # of the fit
    lists: IntArray  # the first places of each test user; columns of the data with all items
    data: Interactions  # with all users and items
    held_out: Csr  # of the test users

    @cached_property
    def mean(self) -> float:
        """The mean of the deciding metric."""
        return float(self.test.per_user[METRIC].mean())

    def summary(self) -> dict[str, Any]:
        """Return what a report tells about the recipe."""
        found = {"model": self.recipe.candidate.entry.name, "signals": self.recipe.signals, "mean": self.mean}
        found |= {"users": self.users, "items": self.items}
        return found | {"preparation": self.recipe.preparation.model_dump(mode="json")}


@dataclass(frozen=True)
class Outcome:
    """Which recipe won, by how much, and on how many test users; without test users there are no means."""

    decision: Literal["first", "new", "old"]
    metric: str = METRIC
    test_users: int = 0
    new: dict[str, Any] | None = None  # by `Judged.summary`
    old: dict[str, Any] | None = None
    gain: float | None = None  # mean of the new recipe minus that of the old one
    ci95: tuple[float, float] | None = None
    bestsellers: float | None = None  # mean of the same list for everyone
    lists: dict[str, Any] | None = None  # gain over bestsellers, and the products that lists show
    answers: tuple[str, ...] = ()  # the same in sentences

    def sentence(self) -> str:
        """Return the outcome in words."""
        told = "There was no older model: the new one is the first."
        if self.gain is not None:
            interval = f" ({100 * self.ci95[0]:+.2f} to {100 * self.ci95[1]:+.2f})" if self.ci95 else ""
            winner = "the new recipe is used" if self.decision == "new" else "the old recipe is fitted on today's data"
            told = f"{self.metric} of the new recipe {100 * self.gain:+.2f}{interval} against the old one: {winner}."
        used = self.old if self.decision == "old" else self.new
        if used is None or self.bestsellers is None:
            return told
        return f"{told} {self.metric} is {100 * used['mean']:.2f}, that of bestsellers {100 * self.bestsellers:.2f}."


def train_better(
    raw: RawData,
    new: Recipe,
    old: Bundle | None,
    *,
    plan: SplitPlan | None = None,
    seed: int = 0,
    all_users: bool = True,
    device: str = "cpu",
    histories: bool = True,
    checkpoint: Path | None = None,
    on_epoch: OnEpoch | None = None,
) -> tuple[Bundle, Outcome]:
    """Fit the better one of a new recipe and that of an older model on the data of today.

    The old recipe wins if its mean of the deciding metric is higher. A first model for which nobody can be held out is
    fitted without an evaluation.
    """
    given = [new] if old is None else [new, Recipe.of(old, new.preparation)]
    models = [one.candidate.model if histories else without_histories(one.candidate.model) for one in given]
    recipes = [replace(one, candidate=replace(one.candidate, model=m)) for one, m in zip(given, models, strict=True)]
    for model in models:
        use_device(model, device)
    recipe, outcome = recipes[0], Outcome("first")
    if plan is None:
        plan = usual_plan(SplitPlan(), used_signals(new.signals, new.prepare(raw), signals_read(models[0])))
    try:
        popular = replace(new, candidate=Candidate.of("bestsellers", "popularity"), signals=BINARY)
        *judged, sold = judge_recipes(raw, [*recipes, popular], plan, seed=seed, on_epoch=on_epoch)
        winner, outcome, metrics = _decide(judged, sold.mean)
        recipe, outcome = winner.recipe, _with_answers(outcome, winner, sold)
    except NobodyToJudge:
        if old is not None:
            raise
    bundle = train(
        *(recipe.candidate, recipe.prepare(raw)),
        plan=plan,
        seed=seed,
        all_users=all_users,
        device=device,
        signals=recipe.signals,
        checkpoint=checkpoint,
        on_epoch=on_epoch,
    )
    if outcome.new is None:
        return bundle, outcome
    seconds, searched = bundle.fit_seconds + winner.seconds, winner.searched
    found = bundle.metrics | metrics
    return replace(bundle, metrics=found, searched=searched, notes=winner.notes, fit_seconds=seconds), outcome


def judge_recipes(
    raw: RawData, recipes: Sequence[Recipe], plan: SplitPlan, *, seed: int = 0, on_epoch: OnEpoch | None = None
) -> list[Judged]:
    """Fit each recipe on the same training part and evaluate it on the same test users and items."""
    raw = decoded(raw)
    everything = Preparation(min_rating=recipes[0].preparation.min_rating, min_items_per_user=0, min_users_per_item=0)
    data = prepare(raw, everything)
    training = _training_part(raw, data, split(data, plan, seed=seed))
    return [_judge(recipe, training, data, plan, seed, on_epoch) for recipe in recipes]


def _training_part(raw: RawData, data: Interactions, parts: Split) -> RawData:
    """Return the rows of the training users, without the items that are held out from them."""
    users = data.users.gather(parts.train_users.astype(np.uint32))
    rows = raw.rows.filter(pl.col("user").is_in(users.implode()))
    if parts.plan.kind in ("weak", "global", "given"):
        held_out = (data.matrix[parts.train_users] - parts.train).tocoo()
        held_out.eliminate_zeros()
        user, item = (held.astype(np.uint32) for held in held_out.coords)
        pairs = pl.DataFrame({"user": users.gather(user), "item": data.items.gather(item)})
        rows = rows.join(pairs.cast(rows.select("user", "item").schema), on=["user", "item"], how="anti")
    return replace(raw, rows=rows)


def _judge(
    recipe: Recipe, training: RawData, data: Interactions, plan: SplitPlan, seed: int, on_epoch: OnEpoch | None
) -> Judged:
    """Fit a recipe on the training part and evaluate it on the test users of `data`, which has all users and items."""
    threshold = {"min_rating": data.preparation.min_rating}  # that of all rows, if it was guessed
    own = replace(recipe, preparation=recipe.preparation.model_copy(update=threshold)).prepare(training)
    check_signals_are_read(recipe.signals, [(recipe.candidate.entry.name, signals_read(recipe.candidate.model))])
    used = used_signals(recipe.signals, own, signals_read(recipe.candidate.model))
    check_grades(recipe.candidate, own, used)
    parts = split(_described(data, own), plan, seed=seed, used=used)
    known = to_columns(data.items, own.items)
    valid = parts.valid.over(known)
    model, _, seconds, _ = fit(
        *(recipe.candidate, own.matrix, valid if len(valid.users) else None),
        seed=seed,
        extra=whole_extra(own, used),
        on_epoch=on_epoch,
    )
    order = np.concatenate([known, np.setdiff1d(np.arange(data.n_items), known)])
    fold, extra = parts.test, parts.test.extra
    test = Fold(fold.users, fold.history[:, order], fold.held_out[:, order], extra and extra.columns(order))
    counts = column_counts(own.matrix)
    padded = csr_array((own.matrix.data, own.matrix.indices, own.matrix.indptr), shape=(own.n_users, data.n_items))
    known_items, rows = _KnownItems(model, counts.astype(np.float32)), range(len(test.users))
    found = evaluate(known_items, test, padded, DEFAULT_METRICS, shown=rows, length=LISTED)
    lists = np.where(found.lists >= 0, order[found.lists], -1)
    final = replace(recipe, candidate=replace(recipe.candidate, model=settled(model)))
    told = (tuple(model.chosen()), fit_notes(model))
    return Judged(final, *told, found, own.n_users, own.n_items, seconds, lists, data, fold.held_out)


def _described(data: Interactions, own: Interactions) -> Interactions:
    """Return the data with the features of all its items and users, as a recipe makes them from its own."""

    def encoded(features: Features | None, table: pl.DataFrame | None) -> Features | None:
        recipe = None if features is None else features.recipe
        return None if recipe is None or table is None else features_of(recipe, table)

    items, users = encoded(own.item_features, data.item_table), encoded(own.user_features, data.user_table)
    return replace(data, item_features=items, user_features=users)


@dataclass(frozen=True)
class _KnownItems:
    """A model that knows only the first items: the others are never listed, and users without known items get the
    most popular ones."""

    model: Recommender
    counts: FloatArray  # training users of each known item

    @property
    def reads(self) -> frozenset[Signal]:
        return signals_read(self.model)

    def score(self, history: Csr, *, extra: Extra | None = None) -> FloatArray:
        columns = np.arange(len(self.counts))
        known, found = history[:, columns], np.full(history.shape, -np.inf, np.float32)
        found[:, columns] = scores(self.model, known, extra and extra.columns(columns))
        if "user_features" not in self.reads:
            found[np.flatnonzero(np.diff(known.indptr) == 0)[:, None], columns] = self.counts
        return found


def _with_answers(outcome: Outcome, winner: Judged, popular: Judged) -> Outcome:
    """Return the outcome with the gain over bestsellers, in money too, and the products that lists show."""
    items, source = winner.data.item_table, winner.data.source
    roles = column_roles(items, parse_roles(source.roles))
    judged = (winner.test.users, winner.held_out, winner.lists, popular.lists)
    gain, shown = gain_over(*judged, prices_of(items, roles)), shown_products(winner.lists, items, roles)
    answers = (gain.sentence(LISTED), shown.sentence(LISTED))
    return replace(outcome, lists={"k": LISTED, "gain": asdict(gain), "shown": asdict(shown)}, answers=answers)


def _decide(judged: Sequence[Judged], bestsellers: float) -> tuple[Judged, Outcome, dict[str, Any]]:
    """Return the better recipe, the outcome, and the metrics of its model folder."""
    new, old = judged[0], judged[-1]
    outcome = Outcome("first", METRIC, len(new.test.users), new.summary(), bestsellers=bestsellers)
    if len(judged) == 1:
        return new, outcome, {"test": with_intervals(new.test)}
    difference = new.test.per_user[METRIC] - old.test.per_user[METRIC]
    (drawn,) = bootstrap_means(new.test.users, difference[:, None]).T
    gain = summarise([difference], drawn)
    outcome = replace(outcome, decision="new", old=old.summary(), gain=gain.mean, ci95=gain.ci95)
    if gain.mean < 0:
        return old, replace(outcome, decision="old"), {"test": with_intervals(old.test)}
    against = {METRIC: {"mean": gain.mean, "ci95": gain.ci95, "users": len(difference)}}
    return new, outcome, {"test": with_intervals(new.test), "against": against}
