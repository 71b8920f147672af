"""Item neighbours in one closed form: item-knn, RP3beta and Turbo-CF are its settings."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from scipy.sparse import csr_array, vstack

from recfusion.core.arrays import Csr, FloatArray, column_counts, keep_entries, row_numbers
from recfusion.core.memory import require_memory
from recfusion.core.rng import RngLike
from recfusion.data.split import Fold
from recfusion.models.base import Recommender, Shape
from recfusion.models.linear.gram import gram_bytes, gram_rows
from recfusion.models.settings import learned, setting

_POLYNOMIALS = {"linear": (1.0,), "second": (2.0, -1.0), "third": (0.71, 0.1, -0.01)}  # of W, W^2, W^3
_DOC = "polynomial of the weights W: W, 2 W - W^2, or W + .01 (-W^3 + 10 W^2 - 29 W)"


@dataclass
class ItemNeighbours(Recommender):
    """Scores r f(W) of a user's row r, with weights between an item i of the history and a candidate j

        W_ij = (sum over users who have both of |u|^-users  n_i^-history  n_j^-candidate)^power,

    where n are the items' counts. Each candidate keeps its `neighbours` largest weights, without its own; 0 keeps all.

        item-knn  the cosine: users = 0, history = candidate = 1/2
        rp3beta   a walk of three steps with popularity^-beta (Paudel et al., 2017): users = history = alpha
        turbo-cf  a polynomial graph filter (Park et al., 2024): users = 2 alpha, history = candidate = 1 - alpha
    """

    users: float = setting(0.0, "users are weighted by |u|^-users", search=(0.0, 2.0))
    history: float = setting(0.5, "items of the history are weighted by popularity^-history", search=(0.0, 1.0))
    candidate: float = setting(0.5, "candidates are weighted by popularity^-candidate", search=(0.0, 1.0))
    power: float = setting(1.0, "power of each weight", at_least=0, search=(0.3, 2.0))
    shrink: float = setting(0.0, "added to the number of shared users in the denominator", at_least=0)
    neighbours: int = setting(100, "neighbours of an item; 0 keeps all", at_least=0, search=(0, 1000))
    filter: Literal["linear", "second", "third"] = setting("linear", _DOC)
    weights_: Csr = learned()  # (items, items): from an item of the history to a candidate

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        shape = Shape.of(train)
        advice = "set neighbours to 100, say, or raise --min-users-per-item so that fewer items remain."
        require_memory(self.fit_bytes(shape), f"Neighbours of {shape.items:,} items", advice)
        self.weights_ = csr_array(vstack(list(self._columns(train)), format="csr").T.tocsr())
        return self

    def _columns(self, train: Csr) -> Iterator[Csr]:
        """Yield blocks of columns of W as rows: (candidates, items of the history)."""
        n = np.maximum(1, column_counts(train)).astype(np.float64)
        lengths = np.maximum(1, np.diff(train.indptr)).astype(np.float64)
        weighted = csr_array((lengths[row_numbers(train)] ** -self.users, train.indices, train.indptr), train.shape)
        for start, block in gram_rows(weighted, train.T.tocsr()):
            candidates = row_numbers(block) + start
            values = block.data * n[block.indices] ** -self.history * n[candidates] ** -self.candidate
            if self.shrink:
                values *= block.data / (block.data + self.shrink)
            found = csr_array(((values**self.power).astype(np.float32), block.indices, block.indptr), block.shape)
            yield (
                found
                if not self.neighbours
                else _largest(keep_entries(found, candidates != block.indices), self.neighbours)
            )

    def score(self, history: Csr) -> FloatArray:
        first, *others = _POLYNOMIALS[self.filter]
        walked = (history @ self.weights_).toarray()  # (users, items)
        scores = np.float32(first) * walked
        for coefficient in others:
            walked = walked @ self.weights_
            scores += np.float32(coefficient) * walked
        return np.asarray(scores, np.float32)

    def fit_bytes(self, shape: Shape) -> int:
        """Return the bytes of the weights, twice while they are transposed, and of a block."""
        pairs = min(shape.items**2, 4 * shape.interactions**2 // max(1, shape.users))  # about: lengths are not known
        kept = min(pairs, self.neighbours * shape.items) if self.neighbours else pairs
        return 24 * kept + gram_bytes(0, 0, shape.interactions)


def _largest(rows: Csr, count: int) -> Csr:
    """Return the `count` largest entries of each row; the first columns win a tie."""
    kept = np.zeros(rows.nnz, bool)
    order = np.lexsort((rows.indices, -rows.data, row_numbers(rows)))
    place = np.arange(rows.nnz) - rows.indptr[row_numbers(rows)]
    kept[order[place < count]] = True
    return keep_entries(rows, kept)
