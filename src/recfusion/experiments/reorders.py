"""Fits the rates of re-orders: on weeks that are held out in time, with a model's lists of unseen items before each."""

import time
from collections.abc import Collection, Iterator
from dataclasses import replace

import numpy as np
import polars as pl

from recfusion.core.arrays import Csr, IntArray, binary_csr, row_numbers
from recfusion.data.interactions import Interactions, Signal
from recfusion.data.purchases import DAY, Numbers, Pairs, Purchases, all_purchases
from recfusion.data.reading.columns import words_of
from recfusion.data.signals import valued, whole_extra
from recfusion.evaluation.scoring import scores
from recfusion.evaluation.topk import batch_rows, top_k
from recfusion.inference.categories import Categories
from recfusion.inference.reorders import Rates, describe_items
from recfusion.models.base import Recommender

_WEEK, _WEEKS, _SHARE = 7 * DAY, 8, 30  # held-out spans: their length, their number, and as a share of the data's
_FEWEST = 100  # repeat purchases in the held-out spans that a fit needs
_MOST, _MOST_PAIRS = 5_000_000, 500_000  # purchases, and pairs of a user and an item, in a fit
_JUDGES, _RANKS = 1000, 100  # users whose lists of unseen items are counted, and their length
_L2 = 1.0
_CATEGORY_WORDS = ("category", "categories", "department", "genre", "genres", "kategorie", "categorie", "categoria")


def reorder_rates(model: Recommender, data: Interactions, used: Collection[Signal], judges: IntArray) -> Rates | None:
    """Return how items are bought again; None if the data has too few repeat purchases with times.

    `judges` are users outside of the training data. Times in the future are left out. Of very many purchases, those
    of a part of the users are used.
    """
    bought = all_purchases(data)
    if bought is None:
        return None
    bought = bought.where((bought.time <= time.time()) & (bought.user % (1 + len(bought.user) // _MOST) == 0))
    judges, n_items, chances = judges[:: max(1, len(judges) // _JUDGES)], data.n_items, _chances(data)
    features, hits, ranks, new_hits = list[Numbers](), list[Numbers](), list[Numbers](), list[Numbers]()
    for cut, end in _spans(bought):
        past, week = bought.where(bought.time < cut), bought.where((bought.time >= cut) & (bought.time < end))
        pairs, keys = Pairs.of(past), np.unique(week.user * n_items + week.item)
        active = pairs.where(np.isin(pairs.user, week.user))
        features.append(describe_items(past, pairs, n_items, cut, chances).features(active))
        hits.append(np.isin(active.user * n_items + active.item, keys).astype(np.float64))
        own = active.where(np.isin(active.user, judges))
        users, first = np.unique(own.user, return_index=True)
        items = _unseen(model, data, used, own)
        place, rank = np.nonzero(items >= 0)
        ranks.append(np.stack([np.ones(len(rank)), np.log(rank + 1), np.log(own.baskets[first][place])], axis=1))
        new_hits.append(np.isin(users[place] * n_items + items[place, rank], keys).astype(np.float64))
    if sum(part.sum() for part in hits) < _FEWEST or not sum(map(len, new_hits)):
        return None
    every, places = np.concatenate(features)[-_MOST_PAIRS:], np.concatenate(ranks)
    means = every.mean(0)
    again = _logistic(np.hstack([np.ones((len(every), 1)), every - means]), np.concatenate(hits)[-_MOST_PAIRS:])
    places[:, 2] -= means[1]
    new = _logistic(places, np.concatenate(new_hits))
    new[1] = min(new[1], -0.05)  # a lower rank is never more likely
    final = describe_items(bought, Pairs.of(bought), n_items, float(bought.time.max()), chances)
    parts = {"means": means, "again": again, "new": new}
    return replace(final, **{name: values.astype(np.float32) for name, values in parts.items()})


def _spans(bought: Purchases) -> Iterator[tuple[float, float]]:
    """Yield the held-out spans, oldest first: weeks, or shorter ones if the data spans less than 30 weeks."""
    oldest, until = float(bought.time.min(initial=np.inf)), float(bought.time.max(initial=-np.inf))
    length = min(float(_WEEK), (until - oldest) / _SHARE)
    for back in range(_WEEKS, 0, -1) if length >= 1 else ():
        yield until - back * length, until - (back - 1) * length + 1


def _unseen(model: Recommender, data: Interactions, used: Collection[Signal], pairs: Pairs) -> IntArray:
    """Return the best unseen items of each user in `pairs`, (users, ranks); the pairs are their histories."""
    every, extra, found = np.unique(pairs.user), whole_extra(data, used), [np.zeros((0, _RANKS), np.int64)]
    step = batch_rows(data.n_items)
    for users in (every[start : start + step] for start in range(0, len(every), step)):
        start, stop = np.searchsorted(pairs.user, [users[0], users[-1] + 1])
        own = pairs.where(slice(start, stop))
        history = binary_csr(np.searchsorted(own.user, [*users, users[-1] + 1]), own.item, data.n_items)
        given = extra
        if extra is not None:
            whole = data.matrix[users]
            keys = users[row_numbers(whole)] * data.n_items + whole.indices
            given = extra.rows(users).keep(np.isin(keys, own.user * data.n_items + own.item), "grades", "times")
            given = replace(given, disliked=None, disliked_times=None)  # it is not known what was disliked then
            if given.times is not None:
                given = replace(given, times=valued(history, own.last.astype(np.int64)))
        best = top_k(scores(model, history, given), history, _RANKS)[0]
        found.append(np.pad(best, ((0, 0), (0, _RANKS - best.shape[1])), constant_values=-1))
    return np.concatenate(found)


def _logistic(x: Numbers, y: Numbers) -> Numbers:
    """Return the weights of a logistic regression with a small ridge penalty, by Newton's method."""
    weights = np.zeros(x.shape[1])
    for _ in range(25):
        p = 1 / (1 + np.exp(-np.clip(x @ weights, -30, 30)))
        curvature = (x * (p * (1 - p))[:, None]).T @ x + _L2 * np.eye(len(weights))
        step = np.linalg.solve(curvature, x.T @ (y - p) - _L2 * weights)
        weights += step
        if np.abs(step).max() < 1e-6:
            break
    return weights


def _chances(data: Interactions) -> Csr | None:
    """Return p(category | item) of the first column of the item table that is named like a category."""
    for name, kind in data.item_table.schema.items():
        if kind in (pl.String, pl.List(pl.String)) and set(words_of(name)) & set(_CATEGORY_WORDS):
            return Categories.of(data.item_table, name).chances
    return None
