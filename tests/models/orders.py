"""Histories in a given order, and small models of them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr
from recfusion.data.signals import Extra
from recfusion.models.registry import make_model
from recfusion.models.sequence.sequential import SequentialRecommender

SMALL: Mapping[str, Any] = {"width": 16, "layers": 1, "length": 6, "places": 4, "dropout": 0.0, "batch_size": 16}


def rows_of(sequences: list[list[int]], n_items: int) -> tuple[Csr, Extra]:
    """Return histories whose items came in the order of the lists, a day apart."""
    shape = (len(sequences), n_items)
    ones, times = np.zeros(shape, np.float32), np.zeros(shape, np.int64)
    for row, items in enumerate(sequences):
        ones[row, items] = 1
        times[row, items] = 86_400 * (1 + np.arange(len(items)))
    return csr_array(ones), Extra(times=csr_array(times))


def model(**settings: Any) -> SequentialRecommender:
    made = make_model("recfusion-seq", {**SMALL, **settings}, text=False)
    assert isinstance(made, SequentialRecommender)
    return made
