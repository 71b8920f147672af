"""Example histories: popular items that the model finds similar, from different parts of the catalogue."""

import numpy as np

from recfusion.core.rng import make_rng
from recfusion.inference.bundle import Bundle

_POPULAR = 200  # items that examples are made from
_APART = 3.0  # how much the similarity to other examples counts against the logarithm of an item's count
_SPREAD = 1.5  # scale of the chance in the first items, on the same scale


def example_histories(bundle: Bundle, n: int = 3, size: int = 4, seed: int | None = None) -> list[list[int]]:
    """Return N histories as columns of items: a popular item with the items that are most similar to it.

    The first item of each is popular and unlike the items of the others; with a seed, chance decides, too. A history is
    shorter than `size` if the model finds fewer similar items.
    """
    popular = np.argsort(-bundle.counts, kind="stable")[:_POPULAR]
    similarity = bundle.similarity.among(popular)  # (popular, popular)
    value = np.log1p(bundle.counts[popular])
    if seed is not None:
        value += _SPREAD * make_rng(seed).gumbel(size=len(popular))
    found: list[list[int]] = []
    taken: list[int] = []
    while len(found) < n and len(taken) < len(popular):
        near = similarity[:, taken].max(1, initial=0)
        first = int(np.argmax(np.where(np.isin(np.arange(len(popular)), taken), -np.inf, value - _APART * near)))
        order = np.argsort(-similarity[first], kind="stable").tolist()
        others = [place for place in order if similarity[first, place] > 0 and place not in (first, *taken)]
        own = [first, *others[: size - 1]]
        taken += own
        found.append(popular[own].tolist())
    return found
