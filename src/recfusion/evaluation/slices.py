"""Recall by the popularity of items: who finds the well-known ones, and who the rare ones."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recfusion.core.arrays import Csr, IntArray, column_counts

GROUPS = ("head", "middle", "tail")  # each has about a third of the training interactions


@dataclass(frozen=True)
class PopularitySlices:
    """Held-out items found in the first K, counted over all users of a fold; places follow GROUPS."""

    items: tuple[int, ...]  # items of each group
    held_out: tuple[int, ...]  # held-out entries of each group
    hits: dict[int, tuple[int, ...]]  # K -> held-out entries found in the first K

    @classmethod
    def of(cls, groups: IntArray, held_out: Csr, ks: Sequence[int], hits: IntArray) -> "PopularitySlices":
        """Return the slices of a fold from the items' groups and the counted hits (ks, groups)."""
        sizes, out = (
            np.bincount(which, minlength=len(GROUPS)).tolist() for which in (groups, groups[held_out.indices])
        )
        counted = {k: tuple(counts) for k, counts in zip(ks, hits.tolist(), strict=True)}
        return cls(items=tuple(sizes), held_out=tuple(out), hits=counted)

    def recall(self, k: int) -> dict[str, float | None]:
        """Return each group's share of held-out entries found in the first K; None where none are held out."""
        counted = zip(GROUPS, self.hits[k], self.held_out, strict=True)
        return {group: hits / held_out if held_out else None for group, hits, held_out in counted}


def popularity_groups(train: Csr) -> IntArray:
    """Return each item's group (0 head, 1 middle, 2 tail), by thirds of the training interactions.

    Items stand in the order of popularity; an item belongs to the third that its first interaction falls into.
    """
    counts = column_counts(train)
    order = np.argsort(-counts, kind="stable")
    before = np.cumsum(counts[order]) - counts[order]
    groups = np.empty(len(counts), np.int64)
    groups[order] = np.minimum(2, 3 * before // max(1, int(counts.sum())))
    return groups


def group_hits(items: IntArray, hits: NDArray[np.bool_], groups: IntArray, ks: Sequence[int]) -> IntArray:
    """Return how many hits the lists `items` (users, K) have in each group within the first k places, (ks, groups)."""
    found = [groups[items[:, :k][hits[:, :k]]] for k in ks]
    return np.stack([np.bincount(its_groups, minlength=len(GROUPS)) for its_groups in found])
