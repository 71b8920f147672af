"""Leave-one-user-out scores in closed form: the scores of a training user's shown items by a fit without that user.

They follow from the residuals of the weighted least-squares fit. Penalties are held fixed: they depend on the counts of
all users and do not change when one user is left out. The proof is in docs/explanation/thinning.md.
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray, keep_entries, row_numbers
from recfusion.data.split import Fold

SHOWN = 0.8  # share of a user's items that is shown if there are no validation users


def left_out(train: Csr, most: int, rng: np.random.Generator, shown: float = SHOWN) -> Fold:
    """Return an even choice of training users, with a share of each row shown and the rest held out.

    `users` are rows of `train`. Users with a single item are left out.
    """
    able = np.flatnonzero(np.diff(train.indptr) >= 2)
    if most < 1:
        return nobody(train)
    if len(able) > most:
        able = able[np.linspace(0, len(able) - 1, most).astype(np.int64)]
    rows = train[able]
    lengths = np.diff(rows.indptr)
    order = np.lexsort((rng.random(rows.nnz), row_numbers(rows)))
    rank = np.empty(rows.nnz, np.int64)
    rank[order] = np.arange(rows.nnz) - np.repeat(rows.indptr[:-1], lengths)
    kept = rank < np.repeat(np.clip(np.rint(shown * lengths), 1, lengths - 1), lengths)
    return Fold(able, keep_entries(rows, kept), keep_entries(rows, ~kept))


def nobody(train: Csr) -> Fold:
    """Return a fold without users."""
    return Fold(np.zeros(0, np.int64), train[:0], train[:0])


def share_shown(fold: Fold) -> float:
    """Return the share of their items that the users of a fold show."""
    return fold.history.nnz / max(1, fold.history.nnz + fold.held_out.nnz)


@dataclass(frozen=True)
class LeftOut:
    """Scores of training users by an item-to-item model fitted without them."""

    train: Csr
    fold: Fold
    user_weights: FloatArray  # (users of train,)
    weights: FloatArray  # (items, items): B
    diagonal: FloatArray  # (items,): that of P

    def scores(self, places: slice) -> FloatArray:
        """Return scores (users, items) for some of the fold's users."""
        return self.scores_and_diagonal(places)[0]

    def scores_and_diagonal(self, places: slice, scale: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
        """Return scores and the diagonals of P, (users, items); shown items are weighted by `scale`."""
        users, queries = self.fold.users[places], self.fold.history[places]
        if scale is not None:
            values = queries.data * scale[queries.indices]
            queries = csr_array((values, queries.indices, queries.indptr), shape=queries.shape)
        return linear_scores(self.weights, self.diagonal, self.train[users], queries, self.user_weights[users])


def linear_scores(
    weights: FloatArray, diagonal: FloatArray, rows: Csr, queries: Csr, user_weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the scores of each query by a fit without its row, and the diagonal of that fit's P, (rows, items).

    `weights` are B_ij = -P_ij / P_jj with 0 on the diagonal, `diagonal` is P_jj. Scores of a query's own items are
    meaningless. With the residual r = x - xB everything follows from B: P x = diagonal * r.
    """
    scores = np.asarray(queries @ weights)  # (rows, items)
    residual = residuals(rows, rows, weights)
    pulled = diagonal * residual  # P x
    own = along(rows, pulled)  # x'Px
    shared = along(queries, pulled)  # z'Px
    leverage = own[:, None] - pulled * residual
    across = shared[:, None] + pulled * scores
    w = user_weights[:, None]
    without = diagonal + w * np.square(pulled) / (1 - w * own[:, None])
    return without_user(scores, residual, leverage, across, user_weights), without


def without_user(
    scores: FloatArray, residual: FloatArray, leverage: FloatArray, across: FloatArray, user_weights: FloatArray
) -> FloatArray:
    """Return the scores (rows, items) of a weighted ridge regression without each row; `scores` are overwritten.

    With A the Gram matrix plus penalties of the features that target j may use, `leverage` is x'A^-1 x and `across`
    z'A^-1 x, both (rows, items): loo_j = z'b - w r z'A^-1 x / (1 - w x'A^-1 x).
    """
    w = user_weights[:, None]
    scores -= w * residual * across / (1 - w * leverage)
    return scores


def residuals(rows: Csr, features: Csr, weights: FloatArray) -> FloatArray:
    """Return the residuals x - fB of a fit, (rows, items)."""
    residual = np.asarray(features @ weights)
    np.negative(residual, out=residual)
    residual[row_numbers(rows), rows.indices] += rows.data
    return residual


def along(rows: Csr, dense: FloatArray) -> FloatArray:
    """Return the inner product of each row with the same row of `dense`, (rows,)."""
    at = row_numbers(rows)
    products = rows.data * dense[at, rows.indices]
    return np.bincount(at, products, minlength=rows.shape[0]).astype(dense.dtype)
