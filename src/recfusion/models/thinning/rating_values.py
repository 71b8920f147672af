"""The weight of a rating or count n as a feature.

Thinning of units: n stars or plays are n units that each survive with probability a, so that B(n, a) survive. Then
E[z_i z_k] = a^2 n_i n_k and E[z_i^2] = a^2 n_i^2 + a (1 - a) n_i: the Gram matrix of the counts, and on its diagonal
the noise kappa times the sum of the units; for thinned ones it is kappa times their number (docs/signals.md).
"""

from typing import Literal

import numpy as np

from recfusion.core.arrays import Csr, FloatArray

Transform = Literal["binary", "units", "log", "saturating"]


def graded(grades: Csr | None, transform: Transform, median: float, unit: float) -> FloatArray:
    """Return the weight of each stored entry, divided by `unit`; an unknown rating counts as the median.

    A count below 0 cannot be thinned and has weight 0.
    """
    n = np.maximum(np.asarray(median if grades is None else grades.data, np.float64), 0)
    if transform == "binary":
        return np.ones(n.shape, np.float32)
    if transform == "log":
        n = np.log1p(n)
    elif transform == "saturating":
        n = n / np.maximum(n + max(median, 1e-12), 1e-12)
    return np.asarray(n / max(unit, 1e-12), np.float32)
