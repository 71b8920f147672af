"""Dividing scores by a power of popularity: a prior that needs no new fit to be tried."""

from collections.abc import Callable, Sequence

import numpy as np

from recfusion.core.arrays import Csr, FloatArray, column_counts
from recfusion.data.split import Fold
from recfusion.models.selftune import Judged, ndcg

POWERS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
_RAREST = 1e-3  # popularity, in units of the mean, below which an item counts as if it had that much


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
