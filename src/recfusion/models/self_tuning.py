"""Self-tuning: a closed form chooses its open settings by a small search.

Trials are scored on training users, each left out of the fit in turn if a closed form allows that, and on validation
users if there are any.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from recfusion.core.arrays import Csr, FloatArray, column_counts
from recfusion.data.split import Fold
from recfusion.evaluation.evaluate import map_batches
from recfusion.evaluation.metrics import MAIN_METRIC, Values, judge, parse_metric, per_user
from recfusion.evaluation.topk import top_k
from recfusion.models.base import Recommender
from recfusion.models.leave_one_out import SHOWN, left_out, nobody, share_shown
from recfusion.models.settings import search_space, setting, setting_values, settings_of
from recfusion.models.thinning.parts import part_message
from recfusion.training.search_space import search

log = logging.getLogger(__name__)
LEAST_USERS = 20  # with fewer users a search would choose by chance
DOUBT = 2.0  # a search goes on only if a trial beats the defaults by so many standard errors
MOST_ITEMS = 6000  # with more items a trial on all of them would take minutes
MOST_USERS = 1000  # more users would cost time and change nothing
POWERS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)  # of popularity that scores are divided by: one fit serves all of them
_RAREST = 1e-3  # lowest popularity that counts, in units of the mean


@dataclass(frozen=True)
class Judged:
    """Settings and their score for each user."""

    settings: Mapping[str, Any]
    values: Values  # (users,)


@dataclass(frozen=True)
class Jury:
    """Users on whom settings are scored: training users, each left out of the fit in turn, and validation users."""

    left_out: Fold  # `users` are rows of the training matrix
    valid: Fold

    @property
    def n_users(self) -> int:
        return self.left_out.history.shape[0] + self.valid.history.shape[0]

    def judge(self, of_valid: "Variants", of_left_out: "Variants") -> Values:
        """Return NDCG@100 (variants, users) of the left-out users, then of the validation users."""
        both = ((of_left_out, self.left_out), (of_valid, self.valid))
        return np.concatenate([ndcg_of(scores, fold) for scores, fold in both if len(fold.users)], axis=1)


Variants = Callable[[slice], Iterable[FloatArray]]  # rows of a fold -> scores (users, items) of each variant
Objective = Callable[[Mapping[str, Any], Jury], Sequence[Judged]]  # settings, users -> the scores of all variants


def cannot_choose(count: int, chosen: str, kind: str = "") -> str:
    """Return the start of a warning: `count` users, of some `kind`, are too few to choose something."""
    if not count:
        return f"No user has 2 items, one to show and one to find, to choose {chosen} by"
    users = f"{count} {kind} user{'s are' if count > 1 else ' is'}".replace("  ", " ")
    return f"{users} too few to choose {chosen} by (at least {LEAST_USERS} are needed)"


def trials_setting(default: int = 20) -> Any:
    """Declare the number of trials of a self-tuning model's search."""
    return setting(default, "trials of the search for open settings; 0: no search", at_least=0, at_most=10_000)


def fewer_trials(model: Recommender, most: int) -> Recommender:
    """Return the model with at most `most` trials of its own search, if it has one."""
    own = setting_values(model).get("tune_trials")
    fewer: dict[str, Any] = {"tune_trials": min(most, own or 0)}
    return model if own is None else replace(model, **fewer)


def open_settings(model: Recommender) -> dict[str, Any]:
    """Return the open settings of `model` with their values without a search."""
    declared = settings_of(type(model))
    return {name: d.start for name, d in declared.items() if d.start is not None and getattr(model, name) is None}


def searches(model: Recommender, unused: Collection[str] = ()) -> bool:
    """Return whether a fit has settings to search, other than `unused` ones."""
    trials = setting_values(model).get("tune_trials", 0)
    return trials > 0 and bool(open_settings(model).keys() - set(unused))


def jury(train: Csr, valid: Fold | None, rng: np.random.Generator, most: int = MOST_USERS) -> Jury:
    """Return the users that trials are scored on: validation users, and training users up to `most` users in all.

    Training users show the same share of their items as the validation users.
    """
    if valid is None:
        return Jury(left_out(train, most, rng, SHOWN), nobody(train))
    seen = judged_users(valid)
    return Jury(left_out(train, max(0, most - len(seen.users)), rng, share_shown(seen)), seen)


