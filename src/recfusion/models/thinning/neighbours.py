"""Neighbourhoods of items and their small Gram matrices; the items-by-items matrix is never held whole."""

import numpy as np
from numpy.typing import NDArray

from recfusion.core.arrays import Csr, FloatArray
from recfusion.core.compiled import share
from recfusion.models.gram import gram, parts, products
from recfusion.models.thinning.loops import fill_nearest, fill_triangles, solve_packed

_POWER = 0.75  # of popularity, that co-occurrence is divided by
GRAM_BYTES = 1 << 30  # small Gram matrices held at once: more of them mean fewer passes over the data

Places = NDArray[np.int32]


def nearest(
    rows: Csr, by_item: Csr, n: FloatArray, ridge: FloatArray, count: int, targets: slice = slice(None)
) -> tuple[Places, FloatArray]:
    """Return the `count` items N that say most about each target j, (targets, count), in ascending order, and G_jN.

    That is by co-occurrence over popularity, G_ij / (n_i + ridge_i)^.75: the power stands between what item i alone
    takes off the squared error (1/2) and its weight alone (1), and the ridge keeps chance neighbours of rare items out.
    An item with fewer others beside it has itself in the places left over.
    """
    n_items = by_item.shape[0]
    own = np.arange(n_items, dtype=np.int32)
    if count >= n_items - 1:  # all of them, also those that no user has together with the item
        others = [np.delete(own, j) for j in own[targets]]
        found = np.array(others, np.int32).reshape(len(others), n_items - 1)
        return found, gram(rows)[own[targets, None], found]
    # The loop has a place for every item; of those of others no memory is taken.
    found, shared = np.empty((n_items, count), np.int32), np.zeros((n_items, count), np.float32)
    found[targets] = own[targets, None]
    if count:
        weight = (n + ridge) ** np.float32(-_POWER)
        work = products(rows, by_item)[targets]
        share(fill_nearest, own[targets], work, parts(rows), parts(by_item), weight, found, shared)
    return found[targets], shared[targets]


def triangles(rows: Csr, by_item: Csr, chosen: Places, targets: slice) -> FloatArray:
    """Return the lower triangle of G_NN for each target and its `chosen` N by rows, (targets, count (count + 1) / 2).

    One pass over the rows of G fills all of them: row i goes to every target that has i as a neighbour. Places that
    hold the target itself are not filled.
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
    share(fill_triangles, wanted, work, parts(rows), parts(by_item), cuts, order, chosen, packed)
    return packed


def solve_each(
    packed: FloatArray, chosen: Places, targets: slice, towards: FloatArray, ridge: FloatArray
) -> FloatArray:
    """Return (G_NN + diag ridge_N)^-1 G_Nj for each target j, (targets, count); `packed` is overwritten.

    Neighbourhoods whose matrix is not positive definite come out as not a number.
    """
    solved = np.empty(chosen.shape, np.float32)
    lengths = (chosen != np.arange(targets.start, targets.stop)[:, None]).sum(1)
    rows = np.arange(len(chosen))
    share(solve_packed, rows, np.ones(len(rows)), packed, lengths, chosen, towards, ridge, solved)
    return solved
