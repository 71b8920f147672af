"""The distribution of history lengths; every length has a positive probability."""

import numpy as np
from numpy.typing import NDArray

from recfusion.core.arrays import IntArray

_SPREAD = 1e-3  # probability that is spread evenly over all lengths


def length_shares(lengths: IntArray, n_items: int) -> NDArray[np.float64]:
    """Return the share of users with 0, 1, ..., n_items items, (n_items + 1,); `lengths` counts the training users."""
    counts = np.zeros(n_items + 1)
    counts[: len(lengths)] = lengths[: n_items + 1]
    shares: NDArray[np.float64] = (1 - _SPREAD) * counts / max(1, counts.sum()) + _SPREAD / len(counts)
    return shares
