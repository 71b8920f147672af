"""Made-up users for the tests of the mixture."""

import numpy as np

from conftest import csr
from recfusion.data.split import Fold


def fold(n_users: int, n_items: int = 150, seed: int = 0, held_out: int = 3) -> Fold:
    """Return users with three items shown and some held out, at random."""
    rng = np.random.default_rng(seed)
    rows = [rng.permutation(n_items)[: 3 + held_out].tolist() for _ in range(n_users)]
    return Fold(
        np.arange(n_users), csr([sorted(r[:3]) for r in rows], n_items), csr([sorted(r[3:]) for r in rows], n_items)
    )
