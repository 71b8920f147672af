"""BSPM: blurring and sharpening of a user's row over the item graph, without training (Choi et al., 2023)."""

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from scipy.linalg import eigh

from recfusion.core.arrays import Csr, FloatArray, IntArray, column_counts
from recfusion.core.rng import RngLike
from recfusion.data.split import Fold
from recfusion.models.baselines.graph_filter import normalised
from recfusion.models.linear.ease import ItemWeights
from recfusion.models.linear.gram import blas_threads, gram, require_gram_memory
from recfusion.models.settings import setting

_MATRICES = 5.0  # items x items matrices held at the peak


@dataclass
class BSPM(ItemWeights):
    """Scores of a blurring and a sharpening process, both solved by Euler's method from a user's row r.

    With R~ = D_u^-1/2 R D_i^-1/2, P = R~'R~ and V its leading eigenvectors:
        blurring      dx/dt = x P - x, the heat equation on the item graph, for `blur_time`;
        low pass      low_pass * r D_i^-1/2 V V' D_i^1/2 is added, before sharpening ("early") or after it ("late");
        sharpening    dx/dt = -x P, for `sharpen_time`.
    Every step is linear in r, so `fit` computes the whole process as one items-by-items matrix.
    """

    factors: int = setting(192, "eigenvectors in the ideal low-pass filter", at_least=1, search=(16, 1024), log=True)
    low_pass: float = setting(0.1, "weight of the ideal low-pass filter", at_least=0, search=(0.0, 2.0))
    blur_time: float = setting(1.0, "duration of the blurring", at_least=0, search=(0.0, 2.0))
    blur_steps: int = setting(1, "Euler steps of the blurring", at_least=1, at_most=1000)
    sharpen_time: float = setting(1.0, "duration of the sharpening", at_least=0, search=(0.0, 4.0))
    sharpen_steps: int = setting(1, "Euler steps of the sharpening", at_least=1, at_most=1000)
    merge: Literal["early", "late"] = setting("late", "whether the low pass is added before or after sharpening")

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        n_items = train.shape[1]
        require_gram_memory(n_items, "BSPM", n_matrices=_MATRICES)
        with blas_threads(n_items):
            p = item_graph(train)
            low_pass = np.float32(self.low_pass) * ideal_low_pass(p, column_counts(train), self.factors)
            blurred = euler(np.eye(n_items, dtype=np.float32), p, self.blur_time, self.blur_steps, decay=1.0)
            if self.merge == "early":
                self.weights_ = euler(blurred + low_pass, p, -self.sharpen_time, self.sharpen_steps)
            else:
                self.weights_ = euler(blurred, p, -self.sharpen_time, self.sharpen_steps) + low_pass
        return self

    def n_matrices(self, n_items: int) -> float:
        return _MATRICES


def item_graph(train: Csr) -> FloatArray:
    """Return P = R~'R~ (items, items) with R~ = D_u^-1/2 R D_i^-1/2; its eigenvalues lie between 0 and 1."""
    return np.ascontiguousarray(gram(normalised(train)))


def ideal_low_pass(p: FloatArray, per_item: IntArray, factors: int) -> FloatArray:
    """Return D_i^-1/2 V V' D_i^1/2 (items, items), where V holds the leading eigenvectors of P."""
    n_items = len(p)
    leading = (max(0, n_items - factors), n_items - 1)
    _, v = eigh(p, subset_by_index=leading)  # (items, factors)
    root = np.sqrt(per_item).astype(np.float32)
    inverse = np.divide(1, root, out=np.zeros_like(root), where=root > 0)
    return np.asarray((inverse[:, None] * v) @ (v.T * root), np.float32)


def euler(x: FloatArray, p: FloatArray, time: float, steps: int, decay: float = 0.0) -> FloatArray:
    """Return the rows of x after Euler's method on dx/dt = x P - decay * x; a negative `time` runs it backwards."""
    dt = time / steps
    for _ in range(steps if time else 0):
        moved = np.float32(dt) * (x @ p)
        moved += np.float32(1 - dt * decay) * x
        x = moved
    return x
