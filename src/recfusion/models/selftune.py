"""Self-tuning: a closed form chooses the settings that were left open by a small search on the validation users."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from recfusion.core.arrays import Csr, FloatArray, column_counts
from recfusion.data.split import Fold
from recfusion.evaluation.evaluate import map_batches
from recfusion.evaluation.metrics import Values, judge, per_user
from recfusion.evaluation.topk import top_k
from recfusion.models.base import Recommender
from recfusion.models.settings import search_space, setting, setting_values, settings_of
from recfusion.search.space import search

log = logging.getLogger(__name__)
METRIC = "ndcg@100"
LEAST_USERS = 20  # validation users below which a search would choose by chance
MOST_ITEMS = 6000  # items beyond which a trial on all of them would take minutes
MOST_USERS = 2000  # validation users beyond which more would cost time and change nothing
POWERS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)  # of popularity, by which scores are divided: they need no fit of their own
_RAREST = 1e-3  # popularity, in units of the mean, below which an item counts as if it had that much


@dataclass(frozen=True)
class Judged:
    """Settings, and what they came to for each validation user."""

    settings: Mapping[str, Any]
    values: Values  # (users,)


Objective = Callable[[Mapping[str, Any], Fold], Sequence[Judged]]  # settings, users -> the variants that are free


def trials_setting(default: int = 20) -> Any:
    """Declare how many trials a self-tuning model's search has."""
    return setting(default, "trials of the search for the settings left open; 0: none", at_least=0)


def fewer_trials(model: Recommender, most: int) -> Recommender:
    """Return a model whose own search, where it has one, has no more than `most` trials."""
    own = setting_values(model).get("tune_trials")
    fewer: dict[str, Any] = {"tune_trials": min(most, own or 0)}
    return model if own is None else replace(model, **fewer)


def open_settings(model: Recommender) -> dict[str, Any]:
    """Return the settings of `model` that are still to be chosen, with what each is without a search."""
    declared = settings_of(type(model))
    return {name: d.start for name, d in declared.items() if d.start is not None and getattr(model, name) is None}


def searches(model: Recommender, valid: Fold | None, unused: Collection[str] = ()) -> bool:
    """Return whether a fit has settings to search, but for `unused` ones, and somebody to judge trials by."""
    trials = setting_values(model).get("tune_trials", 0)
    return valid is not None and trials > 0 and bool(open_settings(model).keys() - set(unused))


def settle(
    model: Recommender,
    objective: Objective,
    judged: Fold | None,
    rng: np.random.Generator,
    *,
    searched: Sequence[str],
    free: Sequence[str] = (),
    trials: int,
    first: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Search those open settings of `model` that are `searched`, then set the values of these and the `free` ones.

    The value of a setting is in the field of its name with an underscore: what the search chose, or what was given.
    The objective gets all that are searched; its variants try the free ones, which stay at their starts otherwise.
    The search begins with the starts, then with each of `first` laid over them. Where there is nobody to judge trials
    by, or too few, the starts are taken.
    """
    starts = open_settings(model)
    space = search_space(type(model), starts.keys() & set(searched))
    given = {name: getattr(model, name) for name in searched if name not in starts}
    wanted = ", ".join(sorted(starts.keys() & {*searched, *free}))
    chosen = starts
    if trials and wanted and judged is not None:
        tried: list[Judged] = []

        def score(values: Mapping[str, Any]) -> float:
            variants = objective({**given, **values}, judged)
            tried.extend(Judged({**starts, **values, **variant.settings}, variant.values) for variant in variants)
            return max(float(variant.values.mean()) for variant in variants)

        if (n_users := judged.history.shape[0]) >= LEAST_USERS:
            count = trials if space else 1
            begin = {name: starts[name] for name in space}
            laid = [{**begin, **{k: v for k, v in point.items() if k in space}} for point in first]
            points = [begin, *(point for point in laid if point != begin)]  # a trial twice would be one lost
            search(score, space, trials=count, seed=int(rng.integers(2**31)), first=points)
            chosen = choose(tried, starts)
            log.info("%d trials chose %s", count, chosen)
            model.trials_ += count
        else:
            told = "%d validation users are too few to choose %s by (at least %d are needed): the defaults are used."
            log.warning(told, n_users, wanted, LEAST_USERS)
    for name in (*searched, *free):
        setattr(model, f"{name}_", chosen.get(name, getattr(model, name)))


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
    """Return what a search over items-by-items matrices looks at: `judged_users`, and all items or the popular ones.

    A trial on 40,000 items takes ten minutes, one on the 6,000 most popular of them seconds. Validation users keep
    their items among those; who has none left on either side drops out.
    """
    n_items, judged = train.shape[1], None if valid is None else judged_users(valid)
    if judged is None or n_items <= MOST_ITEMS:
        return train, judged
    log.info("The search for settings looks at the %d most popular of %d items.", MOST_ITEMS, n_items)
    items = np.sort(np.argsort(-column_counts(train), kind="stable")[:MOST_ITEMS])
    return train[:, items], judged.over(items)


def ndcg(score: Callable[[Csr], FloatArray], valid: Fold, scalings: FloatArray | None = None) -> Values:
    """Return the users' NDCG@100, (k, users), for each row of `scalings` (k, items) that scores are multiplied by."""
    return ndcg_read(lambda part: score(part.history), valid, scalings)


def ndcg_read(score: Callable[[Fold], FloatArray], valid: Fold, scalings: FloatArray | None = None) -> Values:
    """Return the same of a model that reads more of a batch of users than their histories."""
    popularity = np.zeros(valid.history.shape[1])

    def run(rows: slice) -> Values:
        part = valid.take(rows)
        scores = score(part)
        variants = [scores] if scalings is None else (scores * row for row in scalings)
        judged = []
        for variant in variants:
            items, _ = top_k(variant, part.history, 100, part.disliked)
            judged.append(per_user(judge(items, part.held_out, popularity), (METRIC,))[METRIC])
        return np.stack(judged)  # (k, users)

    return np.concatenate(map_batches(run, valid.history, threads=1), axis=1)


def relative(n: FloatArray, mean: float | None = None) -> FloatArray:
    """Return popularity in units of its mean (that of `n` unless given), never quite 0, (items,)."""
    return np.maximum(n / max(float(n.mean()) if mean is None else mean, 1e-12), _RAREST)


def scalings(train: Csr, powers: Sequence[float]) -> FloatArray:
    """Return popularity^-c for each power c, (powers, items)."""
    popularity = relative(column_counts(train).astype(np.float32))
    return np.stack([popularity ** np.float32(-c) for c in powers])


def by_scaling(score: Callable[[Csr], FloatArray], valid: Fold, train: Csr, c: float | None) -> list[Judged]:
    """Judge scores on `valid` with each power c of popularity, or with the one that is given."""
    if c is not None:
        return [Judged({}, ndcg(score, valid, scalings(train, (c,)))[0])]
    values = ndcg(score, valid, scalings(train, POWERS))
    return [Judged({"c": power}, row) for power, row in zip(POWERS, values, strict=True)]
