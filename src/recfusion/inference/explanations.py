"""Reasons for people: which of their items, and which knobs, put an item into their list."""

from dataclasses import dataclass
from typing import cast

import numpy as np

from recfusion.core.arrays import Csr, IntArray
from recfusion.data.signals import Extra
from recfusion.evaluation.scoring import read_by
from recfusion.inference.lists import ListMaker
from recfusion.models.base import Recommender
from recfusion.models.reasons import Reader, Reasons, left_out


@dataclass(frozen=True)
class Reason:
    """One reason: items of the history (two for a pair), a feature of the item itself, or a knob, and its weight.

    Weights of items are in units of the model's score; where they are exact, those of all items add up to it. A knob's
    weight is what it adds to the logarithm of relevance.
    """

    items: tuple[str, ...]
    text: str
    weight: float


@dataclass(frozen=True)
class Explanation:
    """The reasons of one list, best first for each of its items; `kind` says how they were found."""

    kind: str
    because: list[list[Reason]]


def explained(maker: ListMaker, history: Csr, items: IntArray, most: int, extra: Extra | None = None) -> Explanation:
    """Return up to `most` reasons, of those that speak for it, for each item of one user's list; history (1, items)."""
    if not history.nnz:
        return Explanation("popularity", [[Reason((), "popular", float(maker.popularity[item]))] for item in items])
    reasons = model_reasons(maker.bundle.model, maker.believed(history), items, extra)
    own = set(history.indices.tolist())
    disliked = set() if extra is None or extra.disliked is None else set(extra.disliked.indices.tolist())
    own |= disliked
    n_items = len(maker.bundle.items)
    mine = np.array([source[0] >= n_items or own.issuperset(source) for source in reasons.sources], bool)
    because = []
    for item, parts in zip(items.tolist(), reasons.parts, strict=True):
        best = np.argsort(-np.where(mine, parts, 0), kind="stable")[:most]
        found = [
            _reason(maker, reasons.sources[place], parts[place], disliked)
            for place in best
            if mine[place] and parts[place] > 0
        ]
        assumed = float(parts[~mine].sum())
        if assumed > 0:
            found.append(Reason((), "what your taste suggests", assumed))
        found = sorted(found, key=lambda reason: -reason.weight)[:most]
        terms = [Reason((), name, float(term[item])) for name, term in maker.terms.items() if term[item] > 0]
        because.append(found + terms)
    return Explanation(reasons.kind, because)


def model_reasons(model: Recommender, history: Csr, items: IntArray, extra: Extra | None) -> Reasons:
    """Return a model's reasons, with the signals that it reads."""
    read = read_by(model, extra)
    if read is None:
        return model.reasons(history, items)
    if type(model).reasons is Recommender.reasons:  # it has none of its own
        return left_out(model.score, history, items, read)
    return cast(Reader, model).reasons(history, items, extra=read)


def people_like(items: IntArray) -> Explanation:
    """Return the reasons of a list that was made of a user's features alone."""
    return Explanation("features", [[Reason((), "what people like you have", 0.0)] for _ in items])


def _reason(maker: ListMaker, source: tuple[int, ...], weight: float, disliked: set[int]) -> Reason:
    """Return the reason that an item of the history is, or a pair of them, by their names; or a feature of its own."""
    n_items, features = len(maker.bundle.items), maker.bundle.recipes.items
    if source[0] >= n_items and features is not None:
        return Reason((), f"its {features.names[source[0] - n_items]}", float(weight))
    ids, texts = zip(*(maker.bundle.names[column] for column in source), strict=True)
    liked = not disliked.issuperset(source)
    return Reason(ids, " and ".join(texts) if liked else f"not {texts[0]}", float(weight))
