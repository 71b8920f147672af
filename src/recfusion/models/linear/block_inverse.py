"""The inverse of a large symmetric positive definite matrix, in place, by products of blocks."""

import numpy as np
from scipy.linalg.blas import strsm
from scipy.linalg.lapack import spotrf, strtri

from recfusion.core.arrays import FloatArray

_BLOCK = 1024
_STRIP = 4  # blocks of columns that are inverted at once: wider strips are quicker but waste half of the last one


def invert_by_blocks(a: FloatArray, block: int = _BLOCK) -> bool:
    """Replace the upper triangle of `a` (C order) by that of its inverse; return False if it has no inverse.

    A = R'R, then N = R^-1, then A^-1 = N N'. LAPACK does the same, but the parallel first step of OpenBLAS (0.3.30)
    crashes from some 25,000 rows on. Nearly all of the work is in matrix products; only a few blocks of rows are held
    beside `a`.
    """
    starts = range(0, len(a), block)
    for start in starts:
        if not _factor(a, start, start + block):
            return False
    for start in reversed(starts):
        _invert_rows(a, start, start + block)
    for start in starts:
        a[: start + block, start : start + block] = a[: start + block, start:] @ a[start : start + block, start:].T
    return True


def _factor(a: FloatArray, start: int, stop: int) -> bool:
    """Replace a block of rows by the rows of R, given the rows of R before it."""
    rest = a[start:stop, start:]
    a[start:stop, :start] = 0  # later products need zeros there
    if start:
        rest -= a[:start, start:stop].T @ a[:start, start:]
    width = len(rest)
    factor, failed = spotrf(rest[:, :width])
    if failed:
        return False
    rest[:, :width] = factor
    if rest.shape[1] > width:  # X with R_own' X = rest
        rest[:, width:] = strsm(1.0, factor, rest[:, width:].T, side=1).T
    return True


def _invert_rows(a: FloatArray, start: int, stop: int) -> None:
    """Replace a block of rows of R by the rows of its inverse, given the rows after it."""
    inverse = np.triu(strtri(a[start:stop, start:stop])[0])
    wide = _STRIP * (stop - start)
    for left in reversed(range(stop, len(a), wide)):
        columns, between = slice(left, left + wide), slice(stop, left + wide)
        a[start:stop, columns] = -inverse @ (a[start:stop, between] @ a[between, columns])
    a[start:stop, start:stop] = inverse
