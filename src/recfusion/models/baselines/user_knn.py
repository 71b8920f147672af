"""Nearest training users: the model user-knn, and an input of recfusion-unet2d."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray, column_counts
from recfusion.core.rng import RngLike
from recfusion.data.split import Fold
from recfusion.evaluation.topk import batch_rows, top_k
from recfusion.models.base import Recommender, Shape
from recfusion.models.self_tuning import relative
from recfusion.models.settings import learned, setting


class NearestUsers:
    """Finds training users by the cosine between weighted rows."""

    def __init__(self, rows: Csr, item_weights: FloatArray) -> None:
        self.rows, self._weights = rows, item_weights
        self._unit = csr_array(_unit(rows, item_weights).T)  # (items, users)
        self._by_row: dict[bytes, list[int]] = {}
        for user in range(rows.shape[0]):
            self._by_row.setdefault(_key(rows, user), []).append(user)

    def average(self, history: Csr, k: int, without: Csr | None = None) -> FloatArray:
        """Return the average of the k nearest rows of each history, weighted by similarity, (histories, items).

        without: rows (histories, items); training rows equal to a history's row of it are excluded, such as the user's
        own. The average is 0 for a history with nothing in common with any user; the first users win a tie.
        """
        n_users = self.rows.shape[0]
        found = np.zeros(history.shape, np.float32)
        step = batch_rows(n_users)
        nobody = csr_array((step, n_users), dtype=np.float32)
        for start in range(0, history.shape[0], step):
            part = slice(start, start + step)
            likeness = (_unit(history[part], self._weights) @ self._unit).toarray()  # (histories, users)
            likeness[likeness <= 0] = -np.inf
            if without is not None:
                for row in range(len(likeness)):
                    likeness[row, self._by_row.get(_key(without, start + row), [])] = -np.inf
            users, values = top_k(likeness, nobody[: len(likeness)], k)
            there = users >= 0
            shares = np.where(there, values, 0) / np.maximum(np.sum(values, 1, where=there, keepdims=True), 1e-12)
            starts = np.concatenate([[0], np.cumsum(there.sum(1))])
            chosen = csr_array((shares[there].astype(np.float32), users[there], starts), shape=likeness.shape)
            found[part] = (chosen @ self.rows).toarray()
        return found


@dataclass
class UserKNN(Recommender):
    """The items of the nearest training users, weighted by similarity."""

    neighbours: int = setting(100, "nearest training users", at_least=1, search=(10, 400), log=True)
    input_power: float = setting(0.25, "items have the weight count^-input_power", search=(0.0, 0.5))
    rows_: Csr = learned()  # (training users, items)

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        self.rows_ = train
        return self

    def score(self, history: Csr) -> FloatArray:
        known: NearestUsers | None = getattr(self, "_nearest", None)
        if known is None or known.rows is not self.rows_:  # not built since the last fit
            known = self._nearest = NearestUsers(self.rows_, input_weights(self.rows_, self.input_power))
        return known.average(history, self.neighbours)

    def fit_bytes(self, shape: Shape) -> int:
        return 0  # the fitted model is the data

    @property
    def keeps_histories(self) -> bool:
        return True


def input_weights(train: Csr, power: float) -> FloatArray:
    """Return the input weights of items, (n / mean n)^-power, (items,)."""
    return relative(column_counts(train).astype(np.float32)) ** np.float32(-power)


def _unit(rows: Csr, weights: FloatArray) -> Csr:
    weighted = csr_array((rows.data * weights[rows.indices], rows.indices, rows.indptr), shape=rows.shape)
    lengths = np.sqrt(np.maximum(weighted.multiply(weighted).sum(1), 1e-12))
    per_entry = np.repeat(lengths, np.diff(rows.indptr))
    return csr_array((weighted.data / per_entry, rows.indices, rows.indptr), shape=rows.shape)


def _key(rows: Csr, row: int) -> bytes:
    return np.sort(rows.indices[rows.indptr[row] : rows.indptr[row + 1]].astype(np.int64)).tobytes()
