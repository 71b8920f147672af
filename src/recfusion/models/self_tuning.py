"""Self-tuning: a closed form chooses the settings that were left open by a small search.

Trials are judged by training users, each left out of the fit in turn where a closed form allows that, and by the
validation users where there are any.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from recfusion.core.arrays import Csr, FloatArray, column_counts
from recfusion.data.split import Fold
from recfusion.evaluation.evaluate import map_batches
from recfusion.evaluation.metrics import MAIN_METRIC, Values, judge, per_user
from recfusion.evaluation.topk import top_k
from recfusion.models.base import Recommender
from recfusion.models.leave_one_out import SHOWN, left_out, nobody, share_shown
from recfusion.models.settings import search_space, setting, setting_values, settings_of
from recfusion.training.search_space import search

log = logging.getLogger(__name__)
LEAST_USERS = 20  # judged users below which a search would choose by chance
DOUBT = 2.0  # standard errors by which other settings must be better than the defaults before a search is worth it
MOST_ITEMS = 6000  # items beyond which a trial on all of them would take minutes
MOST_USERS = 1000  # judged users beyond which more would cost time and change nothing
POWERS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)  # of popularity, by which scores are divided: they need no fit of their own
_RAREST = 1e-3  # popularity, in units of the mean, below which an item counts as if it had that much


@dataclass(frozen=True)
class Judged:
    """Settings, and what they came to for each judged user."""

    settings: Mapping[str, Any]
    values: Values  # (users,)


@dataclass(frozen=True)
class Jury:
    """By whom settings are judged: training users, each left out of the fit in turn, and validation users."""

    left_out: Fold  # `users` are rows of the training matrix
    valid: Fold

    @property
    def n_users(self) -> int:
        return self.left_out.history.shape[0] + self.valid.history.shape[0]

    def judge(self, of_valid: "Variants", of_left_out: "Variants") -> Values:
        """Return NDCG@100 (variants, users) of the users left out, then of the validation users."""
        both = ((of_left_out, self.left_out), (of_valid, self.valid))
        return np.concatenate([ndcg_of(scores, fold) for scores, fold in both if len(fold.users)], axis=1)


Variants = Callable[[slice], Iterable[FloatArray]]  # rows of a fold -> their scores (users, items) by each variant
Objective = Callable[[Mapping[str, Any], Jury], Sequence[Judged]]  # settings, users -> the variants that are free


def cannot_choose(count: int, chosen: str, kind: str = "") -> str:
    """Return the beginning of a warning that so many users, maybe of a `kind`, are too few to choose something by."""
    if not count:
        return f"No user has 2 items, one to show and one to find, so that nobody can choose {chosen}"
    users = f"{count} {kind} user{'s are' if count > 1 else ' is'}".replace("  ", " ")
    return f"{users} too few to choose {chosen} by (at least {LEAST_USERS} are needed)"


def trials_setting(default: int = 20) -> Any:
    """Declare how many trials a self-tuning model's search has."""
    return setting(default, "trials of the search for the settings left open; 0: none", at_least=0, at_most=10_000)


def fewer_trials(model: Recommender, most: int) -> Recommender:
    """Return a model whose own search, where it has one, has no more than `most` trials."""
    own = setting_values(model).get("tune_trials")
    fewer: dict[str, Any] = {"tune_trials": min(most, own or 0)}
    return model if own is None else replace(model, **fewer)


def open_settings(model: Recommender) -> dict[str, Any]:
    """Return the settings of `model` that are still to be chosen, with what each is without a search."""
    declared = settings_of(type(model))
    return {name: d.start for name, d in declared.items() if d.start is not None and getattr(model, name) is None}


def searches(model: Recommender, unused: Collection[str] = ()) -> bool:
    """Return whether a fit has settings to search, but for `unused` ones."""
    trials = setting_values(model).get("tune_trials", 0)
    return trials > 0 and bool(open_settings(model).keys() - set(unused))


def jury(train: Csr, valid: Fold | None, rng: np.random.Generator, most: int = MOST_USERS) -> Jury:
    """Return who judges trials: the validation users, and training users up to `most` in all; 0: none of these.

    Of a training user as much is shown as of the validation users.
    """
    if valid is None:
        return Jury(left_out(train, most, rng, SHOWN), nobody(train))
    seen = judged_users(valid)
    return Jury(left_out(train, max(0, most - len(seen.users)), rng, share_shown(seen)), seen)


