"""Many small ridge systems: one LAPACK call each, compiled loops, and batched solvers.

Microseconds a system, one thread, one run:

python benchmarks/local_solves.py
"""

import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from scipy.linalg.lapack import sposv

from recfusion.core.arrays import FloatArray
from recfusion.core.compiled import compiled
from recfusion.models.thinning.compiled_loops import solve_packed


def _one_by_one(a: FloatArray, y: FloatArray) -> object:
    return [sposv(m.T, r, lower=True) for m, r in zip(a, y, strict=True)]


def _compiled(packed: FloatArray, y: FloatArray) -> FloatArray:
    count, size = y.shape
    ridge, solved = np.zeros(size, np.float32), np.empty_like(y)
    chosen = np.tile(np.arange(size, dtype=np.int32), (count, 1))
    compiled(solve_packed)(np.arange(count), packed.copy(), np.full(count, size), chosen, y, ridge, solved)
    return solved


def _batched(a: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.cholesky_solve(y, torch.linalg.cholesky(a))


def main() -> None:
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    for size, count in ((50, 2000), (100, 500), (200, 100)):
        x = rng.standard_normal((count, size, 2 * size)).astype(np.float32)
        a, y = x @ x.swapaxes(1, 2) + np.eye(size, dtype=np.float32), rng.standard_normal((count, size)).astype("f4")
        ta, ty = torch.from_numpy(a), torch.from_numpy(y)[..., None]
        packed = a[:, *np.tril_indices(size)]
        ways: dict[str, Callable[[], object]] = {
            "LAPACK sposv, one by one": partial(_one_by_one, a, y),
            "numba, packed Cholesky": partial(_compiled, packed, y),
            "torch, batched Cholesky": partial(_batched, ta, ty),
            "numpy, batched solve": partial(np.linalg.solve, a, y[..., None]),
        }
        for name, way in ways.items():
            way()
            began = time.process_time()
            way()
            print(f"{size:4d} {name:26s} {1e6 * (time.process_time() - began) / count:8.1f} us")


if __name__ == "__main__":
    main()
