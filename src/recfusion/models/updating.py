"""Exact updates of fitted models: adding, changing and removing users without a new fit.

`updater_of` tells whether a model can be updated. An updater is an ability of a model that lives outside of its
module: the code that fits a model does not depend on it, so that stored results stay current.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from recfusion.core.arrays import Csr, FloatArray, IntArray
from recfusion.models.base import Recommender, Shape

Arrays: TypeAlias = dict[str, NDArray[Any]]
TOLERANCE = 1e-4  # largest error of a score that an update may leave, in standard deviations of a list's scores
_PROBES = 4  # training rows that the certificate tests


@dataclass(frozen=True)
class Change:
    """The rows of some users before and after an update, and all rows after it; new items are the last columns."""

    before: Csr  # (changed users, items); empty rows for new users
    after: Csr  # (changed users, items); empty rows for users who are removed
    rows: Csr  # (users, items): all rows after the update

    @property
    def n_items(self) -> int:
        return int(self.rows.shape[1])


class Updater(Protocol):
    """Updates fitted models of one kind. `kept` are arrays beside the model's own that updates need."""

    exact: ClassVar[bool]  # whether the result equals a fit on the rows that remain

    def n_bytes(self, model: Recommender, shape: Shape) -> int:
        """Return about how many bytes the kept arrays take."""

    def keep(self, model: Recommender, rows: Csr) -> Arrays:
        """Return the kept arrays of a model that was fitted on `rows`."""

    def update(self, model: Recommender, kept: Mapping[str, NDArray[Any]], change: Change) -> tuple[Recommender, Arrays]:
        """Return a new model and its kept arrays after a change."""

    def error(self, model: Recommender, kept: Mapping[str, NDArray[Any]], rows: Csr, probes: Csr) -> float:
        """Return the largest error of the probes' scores, in standard deviations of each probe's scores."""


def updater_of(model: object) -> Updater | None:
    """Return what updates a fitted model; None if nothing does."""
    from recfusion.models.thinning import updates

    return updates.find(model)


def probe_rows(rows: Csr, rng: np.random.Generator, count: int = _PROBES) -> Csr:
    """Return some random training rows with at least one item, for the certificate."""
    able = np.flatnonzero(np.diff(rows.indptr))
    return rows[np.sort(rng.choice(able, min(count, len(able)), replace=False))]


def replace_rows(rows: Csr, changed: IntArray, after: Csr, n_items: int) -> Csr:
    """Return the rows without the `changed` ones, followed by the non-empty rows of `after`."""
    stay = np.ones(rows.shape[0], bool)
    stay[changed] = False
    wide = csr_array((rows.data, rows.indices, rows.indptr), shape=(rows.shape[0], n_items))
    return csr_array(vstack([wide if stay.all() else wide[stay], after[np.diff(after.indptr) > 0]], format="csr"))


def widened(array: FloatArray, *shape: int) -> FloatArray:
    """Return an array with zeros after its end, up to the shape."""
    if array.shape == shape:
        return array
    wide = np.zeros(shape, array.dtype)
    wide[tuple(slice(size) for size in array.shape)] = array
    return wide
