"""Given splits: the parts of the pairs come from files, and not from a random division."""

from collections.abc import Iterator

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recfusion.core.arrays import Csr, row_numbers
from recfusion.core.errors import InputError
from recfusion.data.interactions import TEST, TRAIN, VALID
from recfusion.data.options import Preparation
from recfusion.data.rows import Rows

_NAMES = {TRAIN: "training", VALID: "validation", TEST: "test"}
_FILTERS = ("min_items_per_user", "min_users_per_item")


def unfiltered(asked: Preparation) -> Preparation:
    """Return a preparation that keeps all given pairs; filters other than the default ones stay."""
    usual = Preparation()
    return asked.model_copy(update={name: 0 for name in _FILTERS if getattr(asked, name) == getattr(usual, name)})


def check_disjoint(rows: Rows, users: pl.Series, items: pl.Series) -> None:
    """Raise if a user and item are in two parts; `rows` are sorted by user and item, which have these ids."""
    assert rows.part is not None
    again = np.flatnonzero((rows.user[1:] == rows.user[:-1]) & (rows.item[1:] == rows.item[:-1]))
    first, second = rows.part[again], rows.part[again + 1]
    for one, other in ((TRAIN, TEST), (TRAIN, VALID), (VALID, TEST)):
        shared = again[(np.minimum(first, second) == one) & (np.maximum(first, second) == other)]
        if len(shared):
            pair = f"user {users[int(rows.user[shared[0]])]} and item {items[int(rows.item[shared[0]])]}"
            raise InputError(
                f"Expected files without common pairs of user and item, got {len(shared):,} in both the {_NAMES[one]} "
                f"and the {_NAMES[other]} file, such as {pair}: remove them from one of the files.",
                "test_file" if other == TEST else "valid_file",
            )


def unknown_notes(matrix: Csr, parts: NDArray[np.int8]) -> Iterator[str]:
    """Yield notes about test users and test items without a training pair."""
    outcomes = {"user": "are not evaluated", "item": "no model can find, so they count as misses"}
    for kind, places in (("user", row_numbers(matrix)), ("item", matrix.indices)):
        tested, known = (np.unique(places[parts == part]) for part in (TEST, TRAIN))
        if unknown := len(np.setdiff1d(tested, known)):
            yield f"test {kind}s without a training pair, which {outcomes[kind]}: {unknown:,} of {len(tested):,}"
