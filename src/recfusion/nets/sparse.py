"""A first layer on sparse rows: it touches the weights of the items that are there and no others."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn
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

    def sums(self) -> Tensor:
        """Return the sum of each row's values, (rows,)."""
        return self.values.new_zeros(len(self.starts)).index_add(0, self.row_of, self.values)

    def dropout(self, p: float, rng: torch.Generator) -> "SparseRows":
        """Return the rows with each entry removed with probability `p`, and the others divided by 1 - p."""
        if not 0 <= p < 1:
            raise InputError(f"Expected a dropout of at least 0 and below 1, got {p}: choose one such as 0.5.")
        kept = torch.rand(len(self.values), generator=rng).to(self.values.device) >= p
        before = torch.cat([kept.new_zeros(1, dtype=torch.int64), kept.cumsum(0)])  # kept entries before each entry
        return SparseRows(self.columns[kept], before[self.starts], self.values[kept] / (1 - p))


class SparseLinear(nn.Module):
    """y = x W + b for sparse rows x; the weights are drawn as those of `nn.Linear` unless told otherwise."""

    def __init__(self, n_columns: int, width: int) -> None:
        super().__init__()
        bound = max(1, n_columns) ** -0.5
        self.weight = nn.Parameter(torch.empty(n_columns, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(width).uniform_(-bound, bound))

    def forward(self, x: SparseRows) -> Tensor:
        """Return y (rows, width); an empty row gives the bias."""
        bags = functional.embedding_bag(
            x.columns, self.weight, x.starts, mode="sum", per_sample_weights=x.values
        )  # (rows, width)
        return bags + self.bias
