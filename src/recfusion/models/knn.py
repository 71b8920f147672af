"""The nearest training users: their average row is a recommender of its own, and what a U-Net may look at besides."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray, IntArray, column_counts
from recfusion.core.rng import RngLike
from recfusion.data.split import Fold
from recfusion.models.base import Recommender, Shape
from recfusion.models.selftune import relative
from recfusion.models.settings import learned, setting


class NearestUsers:
    """Training users by the cosine of their weighted rows with somebody's."""

    def __init__(self, rows: Csr, item_weights: FloatArray) -> None:
        self.rows, self._weights = rows, item_weights
        self._unit = csr_array(_unit(rows, item_weights).T)  # (items, users)
        self._by_row: dict[bytes, list[int]] = {}
        for user in range(rows.shape[0]):
            self._by_row.setdefault(_key(rows, user), []).append(user)

    def average(self, history: Csr, k: int, without: Csr | None = None) -> FloatArray:
        """Return the average of each history's k nearest rows, weighted by similarity, (histories, items).

        without: rows (histories, items), those equal to which are nobody's neighbours: a user's own among them. Who has
        nothing in common with anybody has an average of zeros.
        """
        likeness = csr_array(_unit(history, self._weights) @ self._unit)  # (histories, users)
        parts = []
        for row in range(likeness.shape[0]):
            users, values = _row(likeness, row)
            if without is not None:
                known = ~np.isin(users, self._by_row.get(_key(without, row), []))
                users, values = users[known], values[known]
            parts.append(_largest(users, values, k))
        counts = [len(users) for users, _ in parts]
        columns = np.concatenate([users for users, _ in parts]) if parts else np.zeros(0, np.int64)
        shares = [values / values.sum() for _, values in parts]
        data = np.concatenate(shares).astype(np.float32) if parts else np.zeros(0, np.float32)
        chosen = csr_array((data, columns, np.cumsum([0, *counts])), shape=likeness.shape)
        return (chosen @ self.rows).toarray()


@dataclass
class UserKNN(Recommender):
    """What the nearest training users have, weighted by how near they are."""

    neighbours: int = setting(100, "nearest training users", at_least=1, search=(10, 400), log=True)
    input_power: float = setting(0.25, "items count with their number of users to minus this power", search=(0.0, 0.5))
    rows_: Csr = learned()  # (training users, items)

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        self.rows_ = train
        return self

    def score(self, history: Csr) -> FloatArray:
        known: NearestUsers | None = getattr(self, "_nearest", None)
        if known is None or known.rows is not self.rows_:  # not yet, or fitted anew since
            known = self._nearest = NearestUsers(self.rows_, input_weights(self.rows_, self.input_power))
        return known.average(history, self.neighbours)

    def fit_bytes(self, shape: Shape) -> int:
        """Return 0: it is the data."""
        return 0

    @property
    def keeps_histories(self) -> bool:
        return True


def input_weights(train: Csr, power: float) -> FloatArray:
    """Return (n / mean n)^-power, the weights with which items enter, (items,)."""
    return relative(column_counts(train).astype(np.float32)) ** np.float32(-power)


def _unit(rows: Csr, weights: FloatArray) -> Csr:
    weighted = csr_array((rows.data * weights[rows.indices], rows.indices, rows.indptr), shape=rows.shape)
    lengths = np.sqrt(np.maximum(weighted.multiply(weighted).sum(1), 1e-12))
    per_entry = np.repeat(lengths, np.diff(rows.indptr))
    return csr_array((weighted.data / per_entry, rows.indices, rows.indptr), shape=rows.shape)


def _row(matrix: Csr, row: int) -> tuple[IntArray, FloatArray]:
    entries = slice(matrix.indptr[row], matrix.indptr[row + 1])
    return matrix.indices[entries].astype(np.int64), matrix.data[entries]


def _key(rows: Csr, row: int) -> bytes:
    return np.sort(_row(rows, row)[0]).tobytes()


def _largest(users: IntArray, values: FloatArray, k: int) -> tuple[IntArray, FloatArray]:
    """Return the k nearest users; of equally near ones the first."""
    if len(users) > k:
        order = np.lexsort((users, -values))[:k]
        users, values = users[order], values[order]
    return users, values
