"""Explanations: which items of a history, and which re-ranking controls, put an item into a list."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from recfusion.core.arrays import Csr, FloatArray, IntArray
from recfusion.data.rating_scale import adds_up
from recfusion.data.signals import Extra
from recfusion.evaluation.scoring import scores
from recfusion.inference.bundle import Bundle
from recfusion.inference.histories import Histories
from recfusion.models.base import model_reasons
from recfusion.models.sequence.recency import newer

_RECENT = 3  # newest entries of a longer history that a reason calls recent

Basis = Literal["history", "features", "popularity"]  # what a list was made from


@dataclass(frozen=True)
class Reason:
    """One reason: items of the history (two for a pair), a feature of the item, or a control, with its weight.

    Weights of items are in units of the model's score; if they are exact, those of all items add up to it. The weight
    of a control is what it adds to the logarithm of relevance; that of purchases is the logit of another one.
    """

    items: tuple[str, ...]
    text: str
    weight: float


@dataclass(frozen=True)
class Explanation:
    """The reasons for each item of one list, largest weight first; `kind` says how they were computed.

    `other` is the rest of the model's score of each item: with the weights of its reasons (without those of controls)
    it adds up to the score.
    """

    kind: str
    because: list[list[Reason]]
    other: list[float]


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
        return Explanation(
            basis, [[Reason((), "popular", float(bundle.popularity[item]))] for item in items], [0.0] * len(items)
        )
    if basis == "features":
        return Explanation(basis, [[Reason((), "what people like you have", 0.0)] for _ in items], [0.0] * len(items))
    reasons = model_reasons(bundle.model, extended, items, extra)
    known = disliked_items(extra) | set(history.indices.tolist())
    is_known = np.array(
        [source[0] >= len(bundle.items) or known.issuperset(source) for source in reasons.sources], bool
    )
    because, other = [], []
    exact = reasons.kind == "exact"
    totals = reasons.parts.sum(1) if exact else scores(bundle.model, extended, extra)[0, items]
    for item, parts, total in zip(items.tolist(), reasons.parts, totals.tolist(), strict=True):
        best = np.argsort(-np.where(is_known, parts, 0), kind="stable")[:most]
        found = [
            reason_of(bundle, reasons.sources[place], parts[place], extra)
            for place in best
            if is_known[place] and parts[place] > 0
        ]
        assumed = float(parts[~is_known].sum())
        if assumed > 0:
            found.append(Reason((), "what your taste suggests", assumed))
        found = sorted(found, key=lambda reason: -reason.weight)[:most]
        other.append(total - sum(reason.weight for reason in found))
        because.append(found + [Reason((), name, float(term[item])) for name, term in terms.items() if term[item] > 0])
    return Explanation(reasons.kind, because, other)


def explain_bought(bundle: Bundle, histories: Histories, items: IntArray, found: Explanation) -> Explanation:
    """Return the explanation with the purchases as the one reason for an item that the user bought before."""
    pairs, rates = histories.purchases, bundle.rates
    if pairs is None or rates is None or not np.isin(items, pairs.item).any():
        return found
    reasons = zip(pairs.item.tolist(), rates.texts(pairs), rates.logits(pairs).tolist(), strict=True)
    own = {item: [Reason((bundle.names[item][0],), text, logit)] for item, text, logit in reasons}
    because = [own.get(item, usual) for item, usual in zip(items.tolist(), found.because, strict=True)]
    other = [0.0 if item in own else rest for item, rest in zip(items.tolist(), found.other, strict=True)]
    return Explanation(found.kind, because, other)


def disliked_items(extra: Extra | None) -> set[int]:
    """Return the items of one history that its user disliked."""
    return set() if extra is None or extra.disliked is None else set(extra.disliked.indices.tolist())


def reason_of(bundle: Bundle, source: tuple[int, ...], weight: float, extra: Extra | None) -> Reason:
    """Return the reason for an item of the history, a pair of them, or a feature of the recommended item."""
    n_items, features = len(bundle.items), bundle.recipes.items
    if source[0] >= n_items and features is not None:
        return Reason((), f"its {features.names[source[0] - n_items]}", float(weight))
    ids, texts = zip(*(bundle.names[column] for column in source), strict=True)
    liked = not disliked_items(extra).issuperset(source)
    shown = [text + _detail(bundle, column, extra) for text, column in zip(texts, source, strict=True)]
    return Reason(ids, " and ".join(shown) if liked else f"not {texts[0]}", float(weight))


def _detail(bundle: Bundle, column: int, extra: Extra | None) -> str:
    """Return how often an item of one history was bought, and whether lately, as far as the model read that."""
    found: list[str] = []
    known = extra or Extra()
    if known.grades is not None and adds_up(bundle.protocol.read.columns.get("rating"), 0.0):
        count = known.grades.data[known.grades.indices == column]
        found += [f"{count[0]:g} times"] if count.size and count[0] >= 2 else []
    if known.times is not None and known.times.nnz > _RECENT:
        later = newer(known.times)[known.times.indices == column]
        found += ["recently"] if later.size and later[0] < _RECENT else []
    return f" ({', '.join(found)})" if found else ""
