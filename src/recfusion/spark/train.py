"""Trains local thinning on Spark: each task solves a block of items into a file, so that a restarted job resumes."""

import functools
import hashlib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import SparkSession
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray
from recfusion.core.files import replacing
from recfusion.models.thinning.local import NearField, Solved, joined, target_blocks
from recfusion.spark.session import task_cores, use_cores
from recfusion.spark.task_runner import run_tasks

_BLOCK_BYTES = 1 << 28  # of small Gram matrices per task
_PARTS = ("data", "indices", "indptr")


@dataclass(frozen=True)
class SparkSolver:
    """`near_field` on a cluster; `folder` must be a path that all machines see."""

    session: SparkSession
    folder: Path
    block_bytes: int = _BLOCK_BYTES

    def __call__(self, rows: Csr, n: FloatArray, ridge: FloatArray, count: int) -> tuple[Csr, FloatArray]:
        problem = NearField.of(rows, n, ridge, count)
        place = self.folder.absolute() / _digest(problem)
        _save(problem, place)
        targets = target_blocks(rows.shape[1], count, self.block_bytes) if count else ()
        blocks = [_Block(place, part.start, part.stop) for part in targets]
        missing = [block for block in blocks if not block.is_solved()]
        run_tasks(self.session, functools.partial(_Block.solve, threads=task_cores(self.session)), missing)
        order = problem.order
        del problem, rows
        return joined(order, count, ((slice(block.start, block.stop), block.read()) for block in blocks))


@dataclass(frozen=True)
class _Block:
    """A block of target items, and the file of its solution."""

    place: Path
    start: int
    stop: int

    @property
    def path(self) -> Path:
        return self.place / f"solved-{self.start}-{self.stop}.npz"

    def is_solved(self) -> bool:
        """Return whether the file is complete."""
        try:
            self.read()
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return False
        return True

    def solve(self, threads: int) -> None:
        """Solve the block and write its file."""
        problem = _opened(self.place)
        use_cores(threads)
        chosen, weights, explained = problem.solve(slice(self.start, self.stop))
        with replacing(self.path) as beside, beside.open("wb") as file:
            np.savez(file, chosen=chosen, weights=weights, explained=explained)

    def read(self) -> Solved:
        with self.path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            return found["chosen"], found["weights"], found["explained"]


def _save(problem: NearField, place: Path) -> None:
    """Write a problem as arrays that tasks memory-map and so share on each machine."""
    if (place / "count.npy").is_file():  # written last
        return
    place.mkdir(parents=True, exist_ok=True)
    for name, array in _arrays(problem):
        with replacing(place / f"{name}.npy") as beside, beside.open("wb") as file:
            np.save(file, array, allow_pickle=False)


def _arrays(problem: NearField) -> Iterator[tuple[str, NDArray[Any]]]:
    for name in ("rows", "by_item"):
        matrix = getattr(problem, name)
        yield from ((f"{name}_{part}", getattr(matrix, part)) for part in _PARTS)
    yield from ((name, getattr(problem, name)) for name in ("n", "ridge", "order"))
    yield "count", np.array(problem.count)


def _digest(problem: NearField) -> str:
    """Return a digest of the problem: data and settings."""
    digest = hashlib.blake2b(digest_size=12)
    for name, array in _arrays(problem):
        if not name.startswith("by_item"):  # the transpose of `rows`
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


@functools.lru_cache(maxsize=1)
def _opened(place: Path) -> NearField:
    """Return a problem from its memory-mapped files, once per worker process."""

    def read(name: str) -> NDArray[Any]:
        # Compiled loops need writable arrays; copy on write keeps changes in this process.
        return np.load(place / f"{name}.npy", mmap_mode="c", allow_pickle=False).view(np.ndarray)

    n = read("n")
    users, items = len(read("rows_indptr")) - 1, len(n)
    shapes = {"rows": (users, items), "by_item": (items, users)}
    rows, by_item = (
        csr_array(tuple(read(f"{name}_{part}") for part in _PARTS), shape=shape) for name, shape in shapes.items()
    )
    count = int(np.load(place / "count.npy", allow_pickle=False))
    return NearField(rows, by_item, n, read("ridge"), read("order"), count)
