"""Pairs of items as features: the second order of the linear denoiser, and its leave-one-user-out scores."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray, IntArray, column_counts, row_numbers
from recfusion.data.split import Fold
from recfusion.models.leave_one_out import along, residuals, without_user
from recfusion.models.linear.gram import blas_threads, gram

_CELLS_PER_BLOCK = 1 << 22  # users x items or pairs held at once
_USERS = 250  # users with products with P held at once


def most_frequent(g: FloatArray, count: int, at_least: float = 1) -> IntArray:
    """Return the `count` pairs i < j with the largest entries of the Gram matrix `g`, as (pairs, 2).

    Pairs with entries below `at_least` are left out; ties keep the order of the items.
    """
    n_items = len(g)
    count = min(count, n_items * (n_items - 1) // 2)
    values, pairs = np.zeros(0, np.float32), np.zeros((0, 2), np.int64)
    found = [(values, pairs)]
    least = np.nextafter(np.float32(at_least), np.float32(0))
    for i in range(n_items - 1 if count else 0):
        row = g[i + 1 :, i]  # a column, contiguous in Fortran order
        places = np.flatnonzero(row > least)
        if len(places):
            found.append((row[places], np.stack([np.full(len(places), i), places + i + 1], axis=1)))
        if i == n_items - 2 or sum(len(part) for part, _ in found) > 4 * count:  # keep only the best
            values, pairs = (np.concatenate(parts) for parts in zip(*found, strict=True))
            kept = np.sort(np.argsort(-values, kind="stable")[:count])
            values, pairs = values[kept], pairs[kept]
            found, least = [(values, pairs)], values.min() if len(values) == count else least
    return pairs


def most_frequent_of(train: Csr, count: int, at_least: float) -> IntArray:
    """Return `most_frequent` of X'X: only items with `at_least` users can have such a pair."""
    common = np.flatnonzero(column_counts(train) >= at_least)
    if not count or len(common) < 2:
        return np.zeros((0, 2), np.int64)
    return np.asarray(common[most_frequent(gram(train[:, common]), count, at_least)], np.int64)


def with_pairs(rows: Csr, pairs: IntArray) -> Csr:
    """Return [rows, pairs] (users, items + pairs): a pair's entry is the product of the entries of its two items."""
    n_users, n_items = rows.shape
    step = max(1, _CELLS_PER_BLOCK // max(1, n_items, len(pairs)))
    found, counts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    weighted, products = bool(np.any(rows.data != 1)), [np.zeros(0, np.float32)]
    for start in range(0, n_users, step):
        block = rows if n_users <= step else rows[start : start + step]
        there = np.zeros(block.shape, bool)
        there[row_numbers(block), block.indices] = True
        both = there[:, pairs[:, 0]] & there[:, pairs[:, 1]]
        found.append(n_items + np.flatnonzero(both) % max(1, len(pairs)))
        counts.append(np.count_nonzero(both, axis=1))
        if weighted:
            values = np.zeros(block.shape, np.float32)
            values[row_numbers(block), block.indices] = block.data
            user, pair = np.nonzero(both)
            products.append(values[user, pairs[pair, 0]] * values[user, pairs[pair, 1]])
    lengths, more = np.diff(rows.indptr), np.concatenate(counts)
    place = np.arange(rows.nnz) + np.repeat(np.cumsum(more) - more, lengths)  # the items of a row come before its pairs
    of_pairs = np.ones(rows.nnz + int(more.sum()), bool)
    of_pairs[place] = False
    indices = np.empty(len(of_pairs), rows.indices.dtype)
    indices[place], indices[of_pairs] = rows.indices, np.concatenate(found)
    values = np.ones(len(of_pairs), np.float32)
    if weighted:
        values[place], values[of_pairs] = rows.data, np.concatenate(products)
    starts = np.append(0, np.cumsum(lengths + more)).astype(rows.indptr.dtype)
    return csr_array((values, indices, starts), shape=(n_users, n_items + len(pairs)))


def rescale(c: FloatArray, pairs: IntArray, n_items: int, q: float) -> None:
    """Turn co-occurrences C_(a union b) into the Gram matrix of thinned, rescaled features, in place.

    If a share q of the ones survives and features are divided by their own survival, q^|a|, the expected product of
    features a and b is q^(|a union b| - |a| - |b|) C = q^-|a intersect b| C.
    """
    n_features = n_items + len(pairs)
    feature = np.concatenate([np.arange(n_items), np.repeat(np.arange(n_items, n_features), 2)])
    item = np.concatenate([np.arange(n_items), pairs.ravel()])
    contains = csr_array((np.ones(len(item), np.float32), (feature, item)), shape=(n_features, n_items))
    shared = (contains @ contains.T).tocoo()  # |a intersect b|
    c[shared.row, shared.col] *= np.float32(q) ** -shared.data


def exclude_own(p: FloatArray, pairs: IntArray, n_items: int) -> FloatArray:
    """Return B (features, items) for P = (G + ridge)^-1 (features, features), which is overwritten.

    Target j is predicted from the features that do not contain it. With S = {j} and the pairs that contain j,
    B_.j = -P_.S (P_SS)^-1 e_j, and 0 on S. Only target j uses column j of P, so that it can be overwritten.
    """
    own = own_features(pairs, n_items)
    plain = np.array([len(each) == 1 for each in own], bool)
    for j in np.flatnonzero(plain):
        p[:, j] /= -p[j, j]
        p[j, j] = 0
    with blas_threads(len(p)):
        for j in np.flatnonzero(~plain):
            s = own[j]
            p_s = p[:, s]  # (features, |S|)
            unit = np.zeros(len(s), np.float64)
            unit[0] = 1
            mix = np.linalg.solve(p_s[s].astype(np.float64), unit)
            p[:, j] = -(p_s @ mix.astype(np.float32))
            p[s, j] = 0
    return np.ascontiguousarray(p[:, :n_items])


def own_features(pairs: IntArray, n_items: int) -> list[IntArray]:
    """Return S_j for each item j: the features that contain it, j itself first."""
    owner = pairs.ravel()
    order = np.argsort(owner, kind="stable")
    own = np.split(order // 2 + n_items, np.searchsorted(owner[order], np.arange(1, n_items)))
    return [np.concatenate([[j], each]) for j, each in enumerate(own)]


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
        own = own_features(pairs, n_items)
        rowwise = p.T  # symmetric: the transpose is P in the memory order for products
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
