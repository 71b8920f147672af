"""Graph filters: a user's row, filtered over the normalised item graph without training (GF-CF, ChebyCF)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.polynomial import chebyshev
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray, column_counts, row_numbers
from recfusion.core.rng import RngLike, make_rng
from recfusion.data.split import Fold
from recfusion.models.base import Recommender, Shape
from recfusion.models.settings import learned, setting
from recfusion.models.thinning.low_rank import SPARE, leading

_FACTORS_DOC = "eigenvectors in the ideal low-pass filter"
_SHARE = 4  # at most a quarter of the spectrum is low: all of it would return the row itself


@dataclass
class GraphFilter(Recommender):
    """Scores r D^-p h(P) D^p + low_pass r D^-q V V' D^q of a user's row r, where D holds the items' counts.

    With R~ = D_u^-1/2 R D^-1/2 and P = R~'R~, which has eigenvalues from 0 to 1, V are the leading eigenvectors: the
    ideal low-pass filter. The filter h is P itself ("linear", GF-CF of Shen et al., 2021), a polynomial of degree
    `order` that is flat in the middle of the spectrum ("plateau", ChebyCF of Kim et al., 2025), or left out ("none"),
    so that the model holds nothing but V.
    """

    filter: Literal["linear", "plateau", "none"] = setting("linear", "the filter of the whole spectrum")
    power: float = setting(0.0, "rows are divided by popularity^p, filtered, and multiplied by it (p)", search=(0, 1))
    low_pass: float = setting(0.3, "weight of the ideal low-pass filter", at_least=0, search=(0.0, 2.0))
    low_pass_power: float = setting(0.5, "the same power for the ideal low-pass filter (q)", search=(0, 1))
    factors: int = setting(256, _FACTORS_DOC, at_least=1, at_most=100_000, search=(16, 1024), log=True)
    order: int = setting(8, "degree of the plateau", at_least=1, at_most=100)
    flatness: float = setting(1.5, "flatness of the plateau", at_least=0, search=(0.5, 20.0))
    rows_: Csr = learned()  # (users, items): R~, or no rows without a filter of the whole spectrum
    counts_: FloatArray = learned()  # (items,)
    v_: FloatArray = learned()  # (items, factors)

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        rows = normalised(train)
        n_items, generator = train.shape[1], make_rng(rng)
        self.counts_ = column_counts(train).astype(np.float32)
        count = min(self.factors, max(1, n_items // _SHARE))
        self.v_ = leading(rows, np.ones(n_items, np.float32), count, generator)[1]
        self.rows_ = rows[:0] if self.filter == "none" else rows
        return self

    def score(self, history: Csr) -> FloatArray:
        low_pass = (_scaled(history, self._weights(-self.low_pass_power)) @ self.v_) @ self.v_.T
        scores = np.float32(self.low_pass) * self._weights(self.low_pass_power) * low_pass
        if self.filter == "none":
            return np.asarray(scores, np.float32)
        coefficients = plateau(self.order, self.flatness) if self.filter == "plateau" else np.array([0.5, -0.5])
        signal = np.ascontiguousarray(_scaled(history, self._weights(-self.power)).toarray().T)  # (items, users)
        filtered = sum(np.float32(c) * t for c, t in zip(coefficients, self._polynomials(signal), strict=False))
        return np.asarray(scores + self._weights(self.power) * np.transpose(filtered), np.float32)

    def _weights(self, power: float) -> FloatArray:
        """Return popularity to a power, 0 for items without users."""
        return np.where(self.counts_ > 0, np.maximum(self.counts_, 1) ** np.float32(power), 0)

    def _polynomials(self, x: FloatArray) -> Iterator[FloatArray]:
        """Yield T_k(I - 2P) x for the Chebyshev polynomials T_0, T_1, ...; the spectrum of I - 2P is -1 to 1."""
        before, last = x, x - 2 * (self.rows_.T @ (self.rows_ @ x))
        yield before
        while True:
            yield last
            before, last = last, 2 * last - 4 * (self.rows_.T @ (self.rows_ @ last)) - before

    def fit_bytes(self, shape: Shape) -> int:
        """Return about how many bytes the fit holds at its peak: the vectors of the subspace iteration."""
        width = min(self.factors, shape.items) + SPARE
        return 24 * shape.interactions + 4 * width * (6 * shape.items + shape.users)

    @property
    def keeps_histories(self) -> bool:
        return self.filter != "none"


def normalised(train: Csr) -> Csr:
    """Return R~ = D_u^-1/2 R D_i^-1/2."""
    per_user, per_item = np.diff(train.indptr), column_counts(train).astype(np.float64)
    values = 1 / np.sqrt(per_user[row_numbers(train)] * per_item[train.indices])
    return csr_array((values.astype(np.float32), train.indices, train.indptr), shape=train.shape)


def plateau(order: int, flatness: float) -> FloatArray:
    """Return the Chebyshev coefficients, (order + 1,), of ChebyCF's filter as a polynomial in I - 2P.

    The filter falls from 1 at the lowest frequency to 1/2 in the middle and 0 at the highest one. As in the authors'
    code, its values at the extrema of T_order are interpolated at the roots of T_(order + 1).
    """
    x = -np.cos(np.arange(order + 1) * np.pi / order)
    values = 0.5 - 0.5 * np.sign(x) * np.abs(x) ** flatness
    roots = -np.cos((np.arange(order + 1) + 0.5) * np.pi / (order + 1))
    return np.linalg.solve(chebyshev.chebvander(roots, order), values)


def _scaled(history: Csr, weights: FloatArray) -> Csr:
    return csr_array((history.data * weights[history.indices], history.indices, history.indptr), shape=history.shape)