def settle(
    model: Recommender,
    objective: Objective,
    jury: Jury | None,
    rng: np.random.Generator,
    *,
    searched: Sequence[str],
    free: Sequence[str] = (),
    trials: int,
    first: Sequence[Mapping[str, Any]] = (),
    starts: Mapping[str, Any] | None = None,
    probes: int = 0,
) -> None:
    """Search those open settings of `model` that are `searched`, then set the values of these and the `free` ones.

    The value of a setting is in the field of its name with an underscore: what the search chose, or what was given.
    The objective gets all that are searched; its variants try the free ones, which stay at their starts otherwise.
    The search begins with the starts, those declared or `starts`, then with each of `first` laid over them. With
    `probes`, it ends after so many trials unless one of them is better than the starts by `DOUBT` standard errors:
    defaults that fit are not worth a search. With nobody to judge trials by, or too few, or such as find all trials
    equally good, the starts are taken.
    """
    begun = open_settings(model)
    begun |= {name: value for name, value in (starts or {}).items() if name in begun}
    space = search_space(type(model), begun.keys() & set(searched))
    given = {name: getattr(model, name) for name in searched if name not in begun}
    wanted = ", ".join(sorted(begun.keys() & {*searched, *free}))
    chosen = begun
    if trials and wanted and jury is not None:
        tried: list[Judged] = []

        def score(values: Mapping[str, Any]) -> float:
            variants = objective({**given, **values}, jury)
            tried.extend(Judged({**begun, **values, **variant.settings}, variant.values) for variant in variants)
            return max(float(variant.values.mean()) for variant in variants)

        if jury.n_users >= LEAST_USERS:
            begin = {name: begun[name] for name in space}
            laid = [{**begin, **{k: v for k, v in point.items() if k in space}} for point in first]
            points = [begin, *(point for point in laid if point != begin)]  # a trial twice would be one lost
            count, seed = trials if space else 1, int(rng.integers(2**31))
            done = search(score, space, trials=min(count, probes) if probes else count, seed=seed, first=points)
            if 0 < probes < count and _in_doubt(tried, begin):
                done = search(score, space, trials=count, seed=seed, first=points, done=done)
            chosen = choose(tried, begun)
            log.info("%d trials chose %s", len(done), chosen)
            model.trials_ += len(done)
            if len(tried) > 1 and all(np.array_equal(one.values, tried[0].values) for one in tried):
                told = f"The {jury.n_users} users who judge settings find all of them equally good"
                log.warning(model.named(f"{told}: the defaults of {wanted} are used."))
        else:
            log.warning(model.named(f"{cannot_choose(jury.n_users, wanted)}: the defaults are used."))
    for name in (*searched, *free):
        setattr(model, f"{name}_", chosen.get(name, getattr(model, name)))


def _in_doubt(judged: Sequence[Judged], starts: Mapping[str, Any]) -> bool:
    """Return whether any settings are better than the starts, at their best free ones, by more than noise."""
    at_starts = [one for one in judged if all(one.settings[name] == value for name, value in starts.items())]
    usual = max(at_starts, key=lambda one: float(one.values.mean()))
    gains = [one.values - usual.values for one in judged]
    return any(gain.mean() > DOUBT * gain.std() / np.sqrt(len(gain)) for gain in gains)


def choose(judged: Sequence[Judged], starts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with the highest mean, or the starts where those are not better by a standard error.

    The best of many trials is partly the luckiest one: a gain within the noise of the users is no reason to leave
    settings that have proved themselves elsewhere.
    """
    best = max(judged, key=lambda one: float(one.values.mean()))
    usual = next(one for one in judged if one.settings == starts)
    gain = best.values - usual.values
    if gain.mean() <= gain.std() / np.sqrt(len(gain)):
        best = usual
    return dict(best.settings)


def judged_users(valid: Fold, most: int = MOST_USERS) -> Fold:
    """Return the validation users that a search looks at: all, or an even choice of the most that it needs."""
    n_users = valid.history.shape[0]
    if n_users <= most:
        return valid
    rows = np.linspace(0, n_users - 1, most).astype(np.int64)
    return valid.take(rows)


def searched_items(train: Csr, valid: Fold | None) -> tuple[Csr, Fold | None]:
    """Return what a search over items-by-items matrices looks at: all items, or the popular ones.

    A trial on 40,000 items takes ten minutes, one on the 6,000 most popular of them seconds. Validation users keep
    their items among those; who has none left on either side drops out.
    """
    n_items = train.shape[1]
    if n_items <= MOST_ITEMS:
        return train, valid
    log.info("The search for settings looks at the %d most popular of %d items.", MOST_ITEMS, n_items)
    items = np.sort(np.argsort(-column_counts(train), kind="stable")[:MOST_ITEMS])
    if valid is None:
        return train[:, items], None
    return train[:, items], valid.over(items)


def ndcg_of(variants: Variants, fold: Fold) -> Values:
    """Return the users' NDCG@100, (variants, users)."""
    popularity = np.zeros(fold.history.shape[1])

    def run(rows: slice) -> Values:
        part = fold.take(rows)
        judged = []
        for scores in variants(rows):
            items, _ = top_k(scores, part.history, 100, part.disliked)
            judged.append(per_user(judge(items, part.held_out, popularity), (MAIN_METRIC,))[MAIN_METRIC])
        return np.stack(judged)  # (variants, users)

    return np.concatenate(list(map_batches(run, fold.history, threads=1)), axis=1)


def ndcg(score: Callable[[Csr], FloatArray], fold: Fold) -> Values:
    """Return the users' NDCG@100, (users,)."""
    return ndcg_of(lambda rows: [score(fold.history[rows])], fold)[0]


def relative(n: FloatArray, mean: float | None = None) -> FloatArray:
    """Return popularity in units of its mean (that of `n` unless given), never quite 0, (items,)."""
    return np.maximum(n / max(float(n.mean()) if mean is None else mean, 1e-12), _RAREST)


def scalings(train: Csr, powers: Sequence[float]) -> FloatArray:
    """Return popularity^-c for each power c, (powers, items)."""
    popularity = relative(column_counts(train).astype(np.float32))
    return np.stack([popularity ** np.float32(-c) for c in powers])


def by_scaling(
    jury: Jury,
    train: Csr,
    c: float | None,
    score: Callable[[Csr], FloatArray],
    score_left_out: Callable[[slice], FloatArray],
) -> list[Judged]:
    """Judge scores with each power c of popularity, or with the one that is given.

    `score` is asked for validation users by their histories, `score_left_out` for training users by their places.
    """
    powers = POWERS if c is None else (c,)
    rows = scalings(train, powers)

    def scaled(score: Callable[[slice], FloatArray]) -> Variants:
        return lambda users: (scores * row for scores in (score(users),) for row in rows)

    values = jury.judge(scaled(lambda users: score(jury.valid.history[users])), scaled(score_left_out))
    return [Judged({} if c is not None else {"c": power}, row) for power, row in zip(powers, values, strict=True)]
