"""Array types that packages exchange, and the few sparse helpers that numpy and scipy lack."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

FloatArray: TypeAlias = NDArray[np.float32]
IntArray: TypeAlias = NDArray[np.int64]
Csr: TypeAlias = csr_array


def binary_csr(indptr: NDArray[np.integer], indices: NDArray[np.integer], n_columns: int) -> Csr:
    """Return the 0/1 matrix (len(indptr) - 1, n_columns) with ones at indices[indptr[r]:indptr[r + 1]] in row r."""
    index = np.int32 if len(indices) < 2**31 else np.int64
    parts = (np.ones(len(indices), np.float32), indices.astype(index, copy=False), indptr.astype(index))
    return csr_array(parts, shape=(len(indptr) - 1, n_columns))


def row_numbers(matrix: Csr) -> NDArray[np.int32]:
    """Return the row of each stored entry."""
    return np.repeat(np.arange(matrix.shape[0], dtype=np.int32), np.diff(matrix.indptr))


def cell_numbers(matrix: Csr) -> IntArray:
    """Return the cell of each stored entry: row times columns plus column."""
    return row_numbers(matrix).astype(np.int64) * matrix.shape[1] + matrix.indices


def column_counts(matrix: Csr) -> IntArray:
    """Return how many rows have each column."""
    return np.bincount(matrix.indices, minlength=matrix.shape[1]).astype(np.int64)


def keep_entries(matrix: Csr, keep: NDArray[np.bool_]) -> Csr:
    """Return `matrix` with only the stored entries where `keep` is true (same shape)."""
    kept_before = np.concatenate([[0], np.cumsum(keep)])[matrix.indptr].astype(matrix.indptr.dtype)
    return csr_array((matrix.data[keep], matrix.indices[keep], kept_before), shape=matrix.shape)
