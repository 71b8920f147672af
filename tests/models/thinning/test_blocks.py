"""Blocks of features in closed form, against the regression of each target solved on its own."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from conftest import random_csr
from recfusion.core.arrays import FloatArray
from recfusion.evaluation.metrics import Values
from recfusion.models.thinning.blocks import own_excluded, solve_blocks, with_dislikes

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


@pytest.mark.parametrize("counts", [False, True])
def test_dislikes_and_item_features_are_solved_together(counts: bool) -> None:
    rng = np.random.default_rng(7)
    y = (rng.random((50, N_ITEMS)) < 0.4).astype(np.float64)
    likes = y * rng.integers(1, 4, y.shape) if counts else y
    z, f, l2 = np.hstack([likes, (rng.random(y.shape) < 0.3) * (1 - y)]), rng.random((N_ITEMS, 3)), 2.3
    g, ridge = z.T @ z, rng.uniform(1, 3, 2 * N_ITEMS)
    noise, zy = 0.5 * np.diag(g), (z.T @ y).astype(np.float32) if counts else None
    matrices = np.asfortranarray(g, np.float32), ridge.astype(np.float32), noise.astype(np.float32)
    found = solve_blocks(*matrices, csr_array(f.astype(np.float32)), l2, zy)
    for item in range(N_ITEMS):
        kept = np.setdiff1d(np.arange(2 * N_ITEMS), [item, item + N_ITEMS])
        made = np.eye(2 * N_ITEMS)[kept]  # entries, and features of the liked ones
        made = np.hstack([made[:, kept], made[:, :N_ITEMS] @ f])
        inner = made.T @ (g + np.diag(noise))[np.ix_(kept, kept)] @ made
        penalties = np.append(ridge[kept], np.full(3, l2))
        solution = np.linalg.solve(inner + np.diag(penalties), made.T @ (z.T @ y)[kept, item])
        assert found.weights[kept, item] == pytest.approx(made @ solution, abs=1e-4)
        assert found.shared[:, item] == pytest.approx(solution[-3:], abs=1e-4)


def test_blocks_stand_side_by_side() -> None:
    one, two = random_csr(4, 3, 0.5, 0), random_csr(4, 3, 0.5, 1)
    assert with_dislikes(one, two, 2).toarray().tolist() == np.hstack([one.toarray(), two.toarray()]).tolist()
    assert with_dislikes(one, None, 2).toarray().tolist() == np.hstack([one.toarray(), np.zeros((4, 3))]).tolist()
    assert with_dislikes(one, two, 1) is one
