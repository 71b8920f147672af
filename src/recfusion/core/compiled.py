"""Loops that numpy cannot vectorise: compiled by numba at first use, and run on all cores.

A loop is a plain function that also runs uncompiled. It releases the GIL, so threads can divide its items between them.
What it writes for an item must depend on the data alone, never on the number of threads. Nothing compiled is cached on
disk, because numba would cache it as pickles.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recfusion.core.extras import is_installed, require
from recfusion.core.pool import available_cores

# Typical compile time of one loop (measured). Without numba a loop is never worth it where there is another way.
COMPILE_SECONDS = 1.5 if is_installed("numba") else math.inf
_PARTS_PER_THREAD = 16  # small parts, so that no thread waits long for the others


@cache
def compiled(loop: Callable[..., Any]) -> Callable[..., Any]:
    """Return the loop as machine code; it may reorder float32 sums, always in the same way."""
    require("numba", "A catalogue of this size")
    import numba

    made: Callable[..., Any] = numba.njit(nogil=True, fastmath={"reassoc", "nsz", "contract"})(loop)
    return made


def run_parallel(loop: Callable[..., None], items: NDArray[Any], work: NDArray[Any], *rest: Any) -> None:
    """Run the compiled loop(items, *rest) on all cores, over parts of `items` with about equal `work`."""
    threads = available_cores()
    done = np.cumsum(work)
    ends = np.searchsorted(done, np.linspace(0, done[-1] if len(done) else 0, _PARTS_PER_THREAD * threads + 1)[1:-1])
    run = compiled(loop)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda part: run(part, *rest), (part for part in np.split(items, ends) if len(part))))
