"""Blocks of features in closed form, against the regression of each target solved on its own."""

import numpy as np
import pytest

from conftest import random_csr
from recfusion.core.arrays import FloatArray
from recfusion.evaluation.metrics import Values
from recfusion.models.thinning.blocks import own_excluded, with_dislikes

N_ITEMS = 7


def brute_force(z: Values, y: Values, ridge: Values, n_blocks: int) -> FloatArray:
    """Solve each column's ridge regression without the features of its own item."""
    weights = np.zeros((z.shape[1], N_ITEMS), np.float32)
    for item in range(N_ITEMS):
        own = [item + block * N_ITEMS for block in range(n_blocks)]
        kept = np.setdiff1d(np.arange(z.shape[1]), own)
        part = z[:, kept]
        weights[kept, item] = np.linalg.solve(part.T @ part + np.diag(ridge[kept]), part.T @ y[:, item])
    return weights


@pytest.mark.parametrize("n_blocks", [1, 2, 3])
@pytest.mark.parametrize("n_more", [0, 3])
def test_weights_equal_those_of_regressions_without_the_own_item(n_blocks: int, n_more: int) -> None:
    rng = np.random.default_rng(n_blocks)
    z = (rng.random((40, n_blocks * N_ITEMS + n_more)) < 0.3).astype(np.float64)
    ridge = rng.uniform(1, 3, (z.shape[1],))
    p = np.linalg.inv(z.T @ z + np.diag(ridge)).astype(np.float32)
    found = own_excluded(p, None, N_ITEMS)[0]
    assert found == pytest.approx(brute_force(z, z[:, :N_ITEMS], ridge, n_blocks), abs=1e-4)


def test_targets_may_be_other_than_the_first_block() -> None:
    rng = np.random.default_rng(5)
    y = (rng.random((40, N_ITEMS)) < 0.4).astype(np.float64)
    z = np.hstack([y * rng.integers(1, 9, y.shape), (rng.random(y.shape) < 0.2) * (1 - y)])  # counts, and dislikes
    ridge = rng.uniform(1, 3, (z.shape[1],))
    p = np.linalg.inv(z.T @ z + np.diag(ridge))
    found = own_excluded(p.astype(np.float32), (p @ z.T @ y).astype(np.float32), N_ITEMS)[0]
    assert found == pytest.approx(brute_force(z, y, ridge, 2), abs=1e-4)


def test_blocks_stand_side_by_side() -> None:
    one, two = random_csr(4, 3, 0.5, 0), random_csr(4, 3, 0.5, 1)
    assert with_dislikes(one, two, 2).toarray().tolist() == np.hstack([one.toarray(), two.toarray()]).tolist()
    assert with_dislikes(one, None, 2).toarray().tolist() == np.hstack([one.toarray(), np.zeros((4, 3))]).tolist()
    assert with_dislikes(one, two, 1) is one
