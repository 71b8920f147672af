"""Updates of local thinning: only the neighbourhoods that a change of users affects are solved again."""

from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray, IntArray, keep_entries, row_numbers
from recfusion.core.errors import InputError
from recfusion.core.rng import RngLike, make_rng
from recfusion.models.base import Recommender, Shape
from recfusion.models.inverted_index import Index, usual_cells
from recfusion.models.thinning import neighbours as near
from recfusion.models.thinning.local import NearField, ThinningLocal, target_blocks
from recfusion.models.thinning.low_rank import far_field, leading
from recfusion.models.thinning.neighbours import Places
from recfusion.models.thinning.updates import Counts, Exact, largest_error, weighted_rows
from recfusion.models.updating import Arrays, Change, Kept, UserRows, widened

_TESTED = 8  # items whose neighbourhoods the certificate solves in 64 bits
_ROUNDING = 1e-4  # gains that differ by less may be equal: sums in 32 bits depend on the order of the users


class LocalUpdater(Exact):
    """Updates `thinning-local`: affected neighbourhoods are solved again, and the factors of all other items.

    The neighbours of item j are the items i with the largest gains, G_ij / (n_i + Lambda_i)^.75. A change of users
    changes G, n and Lambda on their items S alone. So the regression of an item outside of S changes only if the gain
    of an item of S is or was among its largest: the smallest gain of each item's neighbours is kept. The factors take
    a few products with the rows of all users, as in a fit.
    """

    def n_bytes(self, model: Recommender, shape: Shape) -> int:
        return 24 * shape.items

    def keep(self, model: Recommender, rows: UserRows) -> Arrays:
        assert isinstance(model, ThinningLocal)
        counts, n_items = Counts.of(model, rows.matrix), rows.matrix.shape[1]
        field = LocalField.of(model, counts, rows.matrix)
        explained, least = np.zeros((2, n_items), np.float32)
        by_target = field.unscaled(model.weights_).T.tocsr()
        for part in field.blocks(np.arange(n_items)):
            order, (chosen, shared) = field.problem.order, field.nearest(part)
            items, starts = order[part], np.arange(0, chosen.size + 1, field.count)
            g = csr_array((shared.ravel(), order[chosen].ravel(), starts), shape=(len(part), n_items))
            explained[items], least[items] = (g * by_target[items]).sum(axis=1), field.least(chosen, shared)
        return counts.arrays() | {"explained": explained, "least": least}

    def update(self, model: Recommender, kept: Kept, change: Change) -> tuple[Recommender, Arrays]:
        assert isinstance(model, ThinningLocal)
        n_items, s, rows = change.n_items, change.items, change.rows.matrix
        # Folders of older versions kept nothing: then this is a fit with the chosen settings.
        old = Counts.kept(model, kept) if kept else None
        new = Counts.of(model, rows) if old is None else old.after(change)
        field, targets = LocalField.of(model, new, rows), np.arange(n_items)
        explained, least = (widened(kept.get(name, new.scaling[:0]), n_items).copy() for name in ("explained", "least"))
        if not (old is None or change.again or model.neighbours * len(s) >= len(old.n) - 1):  # it would affect most
            before = replace(old, n=widened(old.n, n_items), users=widened(old.users, n_items))
            targets = field.affected(s, before, least)
        stays = ~np.isin(np.arange(n_items), field.problem.order[targets])
        weights = keep_entries(model.weights_, stays[model.weights_.indices])
        weights.resize((n_items, n_items))
        for part in field.blocks(targets):
            items = field.problem.order[part]
            columns, explained[items], least[items] = field.solve(part)
            weights = csr_array(weights + columns)
        found = field.with_factors(model, weights, explained, change.rng)
        return found, new.arrays() | {"explained": explained, "least": least}

    def error(self, model: Recommender, kept: Kept, rows: UserRows, probes: Csr) -> float:
        """Solve a few neighbourhoods in 64 bits, and compare what they add to the probes' scores."""
        assert isinstance(model, ThinningLocal)
        counts, known = Counts.kept(model, kept), np.unique(probes.indices)
        field = LocalField.of(model, counts, rows.matrix)
        some = known[np.linspace(0, len(known) - 1, min(len(known), _TESTED)).astype(np.int64)]
        x, weights = field.rows.astype(np.float64), model.weights_[:, some].toarray()
        shared = (x.T @ x[:, some]).toarray()  # (items, tested)
        gains = shared * per_user(counts.n, counts.ridge)[:, None] * (1 + _ROUNDING * (weights != 0))
        expected = np.zeros(weights.shape)
        for place, item in enumerate(some):
            gains[item, place] = -1
            best = np.argsort(-gains[:, place], kind="stable")[: field.count]
            best = best[(gains[best, place] > 0) | (field.count == len(gains) - 1)]  # all others, or those with a gain
            part = x[:, best]
            a = (part.T @ part).toarray() + np.diag(counts.ridge[best])
            expected[best, place] = np.linalg.solve(a, shared[best, place])
        expected *= np.outer(field.of_rows, field.of_columns[some])
        wrong = probes @ (weights - expected)  # (probes, tested)
        return largest_error(wrong, model.score(probes).astype(np.float64), probes.toarray())


