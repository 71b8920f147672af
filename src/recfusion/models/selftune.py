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
from recfusion.search.space import Space, search

log = logging.getLogger(__name__)
METRIC = "ndcg@100"
LEAST_USERS = 20  # validation users below which a search would choose by chance
MOST_ITEMS = 6000  # items beyond which a trial on all of them would take minutes
MOST_USERS = 2000  # validation users beyond which more would cost time and change nothing


@dataclass(frozen=True)
class Judged:
    """Settings, and what they came to for each validation user."""

    settings: Mapping[str, Any]
    values: Values  # (users,)


Objective = Callable[[Mapping[str, Any]], Sequence[Judged]]  # settings -> the variants that they allow for free


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


def settle(
    model: Recommender,
    objective: Objective,
    judged: Fold | None,
    rng: np.random.Generator,
    *,
    searched: Collection[str],
    filled: Collection[str],
    trials: int,
    first: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Search those open settings of `model` that are `searched`, then set the values of the `filled` ones.

    The value of a setting is in the field of its name with an underscore: what the search chose, or what was given.
    Settings that are filled but not searched are those that the objective's variants try, or stay at their starts.
    The search begins with the starts, then with each of `first` laid over them. Where there is nobody to judge trials
    by, or too few, the starts are taken.
    """
    starts = open_settings(model)
    space = search_space(type(model), starts.keys() & set(searched))
    n_users = 0 if judged is None else judged.history.shape[0]
    chosen = dict(starts)
    if trials and starts.keys() & {*searched, *filled} and n_users >= LEAST_USERS:
        count = trials if space else 1
        chosen |= _search(objective, space, starts, rng, first=first, trials=count)
        model.trials_ += count
    elif trials and judged is not None and starts.keys() & set(filled):
        log.warning(
            "%d validation users are too few to choose %s by (at least %d are needed): the defaults are used.",
            n_users,
            ", ".join(sorted(starts.keys() & set(filled))),
            LEAST_USERS,
        )
    for name in filled:
        given = getattr(model, name)
        setattr(model, f"{name}_", chosen[name] if given is None else given)


def _search(
    objective: Objective,
    space: Space,
    starts: Mapping[str, Any],
    rng: np.random.Generator,
    *,
    first: Sequence[Mapping[str, Any]],
    trials: int,
) -> dict[str, Any]:
    tried: list[Judged] = []

    def score(values: Mapping[str, Any]) -> float:
        variants = objective(values)
        tried.extend(Judged({**starts, **values, **variant.settings}, variant.values) for variant in variants)
        return max(float(variant.values.mean()) for variant in variants)

    begin = {name: starts[name] for name in space}
    laid = [{**begin, **{k: v for k, v in point.items() if k in space}} for point in first]
    points = [begin, *(point for point in laid if point != begin)]  # a trial twice would be one lost
    search(score, space, trials=trials, seed=int(rng.integers(2**31)), first=points)
    chosen = choose(tried, starts)
    log.info("%d trials chose %s", trials, chosen)
    return chosen


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
    return Fold(valid.users[rows], valid.history[rows], valid.held_out[rows])


def searched_items(train: Csr, judged: Fold) -> tuple[Csr, Fold]:
    """Return the items that a search over items-by-items matrices looks at: all, or the most popular ones.

    A trial on 40,000 items takes ten minutes, one on the 6,000 most popular of them seconds. Validation users keep
    their items among those; who has none left on either side drops out.
    """
    n_items = train.shape[1]
    if n_items <= MOST_ITEMS:
        return train, judged
    log.info("The search for settings looks at the %d most popular of %d items.", MOST_ITEMS, n_items)
    items = np.sort(np.argsort(-column_counts(train), kind="stable")[:MOST_ITEMS])
    history, held_out = judged.history[:, items], judged.held_out[:, items]
    rows = np.flatnonzero((np.diff(history.indptr) > 0) & (np.diff(held_out.indptr) > 0))
    return train[:, items], Fold(judged.users[rows], history[rows], held_out[rows])


def ndcg(score: Callable[[Csr], FloatArray], valid: Fold, scalings: FloatArray | None = None) -> Values:
    """Return the users' NDCG@100, (k, users), for each row of `scalings` (k, items) that scores are multiplied by."""
    popularity = np.zeros(valid.history.shape[1])

    def run(rows: slice) -> Values:
        scores = score(valid.history[rows])
        variants = [scores] if scalings is None else (scores * row for row in scalings)
        judged = []
        for variant in variants:
            items, _ = top_k(variant, valid.history[rows], 100)
            judged.append(per_user(judge(items, valid.held_out[rows], popularity), (METRIC,))[METRIC])
        return np.stack(judged)  # (k, users)

    return np.concatenate(map_batches(run, valid.history, threads=1), axis=1)
