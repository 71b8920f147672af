"""Leave-one-user-out scores of the linear denoiser with pairs, where each target excludes its own features."""

from dataclasses import dataclass

import numpy as np

from recfusion.core.arrays import Csr, FloatArray, IntArray
from recfusion.data.split import Fold
from recfusion.models.leave_one_out import along, residuals, without_user
from recfusion.models.thinning.pairs import own_features, with_pairs

_USERS = 250  # users with products with P held at once


@dataclass(frozen=True)
class PairsLeftOut:
    """The parts of P that left-out scores need, computed before the weights overwrite P."""

    rows: Csr  # (users, features)
    queries: Csr  # (users, features)
    targets: Csr  # (users, items)
    user_weights: FloatArray  # (users,)
    leverage: FloatArray  # (users, items): x'A^-1 x over the features that target j may use
    across: FloatArray  # (users, items): z'A^-1 x

    @classmethod
    def of(cls, train: Csr, fold: Fold, user_weights: FloatArray, p: FloatArray, pairs: IntArray) -> "PairsLeftOut":
        """Compute them from P = (G + penalties)^-1 (features, features) for the users of `fold`, rows of `train`."""
        n_items = train.shape[1]
        targets = train[fold.users]
        rows, queries = with_pairs(targets, pairs), with_pairs(fold.history, pairs)
        own, rowwise = (
            own_features(pairs, n_items),
            p.T,
        )  # symmetric: the transpose is P in the memory order for products
        leverage = np.empty((rows.shape[0], n_items), p.dtype)
        across = np.empty_like(leverage)
        for start in range(0, rows.shape[0], _USERS):
            part = slice(start, start + _USERS)
            x, z = np.asarray(rows[part] @ rowwise), np.asarray(queries[part] @ rowwise)  # (users, features)
            with_itself, with_query = block_products(p, own, x, z)
            leverage[part] = along(rows[part], x)[:, None] - with_itself
            across[part] = along(queries[part], x)[:, None] - with_query
        return cls(rows, queries, targets, user_weights[fold.users], leverage, across)

    def scores(self, places: slice, weights: FloatArray) -> FloatArray:
        """Return the scores (users, items) of these users' shown items, by fits without each of them."""
        residual = residuals(self.targets[places], self.rows[places], weights)
        scores = np.asarray(self.queries[places] @ weights)
        fixed = self.leverage[places], self.across[places], self.user_weights[places]
        return without_user(scores, residual, *fixed)


def block_products(p: FloatArray, own: list[IntArray], x: FloatArray, z: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return x_S' (P_SS)^-1 x_S and z_S' (P_SS)^-1 x_S for the features S_j of each target, (users, items).

    `own` lists S_j, target j first; `x` and `z` are users' rows times P, (users, features).
    """
    diagonal = np.diag(p)[: len(own)]
    pulled = x[:, : len(own)] / diagonal
    with_itself = (x[:, : len(own)] * pulled).astype(x.dtype)
    with_query = (z[:, : len(own)] * pulled).astype(x.dtype)
    for j, s in enumerate(own):
        if len(s) > 1:
            theirs = x[:, s]
            solved = np.linalg.solve(p[np.ix_(s, s)].astype(np.float64), theirs.T.astype(np.float64)).T
            with_itself[:, j] = (theirs * solved).sum(axis=1)
            with_query[:, j] = (z[:, s] * solved).sum(axis=1)
    return with_itself, with_query
