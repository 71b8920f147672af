"""The linear models against their definitions."""

import numpy as np
import pytest

from conftest import csr, random_csr
from recfusion.core.errors import InputError
from recfusion.models.baselines.popularity import Popularity, Random
from recfusion.models.linear import gram as gram_module
from recfusion.models.linear.ease import EASE
from recfusion.models.linear.gram import gram, invert_in_place, mirror_lower, require_gram_memory
from recfusion.models.linear.slim import SLIM


@pytest.mark.parametrize("penalty", [0.0, 1e9], ids=["sparse", "dense"])
def test_both_ways_to_the_gram_matrix_agree(penalty: float, monkeypatch: pytest.MonkeyPatch) -> None:
    x = random_csr(50, 17, 0.2, 0)
    monkeypatch.setattr(gram_module, "_SPARSE_PENALTY", penalty)
    monkeypatch.setattr(gram_module, "_CELLS_PER_BLOCK", 17 * 8)
    dense = x.toarray()
    assert (gram(x) == dense.T @ dense).all()


def test_mirroring_in_blocks_makes_the_matrix_symmetric() -> None:
    a = np.asfortranarray(np.random.default_rng(0).normal(size=(7, 7)).astype(np.float32))
    expected = np.tril(a) + np.tril(a, -1).T
    assert (mirror_lower(a, block=3) == expected).all()


def test_a_matrix_without_inverse_is_refused() -> None:
    with pytest.raises(InputError, match="not positive definite"):
        invert_in_place(np.zeros((3, 3), np.float32, order="F"))


def test_a_fit_that_cannot_fit_into_memory_is_refused_before_it_starts() -> None:
    with pytest.raises(InputError, match=r"EASE on 10,000,000 items needs about 400000\.0 GB"):
        require_gram_memory(10_000_000, "EASE", 1)


def test_ease_minimises_its_objective_column_by_column() -> None:
    """Each column is the ridge regression of an item on all others, solved here one by one in float64."""
    x = random_csr(60, 12, 0.3, 1).toarray().astype(np.float64)
    weights = EASE(l2=3.0).fit(random_csr(60, 12, 0.3, 1)).weights_
    for j in range(12):
        others = np.delete(np.arange(12), j)
        design = x[:, others]
        solution = np.linalg.solve(design.T @ design + 3.0 * np.eye(11), design.T @ x[:, j])
        assert weights[others, j] == pytest.approx(solution, abs=1e-4)
        assert weights[j, j] == 0


def test_slim_satisfies_the_optimality_conditions() -> None:
    """W >= 0; the gradient is zero where a weight is positive, and not negative where it is zero."""
    x = random_csr(200, 30, 0.3, 2)
    l1, l2 = 2.0, 5.0
    w = SLIM(l1=l1, l2=l2, tolerance=1e-6).fit(x).weights_.toarray().astype(np.float64)
    g = x.toarray().astype(np.float64).T @ x.toarray()
    gradient = g @ w - g + l2 * w + l1
    off = ~np.eye(30, dtype=bool)
    assert (w >= 0).all()
    assert np.diag(w).tolist() == [0] * 30
    assert np.abs(gradient[off & (w > 0)]).max() < 1e-2
    assert gradient[off & (w == 0)].min() > -1e-2
    assert (w > 0).sum() > 30


def test_slim_finds_the_solution_however_few_candidates_it_starts_with(monkeypatch: pytest.MonkeyPatch) -> None:
    x = random_csr(200, 30, 0.3, 2)
    whole = SLIM(l1=1.0, l2=5.0, tolerance=1e-6).fit(x).weights_.toarray()
    monkeypatch.setattr("recfusion.models.linear.slim._FIRST_CANDIDATES", 2)
    monkeypatch.setattr("recfusion.models.linear.slim._CELLS_PER_CHUNK", 500)
    pieces = SLIM(l1=1.0, l2=5.0, tolerance=1e-6).fit(x).weights_.toarray()
    assert pieces == pytest.approx(whole, abs=1e-4)


def test_a_larger_l1_makes_slim_sparser() -> None:
    x = random_csr(200, 30, 0.3, 2)
    counts = [SLIM(l1=l1).fit(x).weights_.nnz for l1 in (0.5, 5.0, 12.0)]
    assert counts[0] > counts[1] > counts[2]


def test_slim_with_a_penalty_beyond_every_product_has_no_weights() -> None:
    model = SLIM(l1=1e6).fit(random_csr(20, 5, 0.5, 0))
    assert model.weights_.nnz == 0
    assert model.score(csr([[0]], 5)).tolist() == [[0] * 5]


def test_popularity_is_the_count_over_the_largest_count() -> None:
    scores = Popularity().fit(csr([[0, 1], [0], [0, 2]], 4)).score(csr([[], [3]], 4))
    assert scores == pytest.approx(np.array([[1, 1 / 3, 1 / 3, 0]] * 2))


def test_random_draws_uniformly_from_items_seen_in_training() -> None:
    train = csr([[0, 1, 2, 3, 4, 5, 6, 7]], 10)
    model = Random().fit(train, rng=0)
    users = csr(
        [[user % 8, (user * 7 + 3) % 10] if user % 8 != (user * 7 + 3) % 10 else [user % 8] for user in range(80)], 10
    )
    scores = model.score(random_csr(4000, 10, 0.5, 3))
    assert (scores[:, 8:] == -np.inf).all()
    first = np.bincount(scores.argmax(1), minlength=8)
    # Many of the 4,000 histories repeat (1,024 are possible), so the spread is that of fewer independent draws.
    assert first.min() > 300
    assert model.score(users).shape == (80, 10)


def test_a_setting_below_its_bound_is_refused() -> None:
    with pytest.raises(InputError, match=r"Expected l2 of EASE to be at least 1e-06, got -1"):
        EASE(l2=-1)
