"""Loops that numpy has no words for, compiled by numba when they are first needed, and shared by all cores.

A loop is a plain function that also runs without a compiler. It lets go of the interpreter's lock, so that threads
share its items; what it writes for an item must depend on the data alone, and so not on the number of threads. Nothing
compiled is kept on disk, as numba would keep it in pickles.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recfusion.core.pool import available_cores

COMPILING = 1.5  # seconds that a loop takes to compile, about (measured)
_PARTS = 16  # that each thread's work is cut into, so that none waits long for the others


@cache
def compiled(loop: Callable[..., Any]) -> Callable[..., Any]:
    """Return the loop as machine code; a sum of float32 may be added up in another order, always the same one."""
    import numba

    made: Callable[..., Any] = numba.njit(nogil=True, fastmath={"reassoc", "nsz", "contract"})(loop)
    return made


def share(loop: Callable[..., None], items: NDArray[Any], work: NDArray[Any], *rest: Any) -> None:
    """Run the compiled loop(items, *rest) over parts of `items` of about equal work, on all cores."""
    threads = available_cores()
    done = np.cumsum(work)
    ends = np.searchsorted(done, np.linspace(0, done[-1] if len(done) else 0, _PARTS * threads + 1)[1:-1])
    run = compiled(loop)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda part: run(part, *rest), (part for part in np.split(items, ends) if len(part))))
