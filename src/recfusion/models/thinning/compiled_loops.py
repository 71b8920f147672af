"""Loops of local thinning that numba compiles: nearest items, small Gram matrices and their solutions, products."""

import numpy as np

from recfusion.core.arrays import FloatArray, IntArray


def fill_nearest(
    items: IntArray,
    rows: tuple[IntArray, IntArray, FloatArray],
    by_item: tuple[IntArray, IntArray, FloatArray],
    weight: FloatArray,
    found: IntArray,
    shared: FloatArray,
) -> None:
    """Fill `found` and `shared` (items, count): the others k with the most G_jk weight_k, ascending, and their G_jk.

    `rows` and `by_item` are (indptr, indices, data) of X and X'. Of equal gains the lower number wins. Unused places
    stay as they are.
    """
    indptr, indices, data = rows
    starts, users, values = by_item
    count = found.shape[1]
    whole = np.zeros(len(weight), np.float32)
    touched = np.empty(len(weight), np.int32)
    gains, best = np.empty(count, np.float32), np.empty(count, np.int32)  # a heap with the worst on top
    for j in items:
        n_touched = 0
        for place in range(starts[j], starts[j + 1]):
            user, value = users[place], values[place]
            for at in range(indptr[user], indptr[user + 1]):
                k = indices[at]
                if whole[k] == 0:
                    touched[n_touched] = k
                    n_touched += 1
                whole[k] += value * data[at]
        size = 0
        for place in range(n_touched):
            k = touched[place]
            gain = whole[k] * weight[k]
            if k == j:
                continue
            if size < count:  # a new leaf, moved up
                hole = size
                size += 1
                while hole > 0:
                    above = (hole - 1) // 2
                    if gains[above] < gain or (gains[above] == gain and best[above] > k):
                        break
                    gains[hole], best[hole] = gains[above], best[above]
                    hole = above
            elif gains[0] < gain or (gains[0] == gain and best[0] > k):  # in place of the worst, moved down
                hole = 0
                while 2 * hole + 1 < size:
                    below = 2 * hole + 1
                    right = below + 1
                    if right < size and (
                        gains[right] < gains[below] or (gains[right] == gains[below] and best[right] > best[below])
                    ):
                        below = right
                    if gain < gains[below] or (gain == gains[below] and k > best[below]):
                        break
                    gains[hole], best[hole] = gains[below], best[below]
                    hole = below
            else:
                continue
            gains[hole], best[hole] = gain, k
        best[:size].sort()
        for place in range(size):
            found[j, place] = best[place]
            shared[j, place] = whole[best[place]]
        for place in range(n_touched):
            whole[touched[place]] = 0


def fill_triangles(
    items: IntArray,
    rows: tuple[IntArray, IntArray, FloatArray],
    by_item: tuple[IntArray, IntArray, FloatArray],
    cuts: IntArray,
    order: IntArray,
    chosen: IntArray,
    packed: FloatArray,
) -> None:
    """Fill row p of the lower triangle of G_NN for every place (target, p) of `chosen` that holds one of `items`.

    The places of item i are order[cuts[i] : cuts[i + 1]], as target * count + p. A triangle is packed row by row.
    Neighbours and the indices of `rows` ascend: only columns up to i are summed.
    """
    indptr, indices, data = rows
    starts, users, values = by_item
    count = chosen.shape[1]
    whole = np.zeros(len(starts) - 1, np.float32)
    for i in items:
        work = 0
        for place in range(starts[i], starts[i + 1]):
            user, value = users[place], values[place]
            for at in range(indptr[user], indptr[user + 1]):
                k = indices[at]
                if k > i:
                    break
                whole[k] += value * data[at]
                work += 1
        for wanted in order[cuts[i] : cuts[i + 1]]:
            target, p = wanted // count, wanted % count
            first = p * (p + 1) // 2
            for q in range(p + 1):
                packed[target, first + q] = whole[chosen[target, q]]
        if work > i // 8:  # clearing everything is quicker than clearing many single places
            whole[: i + 1] = 0
        else:
            for place in range(starts[i], starts[i + 1]):
                for at in range(indptr[users[place]], indptr[users[place] + 1]):
                    if indices[at] > i:
                        break
                    whole[indices[at]] = 0


def solve_packed(
    rows: IntArray,
    packed: FloatArray,
    lengths: IntArray,
    chosen: IntArray,
    towards: FloatArray,
    ridge: FloatArray,
    solved: FloatArray,
) -> None:
    """Fill these rows of `solved` with (G_NN + diag ridge_N)^-1 G_Nj, by Cholesky factors in place.

    On one core LAPACK is as quick for 50 neighbours and takes half the time for 100 (`benchmarks/local_solves.py`), but
    it needs both triangles, so twice the memory or twice the passes, and holds the lock between its calls. A row has
    the first lengths[row] neighbours of its row of `chosen`; the rest of `solved` is 0. The solution is NaN if the
    matrix is not positive definite.
    """
    for row in rows:
        a, x, n = packed[row], solved[row], lengths[row]
        for p in range(n):
            begin = p * (p + 1) // 2
            for q in range(p):
                other = q * (q + 1) // 2
                total = np.float32(0)
                for r in range(q):
                    total += a[begin + r] * a[other + r]
                a[begin + q] = (a[begin + q] - total) * a[other + q]  # diagonals are stored as their inverses
            total = np.float32(0)
            for r in range(p):
                total += a[begin + r] * a[begin + r]
            rest = a[begin + p] + ridge[chosen[row, p]] - total
            a[begin + p] = np.float32(1) / np.sqrt(rest) if rest > 0 else np.float32(np.nan)
        for p in range(n):  # L y = G_Nj
            begin = p * (p + 1) // 2
            total = np.float32(0)
            for r in range(p):
                total += a[begin + r] * x[r]
            x[p] = (towards[row, p] - total) * a[begin + p]
        for p in range(n - 1, -1, -1):  # L' w = y
            begin = p * (p + 1) // 2
            x[p] *= a[begin + p]
            for r in range(p):
                x[r] -= a[begin + r] * x[p]
        x[n:] = 0


def fill_product(
    rows: IntArray, sparse: tuple[IntArray, IntArray, FloatArray], dense: FloatArray, out: FloatArray
) -> None:
    """Add these rows of a sparse matrix, (indptr, indices, data), times a dense one to `out`."""
    indptr, indices, data = sparse
    for row in rows:
        total = out[row]
        for at in range(indptr[row], indptr[row + 1]):
            value, other = data[at], dense[indices[at]]
            for column in range(len(total)):
                total[column] += value * other[column]
