"""Exact updates of fitted models: adding, changing and removing users without a new fit.

`updater_of` tells whether a model can be updated. An updater is an ability of a model that lives outside of its
module: the code that fits a model does not depend on it, so that stored results stay current.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, IntArray
from recfusion.core.rng import RngLike
from recfusion.data.signals import Extra
from recfusion.models.base import Recommender, Shape

Arrays: TypeAlias = dict[str, NDArray[Any]]
Kept: TypeAlias = Mapping[str, NDArray[Any]]
Others: TypeAlias = Literal["keep", "drop", "retrain"]
OF_ENTRIES, OF_DISLIKES = ("grades", "times"), ("disliked", "disliked_times")  # signals, by the matrix of their entries
Number = TypeVar("Number", bound=np.generic)
TOLERANCE = 1e-4  # largest error of a score that an update may leave, in standard deviations of a list's scores
_PROBES = 4  # training rows that the certificate tests


@dataclass(frozen=True)
class UserRows:
    """Rows of some users, with the signals that the model reads."""

    matrix: Csr  # (users, items)
    extra: Extra | None = None

    def take(self, places: IntArray) -> "UserRows":
        return UserRows(self.matrix[places], None if self.extra is None else self.extra.rows(places))

    def over(self, n_items: int) -> "UserRows":
        """Return the rows over more items."""
        return self._each(lambda matrix: wider(matrix, n_items))

    def replaced(self, changed: IntArray, after: "UserRows") -> "UserRows":
        """Return the rows without the `changed` ones, followed by the non-empty ones of `after`."""
        gone = np.unique(changed)
        kept = self._each(lambda matrix: _without_rows(matrix, gone)) if len(gone) else self
        return kept.followed_by(after.take(np.flatnonzero(np.diff(after.matrix.indptr))))

    def followed_by(self, others: "UserRows") -> "UserRows":
        """Return these rows and then others, over the items of the others."""
        n_items = others.matrix.shape[1]

        def joined(one: Csr, two: Csr) -> Csr:  # ten times as fast as scipy's vstack
            parts = [np.concatenate(pair) for pair in ((one.data, two.data), (one.indices, two.indices))]
            starts = np.concatenate([one.indptr, two.indptr[1:] + one.indptr[-1]])
            return csr_array((*parts, starts), shape=(one.shape[0] + two.shape[0], n_items))

        matrix = joined(self.matrix, others.matrix)
        if self.extra is None or others.extra is None:
            return UserRows(matrix)
        names = [name for name in (*OF_ENTRIES, *OF_DISLIKES) if getattr(self.extra, name) is not None]
        found = {name: joined(getattr(self.extra, name), getattr(others.extra, name)) for name in names}
        return UserRows(matrix, replace(self.extra, **found))

    def _each(self, change: Callable[[Csr], Csr]) -> "UserRows":
        extra = self.extra
        if extra is not None:
            known = {name: getattr(extra, name) for name in (*OF_ENTRIES, *OF_DISLIKES)}
            extra = replace(extra, **{name: None if m is None else change(m) for name, m in known.items()})
        return UserRows(change(self.matrix), extra)


def _without_rows(matrix: Csr, gone: IntArray) -> Csr:
    """Return the rows but some, which are sorted: as long pieces, because scipy would copy row by row."""
    starts, ends = np.append(0, matrix.indptr[gone + 1]), np.append(matrix.indptr[gone], matrix.nnz)
    pieces = [slice(start, end) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    indptr = np.append(0, np.cumsum(np.delete(np.diff(matrix.indptr), gone))).astype(matrix.indptr.dtype)
    parts = (np.concatenate([array[piece] for piece in pieces]) for array in (matrix.data, matrix.indices))
    return csr_array((*parts, indptr), shape=(len(indptr) - 1, matrix.shape[1]))


def wider(matrix: Csr, n_items: int) -> Csr:
    """Return a matrix with empty columns after its end."""
    return csr_array((matrix.data, matrix.indices, matrix.indptr), shape=(matrix.shape[0], n_items))


@dataclass(frozen=True)
class Change:
    """The rows of some users before and after an update, and all rows after it; new items are the last columns."""

    before: UserRows  # of the changed users; empty rows for new users
    after: UserRows  # of the changed users; empty rows for users who are removed
    rows: UserRows  # all rows after the update
    others: Others = "keep"  # what happens to parts of a mixture that cannot be updated
    rng: RngLike = None  # for models that are fitted again
    again: bool = False  # solve the model again from all rows instead of correcting it
    in_place: bool = False  # the old model is not used any more: its arrays may be overwritten

    @property
    def n_items(self) -> int:
        return int(self.rows.matrix.shape[1])

    @property
    def items(self) -> IntArray:
        """The items of changed users."""
        return np.union1d(self.before.matrix.indices, self.after.matrix.indices).astype(np.int64)

    @property
    def forgets(self) -> bool:
        """Whether users are removed."""
        return bool((np.diff(self.after.matrix.indptr) == 0).any())


class Updater(Protocol):
    """Updates fitted models of one kind. `kept` are arrays beside the model's own that updates need."""

    def n_bytes(self, model: Recommender, shape: Shape) -> int:
        """Return about how many bytes the kept arrays take."""

    def keep(self, model: Recommender, rows: UserRows) -> Arrays:
        """Return the kept arrays of a model that was fitted on `rows`."""

    def update(self, model: Recommender, kept: Kept, change: Change) -> tuple[Recommender, Arrays]:
        """Return a new model and its kept arrays after a change."""

    def error(self, model: Recommender, kept: Kept, rows: UserRows, probes: Csr) -> float | None:
        """Return the largest error of the probes' scores, in standard deviations of them; None if nothing is tested."""

    def describe(self, model: Recommender, change: Change) -> tuple[bool, tuple[str, ...]]:
        """Return whether an update equals a fit on the rows that remain, and sentences about it."""


def updater_of(model: object) -> Updater | None:
    """Return what updates a fitted model; None if nothing does."""
    from recfusion.models import mixture_updates
    from recfusion.models.thinning import updates

    return updates.find(model) or mixture_updates.find(model)


def probe_rows(rows: Csr, rng: np.random.Generator, count: int = _PROBES) -> Csr:
    """Return some random training rows with at least one item, for the certificate."""
    able = np.flatnonzero(np.diff(rows.indptr))
    return rows[np.sort(rng.choice(able, min(count, len(able)), replace=False))]


def widened(array: NDArray[Number], *shape: int) -> NDArray[Number]:
    """Return an array with zeros after its end, up to the shape."""
    if array.shape == shape:
        return array
    wide = np.zeros(shape, array.dtype)
    wide[tuple(slice(size) for size in array.shape)] = array
    return wide
