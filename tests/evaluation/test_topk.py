"""Top-K lists against a plain sort."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import csr, random_csr
from recfusion.core.errors import InputError
from recfusion.evaluation.topk import batch_rows, top_k


def brute_force(scores: np.ndarray, seen: set[int], k: int) -> list[int]:
    """Return the best items by a stable sort, -1 where candidates run out."""
    candidates = [item for item in range(len(scores)) if item not in seen and scores[item] > -np.inf]
    best = sorted(candidates, key=lambda item: (-scores[item], item))[:k]
    return best + [-1] * (min(k, len(scores)) - len(best))


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 12),
    st.integers(1, 15),
    st.sampled_from([np.array([-1, 0, -0.0, 1, -np.inf], np.float32), np.linspace(-3, 3, 1000, dtype=np.float32)]),
)
def test_lists_equal_a_stable_sort_of_the_unseen_items(seed: int, n_items: int, k: int, values: np.ndarray) -> None:
    rng = np.random.default_rng(seed)
    history = random_csr(4, n_items, 0.3, seed)
    scores = rng.choice(values, (4, n_items))
    items, found = top_k(scores.copy(), history, k)
    for row in range(4):
        expected = brute_force(scores[row], set(history[[row]].indices.tolist()), k)
        assert items[row].tolist() == expected
        assert found[row].tolist() == [scores[row, item] if item >= 0 else -np.inf for item in expected]


def test_extreme_scores_keep_their_order() -> None:
    scores = np.array([[1e-45, 3.4e38, -3.4e38, 0.0, -1e-45, np.inf]], np.float32)
    items, _ = top_k(scores, csr([[]], 6), 6)
    assert items.tolist() == [[5, 1, 0, 3, 4, 2]]


def test_a_score_that_is_no_number_is_an_error() -> None:
    with pytest.raises(InputError, match="NaN"):
        top_k(np.array([[0.0, np.nan]], np.float32), csr([[]], 2), 1)


def test_the_batch_shrinks_as_the_catalogue_grows() -> None:
    assert batch_rows(1_000) * 1_000 <= 1 << 20
    assert batch_rows(10**9) == 1
