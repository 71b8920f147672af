"""Sparse rows, and a first layer on them that touches the weights of the items that are there and no others."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from recfusion.core.arrays import Csr
from recfusion.core.errors import InputError


@dataclass(frozen=True)
class SparseRows:
    """A batch of sparse rows, (rows, columns), as the first layer takes it."""

    columns: Tensor  # (entries,)
    starts: Tensor  # (rows,): where each row begins among the entries
    values: Tensor  # (entries,)

    @staticmethod
    def of(rows: Csr, device: torch.device | str = "cpu") -> "SparseRows":
        """Return the stored entries of `rows`."""
        return SparseRows(
            torch.from_numpy(rows.indices.astype(np.int64)).to(device),
            torch.from_numpy(rows.indptr[:-1].astype(np.int64)).to(device),
            torch.from_numpy(np.asarray(rows.data, np.float32)).to(device),
        )

    @cached_property
    def row_of(self) -> Tensor:
        """The row of each entry, (entries,)."""
        lengths = torch.diff(self.starts, append=torch.tensor([len(self.columns)], device=self.starts.device))
        return torch.repeat_interleave(torch.arange(len(self.starts), device=self.starts.device), lengths)

    def weighted(self, values: Tensor) -> "SparseRows":
        """Return the same entries with other values, (entries,)."""
        return SparseRows(self.columns, self.starts, values)

    def normalised(self) -> "SparseRows":
        """Return the rows scaled to length 1; an empty row stays empty."""
        lengths = self.weighted(self.values.square()).sums().sqrt()
        return self.weighted(self.values / lengths.clamp(min=1e-12)[self.row_of])

    def times(self, matrix: Tensor) -> Tensor:
        """Return the product with a dense matrix (columns, width); (rows, width)."""
        return functional.embedding_bag(self.columns, matrix, self.starts, mode="sum", per_sample_weights=self.values)

    def transposed(self, n_columns: int) -> "SparseRows":
        """Return the columns, `n_columns` of them, as rows."""
        order = torch.argsort(self.columns, stable=True)
        counts = torch.bincount(self.columns, minlength=n_columns)
        return SparseRows(self.row_of[order], counts.cumsum(0) - counts, self.values[order])

    def sums(self) -> Tensor:
        """Return the sum of each row's values, (rows,)."""
        return self.values.new_zeros(len(self.starts)).index_add(0, self.row_of, self.values)

    def dropout(self, p: float, rng: torch.Generator) -> "SparseRows":
        """Return the rows with each entry removed with probability `p`, and the others divided by 1 - p."""
        if not 0 <= p < 1:
            raise InputError(f"Expected a dropout of at least 0 and below 1, got {p}: choose one such as 0.5.")
        kept = self.only(torch.rand(len(self.values), generator=rng).to(self.values.device) >= p)
        return kept.weighted(kept.values / (1 - p))

    def only(self, chosen: Tensor) -> "SparseRows":
        """Return the rows with those entries alone for which `chosen` (entries,) is true."""
        before = torch.cat([chosen.new_zeros(1, dtype=torch.int64), chosen.cumsum(0)])  # chosen ones before each entry
        return SparseRows(self.columns[chosen], before[self.starts], self.values[chosen])


class SparseLinear(nn.Module):
    """y = x W + b for sparse rows x; the weights are drawn as those of `nn.Linear` unless told otherwise."""

    def __init__(self, n_columns: int, width: int) -> None:
        super().__init__()
        bound = max(1, n_columns) ** -0.5
        self.weight = nn.Parameter(torch.empty(n_columns, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(width).uniform_(-bound, bound))

    def forward(self, x: SparseRows) -> Tensor:
        """Return y (rows, width); an empty row gives the bias."""
        product: Tensor = _SparseProduct.apply(x, self.weight)  # type: ignore[no-untyped-call]
        return product + self.bias


class _SparseProduct(torch.autograd.Function):
    """x W, and the gradient X'G of W. Both are bags of rows; torch's own backward pass scatters, in twice the time."""

    @staticmethod
    def forward(ctx: Any, x: SparseRows, weight: Tensor) -> Tensor:
        ctx.x, ctx.n_columns = x, len(weight)
        return x.times(weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        return None, ctx.x.transposed(ctx.n_columns).times(gradient.contiguous())
