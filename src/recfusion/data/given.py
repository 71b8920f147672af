"""Given splits: the parts of the pairs come from files, and not from a random division."""

from collections.abc import Iterator

import numpy as np
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


def check_disjoint(rows: Rows) -> None:
    """Raise if a user and item are in two parts; `rows` are sorted by user and item."""
    assert rows.part is not None
    again = np.flatnonzero((rows.user[1:] == rows.user[:-1]) & (rows.item[1:] == rows.item[:-1]))
    first, second = rows.part[again], rows.part[again + 1]
    for one, other in ((TRAIN, TEST), (TRAIN, VALID), (VALID, TEST)):
        shared = np.count_nonzero((np.minimum(first, second) == one) & (np.maximum(first, second) == other))
        if shared:
            count = f"{shared:,} pairs are" if shared > 1 else "1 pair is"
            raise InputError(
                f"Expected files without common pairs of user and item, but {count} in both the {_NAMES[one]} and the "
                f"{_NAMES[other]} file: remove them from one of the files.",
                "test_file" if other == TEST else "valid_file",
            )


def unknown_notes(matrix: Csr, parts: NDArray[np.int8]) -> Iterator[str]:
    """Yield notes about test users and test items without a training pair."""
    outcomes = {
        "user": ("it is", "they are", "not evaluated"),
        "item": ("no model can find it, and it counts", "no model can find them, and they count", "as misses"),
    }
    for kind, places in (("user", row_numbers(matrix)), ("item", matrix.indices)):
        tested, known = (np.unique(places[parts == part]) for part in (TEST, TRAIN))
        unknown = len(np.setdiff1d(tested, known))
        if unknown:
            one, several, then = outcomes[kind]
            have, outcome = ("has", one) if unknown == 1 else ("have", several)
            then = "as a miss" if then == "as misses" and unknown == 1 else then
            yield f"{unknown:,} of the {len(tested):,} test {kind}s {have} no training pair: {outcome} {then}"
