"""The linear denoiser with several blocks of features, in closed form, without the item's own features.

The first block of features has the likes of the items; further blocks of the same length say something else about the
same items, such as dislikes; then come columns that belong to no item, such as user features. Target j is the like of
item j; S_j are the features of item j itself, one in each block. With P = (Z'Z + diag Lambda)^-1 and A = P Z'Y, column
j minimises

    |y_j - Z b|^2 + b' diag(Lambda) b   with b = 0 on S_j:      b = A_.j - P_.S (P_SS)^-1 A_Sj

If the targets are the first block itself, A_.j = e_j - Lambda_j P_.j, and this is e_j - P_.S (P_SS)^-1 e_1.
"""

import numpy as np
from scipy.sparse import csr_array, hstack

from recfusion.core.arrays import Csr, FloatArray


def own_excluded(p: FloatArray, a: FloatArray | None, n_items: int, n_blocks: int) -> FloatArray:
    """Return the weights (features, items) for P and A = P Z'Y; without `a` the targets are the first block."""
    items = np.arange(n_items)
    places = np.stack([items + block * n_items for block in range(n_blocks)])  # (blocks, items): S_j by columns
    inner = p[places[:, None], places[None]].transpose(2, 0, 1).astype(np.float64)  # (items, blocks, blocks): P_SS
    right = np.zeros((n_items, n_blocks, 1)) if a is None else a[places, items].T[:, :, None].astype(np.float64)
    if a is None:
        right[:, 0] = 1
    shares = np.linalg.solve(inner, right)[:, :, 0].astype(np.float32)  # (items, blocks)
    weights = np.zeros((len(p), n_items), np.float32) if a is None else a
    for block in range(n_blocks):
        weights -= p[:, block * n_items : (block + 1) * n_items] * shares[:, block]
    for block in range(n_blocks):
        weights[places[block], items] = 0
    return weights


def side_by_side(blocks: list[Csr]) -> Csr:
    """Return rows of features with several blocks of columns, (users, features)."""
    return blocks[0] if len(blocks) == 1 else csr_array(hstack(blocks, format="csr"))
