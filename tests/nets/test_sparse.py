"""Sparse rows and the layer that takes them, against dense arithmetic."""

import pytest
import torch

from conftest import csr, random_csr
from recfusion.core.arrays import Csr
from recfusion.core.errors import InputError
from recfusion.nets.sparse import SparseLinear, SparseRows
from recfusion.training.batches import dense

GAPS = csr([[], [0, 2], [], [1, 2, 3], []], 4)  # the first, the middle and the last row are empty


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def as_dense(rows: SparseRows, n_columns: int) -> torch.Tensor:
    out = torch.zeros(len(rows.starts), n_columns)
    out[rows.row_of, rows.columns] = rows.values
    return out


@pytest.mark.parametrize("matrix", [GAPS, random_csr(7, 11, 0.3, 0), csr([[], []], 3)])
def test_rows_hold_what_the_matrix_holds(matrix: Csr) -> None:
    rows = SparseRows.of(matrix)
    assert torch.equal(as_dense(rows, matrix.shape[1]), dense(matrix))
    assert torch.equal(rows.sums(), dense(matrix).sum(1))


def test_each_entry_knows_its_row() -> None:
    assert SparseRows.of(GAPS).row_of.tolist() == [1, 1, 3, 3, 3]


def test_normalised_rows_have_length_1_and_empty_ones_stay_empty() -> None:
    scaled = as_dense(SparseRows.of(GAPS).normalised(), 4)
    assert scaled.norm(dim=1).tolist() == pytest.approx([0, 1, 0, 1, 0])
    assert scaled[3].tolist() == pytest.approx([0] + [3**-0.5] * 3)


def test_chosen_entries_stay_in_their_rows() -> None:
    left = SparseRows.of(GAPS).only(torch.tensor([False, True, True, False, True]))
    assert as_dense(left, 4).tolist() == [[0] * 4, [0, 0, 1, 0], [0] * 4, [0, 1, 0, 1], [0] * 4]
    assert left.starts.tolist() == [0, 0, 1, 1, 3]


def test_dropout_removes_a_share_of_the_entries_and_keeps_the_expectation() -> None:
    matrix = random_csr(200, 50, 0.5, 0)
    rows = SparseRows.of(matrix)
    thinned = rows.dropout(0.3, rng())
    assert len(thinned.columns) / len(rows.columns) == pytest.approx(0.7, abs=0.03)
    assert torch.allclose(thinned.values, torch.tensor(1 / 0.7))
    assert (as_dense(thinned, 50)[dense(matrix) == 0] == 0).all()
    assert set(thinned.row_of.tolist()) == set(range(200))


def test_dropout_draws_from_the_generator_alone() -> None:
    rows = SparseRows.of(random_csr(9, 20, 0.5, 0))
    assert torch.equal(rows.dropout(0.5, rng(3)).columns, rows.dropout(0.5, rng(3)).columns)
    assert torch.equal(rows.dropout(0.0, rng()).columns, rows.columns)


@pytest.mark.parametrize("matrix", [GAPS, random_csr(7, 4, 0.4, 1), csr([[], []], 4)])
def test_transposed_rows_are_the_columns(matrix: Csr) -> None:
    rows = SparseRows.of(matrix)
    rows = rows.weighted(torch.arange(1.0, len(rows.values) + 1))
    columns = rows.transposed(4)
    assert torch.equal(as_dense(columns, matrix.shape[0]), as_dense(rows, 4).T)
    assert torch.equal(columns.times(torch.eye(matrix.shape[0])), as_dense(rows, 4).T)


@pytest.mark.parametrize("p", [-0.1, 1.0, 2.0])
def test_a_dropout_out_of_range_is_refused(p: float) -> None:
    with pytest.raises(InputError, match="Expected a dropout of at least 0 and below 1"):
        SparseRows.of(GAPS).dropout(p, rng())


@pytest.mark.parametrize("matrix", [GAPS, random_csr(7, 4, 0.4, 1), csr([[], []], 4)])
def test_the_sparse_layer_equals_a_dense_product_with_its_gradients(matrix: Csr) -> None:
    layer = SparseLinear(4, 3)
    weight, bias = (parameter.detach().clone().requires_grad_() for parameter in (layer.weight, layer.bias))
    rows = SparseRows.of(matrix)
    rows = rows.weighted(torch.arange(1.0, len(rows.values) + 1))
    expected = as_dense(rows, 4) @ weight + bias
    out = layer(rows)
    assert torch.allclose(out, expected, atol=1e-6)
    pull = torch.randn(out.shape, generator=rng())
    (out * pull).sum().backward()
    (expected * pull).sum().backward()  # type: ignore[no-untyped-call]
    for mine, other in ((layer.weight, weight), (layer.bias, bias)):
        assert mine.grad is not None
        assert other.grad is not None
        assert torch.allclose(mine.grad, other.grad, atol=1e-5)
