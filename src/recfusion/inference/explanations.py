"""Explanations: which items of a history, and which re-ranking controls, put an item into a list."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np

from recfusion.core.arrays import Csr, FloatArray, IntArray
from recfusion.data.signals import Extra
from recfusion.evaluation.scoring import read_by
from recfusion.inference.bundle import Bundle
from recfusion.models.base import Recommender
from recfusion.models.reasons import Reader, Reasons, left_out

Basis = Literal["history", "features", "popularity"]  # what a list was made from


@dataclass(frozen=True)
class Reason:
    """One reason: items of the history (two for a pair), a feature of the item, or a control, with its weight.

    Weights of items are in units of the model's score; if they are exact, those of all items add up to it. The weight
    of a control is what it adds to the logarithm of relevance.
    """

    items: tuple[str, ...]
    text: str
    weight: float


@dataclass(frozen=True)
class Explanation:
    """The reasons for each item of one list, largest weight first; `kind` says how they were computed."""

    kind: str
    because: list[list[Reason]]


def explain(
    bundle: Bundle,
    terms: Mapping[str, FloatArray],
    basis: Basis,
    history: Csr,
    extended: Csr,
    items: IntArray,
    most: int,
    extra: Extra | None = None,
) -> Explanation:
    """Return up to `most` positive reasons for each item of one user's list.

    `history` (1, items) is the user's, `extended` the same with the items that adventurousness assumed.
    """
    if basis == "popularity":
        return Explanation(basis, [[Reason((), "popular", float(bundle.popularity[item]))] for item in items])
    if basis == "features":
        return Explanation(basis, [[Reason((), "what people like you have", 0.0)] for _ in items])
    reasons = model_reasons(bundle.model, extended, items, extra)
    disliked = set() if extra is None or extra.disliked is None else set(extra.disliked.indices.tolist())
    known = disliked | set(history.indices.tolist())
    is_known = np.array(
        [source[0] >= len(bundle.items) or known.issuperset(source) for source in reasons.sources], bool
    )
    because = []
    for item, parts in zip(items.tolist(), reasons.parts, strict=True):
        best = np.argsort(-np.where(is_known, parts, 0), kind="stable")[:most]
        found = [
            _reason(bundle, reasons.sources[place], parts[place], disliked)
            for place in best
            if is_known[place] and parts[place] > 0
        ]
        assumed = float(parts[~is_known].sum())
        if assumed > 0:
            found.append(Reason((), "what your taste suggests", assumed))
        found = sorted(found, key=lambda reason: -reason.weight)[:most]
        because.append(found + [Reason((), name, float(term[item])) for name, term in terms.items() if term[item] > 0])
    return Explanation(reasons.kind, because)


def model_reasons(model: Recommender, history: Csr, items: IntArray, extra: Extra | None) -> Reasons:
    """Return a model's reasons, with the signals that it reads."""
    read = read_by(model, extra)
    if read is None:
        return model.reasons(history, items)
    if type(model).reasons is Recommender.reasons:  # the model has no method of its own
        return left_out(model.score, history, items, read)
    return cast(Reader, model).reasons(history, items, extra=read)


def _reason(bundle: Bundle, source: tuple[int, ...], weight: float, disliked: set[int]) -> Reason:
    """Return the reason for an item of the history, a pair of them, or a feature of the recommended item."""
    n_items, features = len(bundle.items), bundle.recipes.items
    if source[0] >= n_items and features is not None:
        return Reason((), f"its {features.names[source[0] - n_items]}", float(weight))
    ids, texts = zip(*(bundle.names[column] for column in source), strict=True)
    liked = not disliked.issuperset(source)
    return Reason(ids, " and ".join(texts) if liked else f"not {texts[0]}", float(weight))
