"""Neighbourhoods of items and their small Gram matrices; the items-by-items matrix is never held whole."""

import numpy as np

from recfusion.core.arrays import Csr, FloatArray, IntArray
from recfusion.models.gram import gram_rows

_POWER = 0.75  # of popularity, that co-occurrence is divided by
GRAM_BYTES = 1 << 30  # small Gram matrices held at once: more of them mean fewer passes over the data


def nearest(rows: Csr, by_item: Csr, n: FloatArray, ridge: FloatArray, count: int) -> IntArray:
    """Return the `count` items that say most about each item, (items, count), in ascending order.

    That is by co-occurrence over popularity, G_ij / (n_i + ridge_i)^.75: the power stands between what item i alone
    takes off the squared error (1/2) and its weight alone (1), and the ridge keeps chance neighbours of rare items out.
    An item with fewer others beside it has itself in the places left over.
    """
    n_items = by_item.shape[0]
    if count >= n_items - 1:  # all of them, also those that no user has together with the item
        return np.array([np.delete(np.arange(n_items), j) for j in range(n_items)]).reshape(n_items, n_items - 1)
    found = np.repeat(np.arange(n_items)[:, None], count, axis=1)
    if not count:
        return found
    weight = (n + ridge) ** np.float32(-_POWER)
    for start, block in gram_rows(rows, by_item):
        for row in range(block.shape[0]):
            j, part = start + row, slice(block.indptr[row], block.indptr[row + 1])
            others = block.indices[part]
            gain = block.data[part] * weight[others]
            gain[others == j] = -np.inf
            best = np.argpartition(-gain, count)[:count] if len(others) > count else others != j
            others = others[best]
            found[j, : len(others)] = np.sort(others)
    return found


def small_grams(rows: Csr, by_item: Csr, neighbours: IntArray, targets: slice) -> tuple[FloatArray, FloatArray]:
    """Return, for each item j of `targets`, G_NN (targets, count, count) and G_Nj (targets, count) on its neighbours N.

    One pass over the rows of G fills all of them: row i goes to every target that has i as a neighbour.
    """
    chosen = neighbours[targets]
    n_targets, count = chosen.shape
    order = np.argsort(chosen, axis=None, kind="stable")
    cuts = np.searchsorted(chosen.ravel()[order], np.arange(rows.shape[1] + 1))
    among, towards = np.zeros((n_targets, count, count), np.float32), np.zeros((n_targets, count), np.float32)
    whole = np.zeros(rows.shape[1], np.float32)
    for start, block in gram_rows(rows, by_item):
        for row in range(block.shape[0]):
            wanted = order[cuts[start + row] : cuts[start + row + 1]]
            if not len(wanted):
                continue
            part = slice(block.indptr[row], block.indptr[row + 1])
            whole[block.indices[part]] = block.data[part]
            target, place = np.divmod(wanted, count)
            among[target, place] = whole[chosen[target]]
            towards[target, place] = whole[target + targets.start]
            whole[block.indices[part]] = 0
    return among, towards
