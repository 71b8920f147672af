"""The inverse by blocks: equal to the plain one for any size of the blocks, and honest where there is none."""

import numpy as np
import pytest

from recfusion.core.arrays import FloatArray
from recfusion.models.linear import gram
from recfusion.models.linear.gram import invert_by_blocks


def positive(n: int) -> FloatArray:
    x = np.random.default_rng(0).standard_normal((n, n + 3))
    return (x @ x.T + n * np.eye(n)).astype(np.float32)


@pytest.mark.parametrize("block", [1, 3, 7, 16, 50, 51, 80])
def test_the_upper_triangle_becomes_that_of_the_inverse(block: int) -> None:
    a = positive(51)
    wanted = np.triu(np.linalg.inv(a.astype(np.float64)))
    assert invert_by_blocks(a, block)
    assert np.triu(a) == pytest.approx(wanted, abs=1e-7)


@pytest.mark.parametrize("at", [0, 5, 12])
def test_a_matrix_that_is_not_positive_definite_is_told(at: int) -> None:
    a = np.eye(13, dtype=np.float32)
    a[at, at] = -1
    assert not invert_by_blocks(a, 4)


def test_large_matrices_are_inverted_by_blocks_to_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    a = np.asfortranarray(positive(40))
    small = gram.invert_in_place(a.copy(order="F"))
    monkeypatch.setattr(gram, "_LAPACK", 10)
    monkeypatch.setattr(gram, "spotri", None)  # LAPACK's own is not to be called
    large = gram.invert_in_place(a)
    assert large is a
    assert large == pytest.approx(small, abs=1e-7)
