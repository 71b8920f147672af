"""Evaluate given lists, and models by metrics that need whole lists or all scores."""

import dataclasses
import logging
from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from recfusion.core.arrays import Csr, IntArray, column_counts, row_numbers
from recfusion.core.errors import InputError
from recfusion.core.rng import stream
from recfusion.data.split import Fold
from recfusion.evaluation.evaluate import Evaluation, PopularitySlices, evaluate, group_hits, popularity_groups
from recfusion.evaluation.evaluate import batches as user_batches
from recfusion.evaluation.list_metrics import SAMPLED_WARNING, ListSet
from recfusion.evaluation.metrics import METRICS, Values, judge, needs_scores, parse_metric, per_user
from recfusion.evaluation.scoring import Scorer, scores

log = logging.getLogger(__name__)


def evaluate_lists(
    items: IntArray, fold: Fold, train: Csr, metrics: Sequence[str], *, ids: pl.Series | None = None, seconds: float = 0
) -> Evaluation:
    """Return the metrics of the lists `items` (users, K) of a fold's users; -1 fills a list after its end."""
    kinds = {name: parse_metric(name) for name in metrics}
    popularity = column_counts(train) / max(1, train.shape[0])
    lists = judge(items, fold.held_out, popularity)
    whole = ListSet(items, lists.hits, fold.history, fold.held_out, train, ids)
    users: dict[str, Values] = per_user(lists, metrics)
    overall: dict[str, float] = {}
    for name, (kind, k) in kinds.items():
        metric = METRICS[kind]
        if metric.overall is not None:
            shown = items[:, :k]
            recommended = np.zeros(train.shape[1], bool)
            recommended[shown[shown >= 0]] = True
            overall[name] = metric.overall(recommended)
        elif metric.of_lists is not None:
            overall[name] = checked(name, np.array([metric.of_lists(whole.cut(k), k)]))[0].item()
        elif metric.of_users is not None:
            users[name] = checked(name, metric.of_users(whole.cut(k), k))
        elif metric.of_scores is not None:
            raise InputError(f"The metric {name} needs the scores of all items, and there are only lists.", "metrics")
    ks = sorted({k for _, k in kinds.values()})
    hits = group_hits(items, lists.hits, groups := popularity_groups(train), ks)
    slices = PopularitySlices.of(groups, fold.held_out, ks, hits)
    ordered = {name: users[name] for name in metrics if name in users}
    return Evaluation(fold.users, ordered, overall, seconds, slices, items)


def evaluate_metrics(
    model: Scorer,
    fold: Fold,
    train: Csr,
    metrics: Sequence[str],
    *,
    threads: int | None = None,
    shown: Sequence[int] = (),
    length: int = 0,
    ids: pl.Series | None = None,
    make_lists: Callable[[Fold, int], IntArray] | None = None,
) -> Evaluation:
    """Return what `evaluate` returns, also for metrics that need whole lists or all scores; `ids` are the items'."""
    plain = [name for name in metrics if METRICS[parse_metric(name)[0]].in_batches]
    if len(plain) == len(metrics):
        return evaluate(model, fold, train, metrics, threads=threads, shown=shown, length=length, make_lists=make_lists)
    listed = [name for name in metrics if not needs_scores(name)]
    deepest = max([length, 1, *(parse_metric(name)[1] for name in listed)])
    everybody = range(len(fold.users))
    usual = [f"hit_rate@{deepest}"]  # so that a metric is there if all others need scores
    asked = (model, fold, train, usual)
    found = evaluate(*asked, threads=threads, shown=everybody, length=deepest, make_lists=make_lists)
    judged = evaluate_lists(found.lists, fold, train, listed or usual, ids=ids, seconds=found.seconds)
    users = judged.per_user | _of_scores(model, fold, [name for name in metrics if needs_scores(name)])
    return dataclasses.replace(
        judged,
        per_user={name: users[name] for name in metrics if name in users},
        lists=found.lists[list(shown), :length] if len(shown) else found.lists[:0, :length],
    )


def _of_scores(model: Scorer, fold: Fold, metrics: Sequence[str]) -> dict[str, Values]:
    if any(name.startswith("sampled_") for name in metrics):
        log.warning(SAMPLED_WARNING)
    parts: dict[str, list[Values]] = {name: [] for name in metrics}
    rngs = {name: stream(0, name) for name in metrics}
    for rows in user_batches(*fold.history.shape) if metrics else ():
        part = fold.take(rows)
        values = np.array(scores(model, part.history, part.extra))
        for seen in (part.history,) if part.disliked is None else (part.history, part.disliked):
            values[row_numbers(seen), seen.indices] = -np.inf
        for name in metrics:
            kind, k = parse_metric(name)
            compute = METRICS[kind].of_scores
            assert compute is not None
            parts[name].append(compute(values, part.held_out, k, rngs[name]))
    return {name: checked(name, np.concatenate(each)) for name, each in parts.items()}


def checked(name: str, values: Values) -> Values:
    """Return the values of a metric; raise if some are no finite numbers."""
    found = np.asarray(values, np.float64)
    wrong = int(np.count_nonzero(~np.isfinite(found)))
    if wrong:
        raise InputError(
            f"The metric {name} gave NaN or infinity for {wrong:,} of {found.size:,} lists: return a number for each.",
            "metrics",
        )
    return found
