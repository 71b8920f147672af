"""Explanations of scores: the contribution of each item of the history."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray, IntArray, binary_csr
from recfusion.data.signals import Extra, valued
from recfusion.evaluation.topk import batch_rows

Kind = Literal["exact", "left out", "partly exact"]  # a sum, a difference without the source, or both


@dataclass(frozen=True)
class Reasons:
    """The contributions of sources to the scores of some items; sources are items of the history, or pairs of them.

    A source number n_items + f is feature f of the scored item.
    """

    kind: Kind
    sources: tuple[tuple[int, ...], ...]
    parts: FloatArray  # (items asked for, sources)


def exact(features: Csr, weights: FloatArray | Csr, items: IntArray, pairs: IntArray | None = None) -> Reasons:
    """Return x_i B_ij for one row of features (1, features); they add up to the scores.

    Features after the items are `pairs` of items, (pairs, 2).
    """
    n_items = weights.shape[1]
    chosen = weights[np.ix_(features.indices, items)]  # (sources, items)
    dense = chosen.toarray() if isinstance(chosen, csr_array) else chosen
    sources = [
        (int(f),) if f < n_items or pairs is None else tuple(pairs[f - n_items].tolist()) for f in features.indices
    ]
    return Reasons("exact", tuple(sources), np.ascontiguousarray((features.data[:, None] * dense).T))


def left_out(score: Callable[..., FloatArray], history: Csr, items: IntArray, extra: Extra | None = None) -> Reasons:
    """Return how much each score falls if one item of the history (1, items) is left out, for any model.

    With `extra`, the user's signals, `score` gets those of the other items as the keyword `extra`.
    """
    if extra is not None:
        known = extra
        return left_out(lambda rows: score(rows, extra=_known_of(rows, known)), history, items)
    own, n_items = history.indices, history.shape[1]
    whole = score(history)[0, items]  # (items asked for,)
    parts = np.zeros((len(items), len(own)), np.float32)
    for start in range(0, len(own), rows := batch_rows(n_items)):
        gone = np.arange(start, min(start + rows, len(own)))
        kept = np.nonzero(np.arange(len(own)) != gone[:, None])[1]
        lacking = binary_csr(np.arange(len(gone) + 1) * (len(own) - 1), own[kept], n_items)
        lacking.data[:] = history.data[kept]
        parts[:, gone] = (whole - score(lacking)[:, items]).T
    return Reasons("left out", tuple((int(item),) for item in own), parts)


def mixed(of_parts: Iterable[tuple[FloatArray, Reasons]]) -> Reasons:
    """Return the weighted sum of the contributions of several models; a weight for each item asked for."""
    weighted = list(of_parts)
    kinds = {reasons.kind for _, reasons in weighted}
    sources = list(dict.fromkeys(source for _, reasons in weighted for source in reasons.sources))
    place = {source: number for number, source in enumerate(sources)}
    total = np.zeros((weighted[0][1].parts.shape[0], len(sources)), np.float32)
    for weight, reasons in weighted:
        columns = [place[source] for source in reasons.sources]
        total[:, columns] += weight[:, None] * reasons.parts
    return Reasons(kinds.pop() if len(kinds) == 1 else "partly exact", tuple(sources), total)


def _known_of(rows: Csr, extra: Extra) -> Extra:
    """Return the signals of one user for each of `rows`, which have parts of the user's history."""

    def picked(values: Csr | None) -> Csr | None:
        return None if values is None else valued(rows, values.data[np.searchsorted(values.indices, rows.indices)])

    one = extra.rows(np.zeros(rows.shape[0], np.int64))
    return replace(one, grades=picked(extra.grades), times=picked(extra.times))
