"""The inverse of a large symmetric positive definite matrix, in place, by products of blocks."""

import numpy as np
from scipy.linalg.blas import strsm
from scipy.linalg.lapack import spotrf, strtri

from recfusion.core.arrays import FloatArray

_BLOCK = 1024
_STRIP = 4  # blocks of columns that are inverted at once: wider ones are quicker, and half of the last is for nothing


def invert_by_blocks(a: FloatArray, block: int = _BLOCK) -> bool:
    """Replace the upper triangle of `a` (C order) by that of its inverse; return whether it has one.

    A = R'R, then N = R^-1, then A^-1 = N N'. LAPACK takes the same three steps, but OpenBLAS's parallel form of the
    first one ends the process from some 25,000 rows on (0.3.30). Nearly all of the work is in products of blocks
    with what stands before or behind them; beside `a` a few blocks of rows are held.
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
    """Replace a block of rows by those of R, given those before it."""
    rest = a[start:stop, start:]
    a[start:stop, :start] = 0  # products count on zeros there
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
    """Replace a block of rows of R by those of its inverse, given those after it: from the last columns on."""
    inverse = np.triu(strtri(a[start:stop, start:stop])[0])
    wide = _STRIP * (stop - start)
    for left in reversed(range(stop, len(a), wide)):
        columns, between = slice(left, left + wide), slice(stop, left + wide)
        a[start:stop, columns] = -inverse @ (a[start:stop, between] @ a[between, columns])
    a[start:stop, start:stop] = inverse
