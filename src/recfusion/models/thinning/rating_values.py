"""What a grade or count of n weighs as a feature.

Thinning of units: n stars or plays are n units, each of which survives with chance a, so that B(n, a) of them do. Then
E[z_i z_k] = a^2 n_i n_k and E[z_i^2] = a^2 n_i^2 + a (1 - a) n_i: the Gram matrix of the counts, and on its diagonal
the noise kappa times the sum of the units, where thinned ones have kappa times their number (docs/signals.md).
"""

from typing import Literal

import numpy as np

from recfusion.core.arrays import Csr, FloatArray

Transform = Literal["binary", "units", "log", "saturating"]


def graded(grades: Csr | None, transform: Transform, median: float, unit: float) -> FloatArray:
    """Return what each stored entry weighs, in units of `unit`; a grade that is not known weighs what the median does.

    A count below 0 cannot be thinned and weighs nothing.
    """
    n = np.maximum(np.asarray(median if grades is None else grades.data, np.float64), 0)
    if transform == "binary":
        return np.ones(n.shape, np.float32)
    if transform == "log":
        n = np.log1p(n)
    elif transform == "saturating":
        n = n / np.maximum(n + max(median, 1e-12), 1e-12)
    return np.asarray(n / max(unit, 1e-12), np.float32)
