"""Sparse rows, and a first layer that only uses the weights of the stored items."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from recfusion.core.arrays import Csr
from recfusion.core.errors import InputError

NEVER = -1e9  # logit of an item that must not be chosen; finite, because a softmax over -inf alone is NaN


@dataclass(frozen=True)
class SparseRows:
    """A batch of sparse rows, (rows, columns), with the entries in order of rows.

    `index_select` takes half the time of indexing with brackets.
    """

    columns: Tensor  # (entries,)
    starts: Tensor  # (rows,): the first entry of each row
    values: Tensor  # (entries,)
    known_row_of: Tensor | None = None  # `row_of`, if it is known

    @staticmethod
    def of(rows: Csr, device: torch.device | str = "cpu") -> "SparseRows":
        return SparseRows(
            torch.from_numpy(rows.indices.astype(np.int64)).to(device),
            torch.from_numpy(rows.indptr[:-1].astype(np.int64)).to(device),
            torch.from_numpy(np.asarray(rows.data, np.float32)).to(device),
        )

    @cached_property
    def row_of(self) -> Tensor:
        """The row of each entry, (entries,)."""
        if self.known_row_of is not None:
            return self.known_row_of
        lengths = torch.diff(self.starts, append=torch.tensor([len(self.columns)], device=self.starts.device))
        return torch.repeat_interleave(torch.arange(len(self.starts), device=self.starts.device), lengths)

    def weighted(self, values: Tensor) -> "SparseRows":
        """Return the same entries with new values (entries,)."""
        return SparseRows(self.columns, self.starts, values, self.row_of)

    def normalised(self) -> "SparseRows":
        """Return the rows scaled to length 1; an empty row stays empty."""
        lengths = self.weighted(self.values.square()).sums().sqrt()
        return self.weighted(self.values / lengths.clamp(min=1e-12).index_select(0, self.row_of))

    def only(self, chosen: Tensor) -> "SparseRows":
        """Return the rows with only the entries where `chosen` (entries,) is true."""
        places = chosen.nonzero()[:, 0]
        columns, values, row_of = (entry.index_select(0, places) for entry in (self.columns, self.values, self.row_of))
        starts = torch.searchsorted(row_of, torch.arange(len(self.starts), device=row_of.device))
        return SparseRows(columns, starts, values, row_of)

    def dropout(self, p: float, rng: torch.Generator) -> "SparseRows":
        """Return the rows with each entry removed with probability `p` and the others divided by 1 - p."""
        if not 0 <= p < 1:
            raise InputError(f"Expected a dropout of at least 0 and below 1, got {p}: choose 0.5, for example.")
        left = self.only(torch.rand(len(self.values), generator=rng).to(self.values.device) >= p)
        return left.weighted(left.values / (1 - p))

    def transposed(self, n_columns: int) -> "SparseRows":
        """Return the transposed matrix of `n_columns` columns."""
        starts = np.append(self.starts.cpu().numpy(), len(self.columns))
        entries = csr_array(  # a counting sort: a general sort takes ten times as long
            (np.arange(len(self.columns)), self.columns.cpu().numpy(), starts), shape=(len(self.starts), n_columns)
        ).tocsc()
        order, new_starts = (
            torch.from_numpy(array.astype(np.int64)).to(self.columns.device)
            for array in (entries.data, entries.indptr[:-1])
        )
        columns, values, row_of = (entry.index_select(0, order) for entry in (self.row_of, self.values, self.columns))
        return SparseRows(columns, new_starts, values, row_of)

    def times(self, matrix: Tensor) -> Tensor:
        """Return the product with a dense matrix (columns, width); (rows, width)."""
        return functional.embedding_bag(self.columns, matrix, self.starts, mode="sum", per_sample_weights=self.values)

    def sums(self) -> Tensor:
        """Return the sum of each row's values, (rows,)."""
        return self.values.new_zeros(len(self.starts)).index_add_(0, self.row_of, self.values)


class SparseLinear(nn.Module):
    """y = x W + b for sparse rows x; initial weights as in `nn.Linear`."""

    def __init__(self, n_columns: int, width: int) -> None:
        super().__init__()
        bound = max(1, n_columns) ** -0.5
        self.weight = nn.Parameter(torch.empty(n_columns, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(width).uniform_(-bound, bound))

    def forward(self, x: SparseRows) -> Tensor:
        """Return y (rows, width); an empty row gives the bias."""
        return sparse_product(x, self.weight) + self.bias


def sparse_product(x: SparseRows, weight: Tensor) -> Tensor:
    """Return x W (rows, width), with a gradient only for the dense W (columns, width)."""
    product: Tensor = _SparseProduct.apply(x, weight)  # type: ignore[no-untyped-call]
    return product


class _SparseProduct(torch.autograd.Function):
    """x W, and the gradient X'G of W, both as embedding bags; torch's own backward pass takes twice the time."""

    @staticmethod
    def forward(ctx: Any, x: SparseRows, weight: Tensor) -> Tensor:
        ctx.x, ctx.n_columns = x, len(weight)
        return x.times(weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        return None, ctx.x.transposed(ctx.n_columns).times(gradient.contiguous())