def validation_jury(train: Csr, valid: Fold | None) -> Jury | None:
    """Return validation users alone as the users that trials are scored on."""
    return None if valid is None else Jury(nobody(train), judged_users(valid))


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
    """Search the open settings of `model` that are `searched`, then set the values of these and the `free` settings.

    The value of a setting is stored in the field with its name and an underscore: the chosen or the given one. The
    objective gets all searched settings; its variants try the free ones, which otherwise keep their starts, and a
    given one keeps its value. The search tries the starts first, the declared ones or `starts`, then each of `first`
    laid over them. With `probes`, it ends after so many trials unless one of them beats the starts by `DOUBT` standard
    errors: good defaults need no search.
    The starts are used if there are too few users, or if all trials are equally good.
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
            for variant in variants:
                free = {name: value for name, value in variant.settings.items() if name in begun}
                tried.append(Judged({**begun, **values, **free}, variant.values))
            return max(float(variant.values.mean()) for variant in variants)

        if jury.n_users >= LEAST_USERS:
            begin = {name: begun[name] for name in space}
            laid = [{**begin, **{k: v for k, v in point.items() if k in space}} for point in first]
            points = [begin, *(point for point in laid if point != begin)]  # a repeated trial would be wasted
            count, seed = trials if space else 1, int(rng.integers(2**31))
            done = search(score, space, trials=min(count, probes) if probes else count, seed=seed, first=points)
            if 0 < probes < count and _in_doubt(tried, begin):
                done = search(score, space, trials=count, seed=seed, first=points, done=done)
            chosen = choose(tried, begun)
            log.info("%d trials chose %s", len(done), chosen)
            model.trials_ += len(done)
            if len(tried) > 1 and all(np.array_equal(one.values, tried[0].values) for one in tried):
                message = f"All settings are equally good for the {jury.n_users} users that score them"
                log.warning(part_message(model, f"{message}: the defaults of {wanted} are used."))
        else:
            log.warning(part_message(model, f"{cannot_choose(jury.n_users, wanted)}: the defaults are used."))
    for name in (*searched, *free):
        setattr(model, f"{name}_", chosen.get(name, getattr(model, name)))


def _in_doubt(judged: Sequence[Judged], starts: Mapping[str, Any]) -> bool:
    """Return whether any settings beat the starts, with their best free settings, by more than noise."""
    at_starts = [one for one in judged if all(one.settings[name] == value for name, value in starts.items())]
    usual = max(at_starts, key=lambda one: float(one.values.mean()))
    gains = [one.values - usual.values for one in judged]
    return any(gain.mean() > DOUBT * gain.std() / np.sqrt(len(gain)) for gain in gains)


def choose(judged: Sequence[Judged], starts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with the highest mean, or the starts if the gain is below a standard error.

    The best of many trials is partly the luckiest one, and the starts have proved themselves on other data.
    """
    best = max(judged, key=lambda one: float(one.values.mean()))
    usual = next(one for one in judged if one.settings == starts)
    gain = best.values - usual.values
    if gain.mean() <= gain.std() / np.sqrt(len(gain)):
        best = usual
    return dict(best.settings)


def judged_users(valid: Fold, most: int = MOST_USERS) -> Fold:
    """Return the validation users, or an even choice of `most` of them."""
    n_users = valid.history.shape[0]
    if n_users <= most:
        return valid
    rows = np.linspace(0, n_users - 1, most).astype(np.int64)
    return valid.take(rows)


def searched_items(train: Csr, valid: Fold | None) -> tuple[Csr, Fold | None]:
    """Return the data for a search over items-by-items matrices: all items, or the most popular ones.

    A trial on 40,000 items takes ten minutes, one on the 6,000 most popular of them seconds. Validation users without
    such items on either side are dropped.
    """
    n_items = train.shape[1]
    if n_items <= MOST_ITEMS:
        return train, valid
    log.info("The search for settings uses the %d most popular of %d items.", MOST_ITEMS, n_items)
    items = np.sort(np.argsort(-column_counts(train), kind="stable")[:MOST_ITEMS])
    return train[:, items], None if valid is None else valid.over(items)


def ndcg_of(variants: Variants, fold: Fold) -> Values:
    """Return NDCG@100 of each user by each variant of the scores, (variants, users)."""
    popularity, length = np.zeros(fold.history.shape[1]), parse_metric(MAIN_METRIC)[1]

    def run(rows: slice) -> Values:
        part = fold.take(rows)
        judged = []
        for scores in variants(rows):
            items, _ = top_k(scores, part.history, length, part.disliked)
            judged.append(per_user(judge(items, part.held_out, popularity), (MAIN_METRIC,))[MAIN_METRIC])
        return np.stack(judged)  # (variants, users)

    return np.concatenate(list(map_batches(run, fold.history, threads=1)), axis=1)


def ndcg(score: Callable[[Csr], FloatArray], fold: Fold) -> Values:
    """Return NDCG@100 of each user, (users,)."""
    return ndcg_of(lambda rows: [score(fold.history[rows])], fold)[0]


def relative(n: FloatArray, mean: float | None = None) -> FloatArray:
    """Return popularity over its mean (that of `n` unless given), always above 0, (items,)."""
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
    """Score the model with each power c of popularity, or with the given one.

    `score` gets the histories of validation users, `score_left_out` the places of left-out training users.
    """
    powers = POWERS if c is None else (c,)
    rows = scalings(train, powers)

    def scaled(score: Callable[[slice], FloatArray]) -> Variants:
        return lambda users: (scores * row for scores in (score(users),) for row in rows)

    values = jury.judge(scaled(lambda users: score(jury.valid.history[users])), scaled(score_left_out))
    return [Judged({"c": power}, row) for power, row in zip(powers, values, strict=True)]
