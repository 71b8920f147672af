"""Training batches of sparse rows, dense tensors, and seeded torch generators."""

from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from recfusion.core.arrays import Csr

Module = TypeVar("Module", bound=nn.Module)


def dense(rows: Csr, device: torch.device | str = "cpu") -> Tensor:
    """Return the rows as a dense float32 tensor (rows, columns)."""
    return torch.from_numpy(rows.toarray()).to(device)


def shuffled_batches(matrix: Csr, size: int, rng: torch.Generator) -> Iterator[Csr]:
    """Yield all rows of `matrix` in random order, in batches of about equal size, at most `size`.

    A small last batch would take a full step along a noisy gradient.
    """
    order = torch.randperm(matrix.shape[0], generator=rng).numpy()
    for rows in np.array_split(order, -(-len(order) // size)) if len(order) else ():
        yield matrix[rows]


def torch_rng(rng: np.random.Generator) -> torch.Generator:
    """Return a torch generator seeded by a draw of `rng`."""
    return torch.Generator().manual_seed(int(rng.integers(2**63 - 1)))


def seeded(build: Callable[[], Module], rng: torch.Generator) -> Module:
    """Return build() with initial weights drawn from `rng`; torch's global generator does not change."""
    seed = int(torch.randint(2**62, (1,), generator=rng))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()
