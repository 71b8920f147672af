"""Neighbourhoods of items and their small Gram matrices.

For few items they are cut from the whole Gram matrix with numpy and LAPACK; for many items compiled loops fill them.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import sposv
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray
from recfusion.core.compiled import run_parallel
from recfusion.evaluation.topk import batch_rows, top_k
from recfusion.models.linear.gram import blas_threads, gram, parts, products
from recfusion.models.thinning.compiled_loops import fill_nearest, fill_triangles, solve_packed

WHOLE_ITEMS = 6000  # up to so many items the whole Gram matrix is held
GRAM_BYTES = 1 << 30  # of small Gram matrices held at once: more memory means fewer passes over the data
_POWER = 0.75  # co-occurrence is divided by popularity to this power

Places = NDArray[np.int32]


def nearest_of_whole(
    g: FloatArray, n: FloatArray, ridge: FloatArray, count: int, targets: slice
) -> tuple[Places, FloatArray]:
    """Return what `nearest` returns, from the whole Gram matrix; the order of neighbours differs."""
    if count >= len(g) - 1:
        found = _all_others(len(g), targets)
        return found, np.take_along_axis(g[targets], found, 1)
    own = np.arange(len(g), dtype=np.int32)[targets]
    found, shared = np.empty((len(own), count), np.int32), np.zeros((len(own), count), np.float32)
    weight = (n + ridge) ** np.float32(-_POWER)
    step = batch_rows(len(g))
    for start in range(0, len(own) if count else 0, step):
        some = slice(start, min(start + step, len(own)))
        rows = g[own[some]]
        alone = csr_array((np.ones(len(rows)), own[some], np.arange(len(rows) + 1)), shape=rows.shape)
        best, _ = top_k(np.where(rows > 0, rows * weight, -np.inf), alone, count)
        found[some] = np.where(best < 0, own[some, None], best)
        shared[some] = np.where(best < 0, 0, np.take_along_axis(rows, found[some], 1))
    return found, shared


def solve_of_whole(g: FloatArray, chosen: Places, targets: slice, towards: FloatArray, ridge: FloatArray) -> FloatArray:
    """Return what `solve_each` returns, from the whole Gram matrix."""
    solved = np.zeros(chosen.shape, np.float32)
    with blas_threads(len(g)):
        for row, target in enumerate(range(targets.start, targets.stop)):
            real = chosen[row] != target
            near = chosen[row, real]
            a = g[near[:, None], near]
            a[np.diag_indices(len(near))] += ridge[near]
            if len(near):
                _, weights, failed = sposv(a.T, towards[row, real], lower=True, overwrite_a=True)
                solved[row, real] = np.nan if failed else weights
    return solved


def nearest(
    rows: Csr, by_item: Csr, n: FloatArray, ridge: FloatArray, count: int, targets: slice = slice(None)
) -> tuple[Places, FloatArray]:
    """Return the `count` items N that say most about each target j, (targets, count), in ascending order, and G_jN.

    Items are ranked by co-occurrence over popularity, G_ij / (n_i + ridge_i)^.75: the power is between that of the
    squared error that item i alone explains (1/2) and that of its weight alone (1), and the ridge excludes chance
    neighbours of rare items. An item with too few neighbours has itself in the unused places.
    """
    n_items = by_item.shape[0]
    own = np.arange(n_items, dtype=np.int32)
    if count >= n_items - 1:  # all, even those that no user has together with the item
        found = _all_others(n_items, targets)
        return found, gram(rows)[own[targets, None], found]
    # The loop needs a place for every item; unused places take no memory.
    found, shared = np.empty((n_items, count), np.int32), np.zeros((n_items, count), np.float32)
    found[targets] = own[targets, None]
    if count:
        weight = (n + ridge) ** np.float32(-_POWER)
        work = products(rows, by_item)[targets]
        run_parallel(fill_nearest, own[targets], work, parts(rows), parts(by_item), weight, found, shared)
    return found[targets], shared[targets]


def triangles(rows: Csr, by_item: Csr, chosen: Places, targets: slice) -> FloatArray:
    """Return the lower triangle of G_NN for each target and its `chosen` N by rows, (targets, count (count + 1) / 2).

    One pass over the rows of G fills all triangles: row i goes to every target with neighbour i. Places of the target
    itself are not filled.
    """
    n_targets, count = chosen.shape
    order = np.argsort(chosen, axis=None, kind="stable")
    taken = chosen.ravel()[order]
    real = taken != order // count + targets.start
    order, taken = order[real], taken[real]
    cuts = np.searchsorted(taken, np.arange(rows.shape[1] + 1))
    wanted = np.flatnonzero(np.diff(cuts)).astype(np.int32)
    packed = np.empty((n_targets, count * (count + 1) // 2), np.float32)
    work = products(rows, by_item)[wanted]
    run_parallel(fill_triangles, wanted, work, parts(rows), parts(by_item), cuts, order, chosen, packed)
    return packed


def solve_each(
    packed: FloatArray, chosen: Places, targets: slice, towards: FloatArray, ridge: FloatArray
) -> FloatArray:
    """Return (G_NN + diag ridge_N)^-1 G_Nj for each target j, (targets, count); `packed` is overwritten.

    The solution is NaN if a matrix is not positive definite.
    """
    solved = np.empty(chosen.shape, np.float32)
    lengths = (chosen != np.arange(targets.start, targets.stop)[:, None]).sum(1)
    rows = np.arange(len(chosen))
    run_parallel(solve_packed, rows, np.ones(len(rows)), packed, lengths, chosen, towards, ridge, solved)
    return solved


def _all_others(n_items: int, targets: slice) -> Places:
    """Return all items except itself for each target, (targets, items - 1)."""
    own = np.arange(n_items, dtype=np.int32)
    return np.array([np.delete(own, j) for j in own[targets]], np.int32).reshape(-1, n_items - 1)
