"""Recall by the popularity of items: who finds the well-known ones, and who the rare ones."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recfusion.core.arrays import Csr, IntArray, column_counts, row_numbers
from recfusion.data.split import Fold
from recfusion.evaluation.evaluate import Scorer, map_batches
from recfusion.evaluation.topk import top_k

GROUPS = ("head", "middle", "tail")  # each has about a third of the training interactions


@dataclass(frozen=True)
class PopularitySlices:
    """Held-out items found in the first K, counted over all users of a fold; places follow GROUPS."""

    items: tuple[int, ...]  # items of each group
    held_out: tuple[int, ...]  # held-out entries of each group
    hits: dict[int, tuple[int, ...]]  # K -> held-out entries found in the first K

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


def popularity_slices(
    model: Scorer, fold: Fold, train: Csr, ks: Sequence[int], *, threads: int | None = None
) -> PopularitySlices:
    """Return the hits of `model` on `fold` within each popularity group, for each list length of `ks`."""
    groups = popularity_groups(train)
    longest = max(ks)

    def run(rows: slice) -> IntArray:
        history, held_out = fold.history[rows], fold.held_out[rows]
        items, _ = top_k(model.score(history), history, longest)
        relevant = np.zeros(held_out.shape, bool)
        relevant[row_numbers(held_out), held_out.indices] = True
        hits = np.take_along_axis(relevant, np.maximum(items, 0), axis=1) & (items >= 0)  # (users, K)
        found = [groups[items[:, :k][hits[:, :k]]] for k in ks]
        return np.stack([np.bincount(its_groups, minlength=len(GROUPS)) for its_groups in found])  # (ks, groups)

    hits = np.sum(map_batches(run, fold.history, threads), axis=0)
    sizes, held_out = (
        np.bincount(which, minlength=len(GROUPS)).tolist() for which in (groups, groups[fold.held_out.indices])
    )
    return PopularitySlices(
        items=tuple(sizes),
        held_out=tuple(held_out),
        hits={k: tuple(counts) for k, counts in zip(ks, hits.tolist(), strict=True)},
    )