@dataclass(frozen=True)
class LocalField:
    """The small regressions of local thinning, with the fixed means of the last full fit.

    Targets are numbers of items by popularity, as in `NearField`.
    """

    rows: Csr  # (users, items): weighted
    n: FloatArray  # (items,)
    ridge: FloatArray  # (items,)
    of_rows: FloatArray  # (items,): scales the weights of the items of a history
    of_columns: FloatArray  # (items,): scales the weights towards an item
    count: int  # neighbours of an item

    @classmethod
    def of(cls, model: ThinningLocal, counts: Counts, matrix: Csr) -> "LocalField":
        n, ridge = counts.n.astype(np.float32), counts.ridge.astype(np.float32)
        of_rows = replace(counts.fixed, c=model.a_).scaling(counts.users)
        count = max(0, min(model.neighbours, matrix.shape[1] - 1))
        return cls(weighted_rows(counts.fixed, matrix, matrix), n, ridge, of_rows, counts.scaling, count)

    @cached_property
    def problem(self) -> NearField:
        return NearField.of(self.rows, self.n, self.ridge, self.count)

    def blocks(self, targets: IntArray) -> list[IntArray]:
        return [targets[part] for part in target_blocks(len(targets), self.count)] if self.count else []

    def nearest(self, targets: IntArray) -> tuple[Places, FloatArray]:
        """Return each target's neighbours and their G_jN, (targets, count); unused places have the target itself."""
        its, places = self.problem, cast(slice, targets)  # numbers index arrays as well as a slice
        if self.is_whole:
            return near.nearest_of_whole(its.whole, its.n, its.ridge, self.count, places)
        return near.nearest(its.rows, its.by_item, its.n, its.ridge, self.count, places)

    @property
    def is_whole(self) -> bool:
        return len(self.n) <= near.WHOLE_ITEMS

    def least(self, chosen: Places, shared: FloatArray) -> FloatArray:
        """Return the smallest gain of each target's neighbours, (targets,); 0 if there are too few."""
        return np.asarray((shared * per_user(self.problem.n, self.problem.ridge)[chosen]).min(axis=1))

    def affected(self, items: IntArray, before: Counts, least: FloatArray) -> IntArray:
        """Return the targets with another regression than before a change of users with these items."""
        order, gain = self.problem.order, per_user(self.n, self.ridge)
        gain = np.maximum(gain, per_user(before.n, before.ridge).astype(np.float32))[items]
        g = csr_array(self.rows[:, items].T.tocsr() @ self.problem.rows)  # (items, targets)
        large = g.data * gain[row_numbers(g)] * np.float32(1 + _ROUNDING) >= least[order[g.indices]]
        return np.union1d(np.flatnonzero(np.isin(order, items)), g.indices[large])

    def solve(self, targets: IntArray) -> tuple[Csr, FloatArray, FloatArray]:
        """Return the scaled weights as columns (items, items), and G_jN L_Nj and the least gain, (targets,)."""
        its, n_items = self.problem, len(self.n)
        chosen, shared = self.nearest(targets)
        marks = slice(n_items, n_items + len(targets))  # unused places get numbers that no item has
        unused = np.arange(marks.start, marks.stop, dtype=np.int32)[:, None]
        marked = np.where(chosen == targets[:, None], unused, chosen)
        if self.is_whole:
            weights = near.solve_of_whole(its.whole, marked, marks, shared, its.ridge)
        else:
            packed = near.triangles(its.rows, its.by_item, marked, marks)
            weights = near.solve_each(packed, marked, marks, shared, its.ridge)
        if not np.isfinite(weights).all():
            raise InputError("A neighbourhood's Gram matrix is not positive definite: raise the penalty (l2).", "l2")
        there = weights != 0
        row, column = its.order[chosen[there]], np.repeat(its.order[targets], there.sum(axis=1))
        scaled = weights[there] * self.of_rows[row] * self.of_columns[column]
        columns = csr_array((scaled, (row, column)), shape=(n_items, n_items))
        return columns, (weights * shared).sum(axis=1), self.least(chosen, shared)

    def unscaled(self, weights: Csr) -> Csr:
        """Return the weights before they were scaled."""
        factors = self.of_rows[row_numbers(weights)] * self.of_columns[weights.indices]
        return csr_array((weights.data / factors, weights.indices, weights.indptr), shape=weights.shape)

    def with_factors(self, model: ThinningLocal, weights: Csr, explained: FloatArray, rng: RngLike) -> ThinningLocal:
        """Return a copy of the model with these weights and the factors of a fit."""
        found, generator, n_items = copy(model), make_rng(rng), len(self.n)
        rank = 0 if model.neighbours >= n_items - 1 else min(model.factors, n_items)
        nothing = self.ridge[:0], np.zeros((n_items, 0), np.float32)
        s, u = leading(self.rows, self.ridge, rank, generator) if rank else nothing
        left, right = far_field(self.unscaled(weights), self.ridge + self.n - explained, self.ridge, s, u)
        found.weights_, found.left_ = weights, left * self.of_rows[:, None]
        right *= self.of_columns
        cells = usual_cells(n_items) if model.cells is None else model.cells
        found._hold(right, Index.of(right, cells, generator) if cells and right.size else None)
        return found


def per_user(n: NDArray[Any], ridge: NDArray[Any]) -> NDArray[Any]:
    """Return what a user of both adds to the gain of an item, (items,)."""
    return np.asarray((n + ridge) ** n.dtype.type(-near._POWER))
