"""The linear denoiser for many items: weights of each item's neighbours, and all others through a few factors."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray, IntArray, row_numbers
from recfusion.core.errors import InputError
from recfusion.core.memory import require_memory
from recfusion.core.rng import RngLike, make_rng
from recfusion.data.split import Fold
from recfusion.models import self_tuning as selftune
from recfusion.models.base import Recommender, Shape
from recfusion.models.inverted_index import Index, usual_cells
from recfusion.models.linear.gram import gram, gram_bytes, user_weighted
from recfusion.models.reasons import Reasons, exact
from recfusion.models.settings import learned, self_tuned, setting
from recfusion.models.thinning.linear import ThinningLinear, penalty, start_l2
from recfusion.models.thinning.low_rank import SPARE, far_field, leading
from recfusion.models.thinning.neighbours import (
    GRAM_BYTES,
    WHOLE_ITEMS,
    Places,
    nearest,
    nearest_of_whole,
    solve_each,
    solve_of_whole,
    triangles,
)
from recfusion.models.thinning.parts import name_part, part_name

log = logging.getLogger(__name__)
_COMPILER_BYTES = 100 << 20
Solved = tuple[Places, FloatArray, FloatArray]
Solver = Callable[[Csr, FloatArray, FloatArray, int], tuple[Csr, FloatArray]]  # what `near_field` is
_RIDGE = ("l2", "nu", "kappa", "b", "c")


@dataclass
class ThinningLocal(Recommender):
    """`thinning-linear` as a sparse matrix and one of low rank: cost and memory are linear in the items.

    Column j of thinning-linear's B is the ridge regression of item j on all others. The near field is the one on the
    items N_j that say most about it, (G_NN + diag Lambda_N)^-1 G_Nj, with the same G and Lambda. The far field makes
    the sum of both the whole model's on the span of the leading eigenvectors (see `far`). With all other items as
    neighbours it is the whole model; without any it is the truncated eigen-denoiser, `thinning-factors`. Settings left
    open are chosen by thinning-linear's own search, on the most popular items where there are many.
    """

    l2: float | None = self_tuned(
        693.0,
        "penalty of an item of mean popularity",
        at_least=1e-6,
        search=(1, 1e4),
        log=True,
        rule="20 (mean users of an item)^.7",
    )
    nu: float | None = self_tuned(0.318, "power of popularity in that penalty", search=(-0.2, 1.0))
    kappa: float | None = self_tuned(0.876, "noise level (1 - a) / a", at_least=0, search=(0.0, 2.5))
    b: float | None = self_tuned(0.5, "users' losses are weighted by |u|^-b", search=(0.0, 1.0))
    c: float | None = self_tuned(0.2, "scores are divided by popularity^c", search=(0.0, 0.5))
    neighbours: int = setting(100, "items that each item has weights of its own from", at_least=0)
    factors: int = setting(128, "leading eigenvectors through which all other items count", at_least=0, at_most=100_000)
    cells: int | None = setting(
        None,
        "cells of an index that finds lists without the scores of all items; 0: no index (none given: 2 root(items) "
        "from 200,000 items on)",
        at_least=0,
        at_most=1_000_000,
    )
    tune_trials: int = selftune.trials_setting()
    l2_: float = learned()
    nu_: float = learned()
    kappa_: float = learned()
    b_: float = learned()
    c_: float = learned()
    weights_: Csr = learned()  # (items, items): column j has the weights of item j's neighbours
    left_: FloatArray = learned()  # (items, factors)
    right_: FloatArray = learned()  # (factors, items), by places of the index where there is one
    order_: IntArray = learned(item_numbers=True)  # the item of each place; this and the next are empty without one
    starts_: IntArray = learned()  # the place where each cell starts, and the end
    centres_: FloatArray = learned()  # (cells, factors + 1)
    _index: Index | None = field(init=False, repr=False, compare=False)  # of these arrays
    # Where neighbourhoods are solved, if not in this process: no part of a model.
    solver: Solver | None = field(default=None, compare=False, kw_only=True, repr=False)

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        n_items = train.shape[1]
        require_memory(
            self.fit_bytes(Shape.of(train)),
            f"Local thinning with {self.neighbours} neighbours on {n_items:,} items",
            "set fewer neighbours, or raise --min-users-per-item so that fewer items remain.",
        )
        generator = make_rng(rng)
        self._settle(train, valid, generator)
        rows = user_weighted(train, self.b_)
        n = np.bincount(rows.indices, rows.data.astype(np.float64) ** 2, minlength=n_items).astype(np.float32)
        ridge = penalty(n, l2=self.l2_, nu=self.nu_) + np.float32(self.kappa_) * n
        solve = self.solver or near_field
        near, explained = solve(rows, n, ridge, min(self.neighbours, n_items - 1))
        scaling = selftune.scalings(train, (self.c_,))[0]
        rank = 0 if self.neighbours >= n_items - 1 else min(self.factors, n_items)
        s, u = leading(rows, ridge, rank, generator) if rank else (ridge[:0], np.zeros((n_items, 0), np.float32))
        self.left_, right = far_field(near, ridge + n - explained, ridge, s, u)
        near.data *= scaling[near.indices]
        self.weights_ = near
        cells = usual_cells(n_items) if self.cells is None else self.cells
        right *= scaling
        self._hold(right, Index.of(right, cells, generator) if cells and right.size else None)
        return self

    def _hold(self, right: FloatArray, index: Index | None) -> None:
        """Keep what the far field gives each item, in the order of the index where there is one."""
        nothing = np.zeros(0, np.int64)
        parts = (right, nothing, nothing, np.zeros((0, 0), np.float32)) if index is None else index.parts
        self.right_, self.order_, self.starts_, self.centres_ = parts
        self._index = index

    def load_state(self, state: Mapping[str, NDArray[Any]], chosen: Mapping[str, Any], n_items: int) -> None:
        if "order_" not in state:  # of a version that had no index
            nothing = np.zeros(0, np.int64)
            state = {**state, "order_": nothing, "starts_": nothing, "centres_": np.zeros((0, 0), np.float32)}
        super().load_state(state, chosen, n_items)
        index = None
        if self.order_.size or self.starts_.size or self.centres_.size:
            index = Index(self.right_, self.order_, self.starts_, self.centres_)
            index.check(n_items)
        if self.weights_.shape != (n_items, n_items):
            raise ValueError(f"weights_ has the shape {self.weights_.shape} for {n_items} items")
        self._hold(self.right_, index)

    def score(self, history: Csr) -> FloatArray:
        scores = (history @ self.left_) @ self.right_
        if self._index is not None:
            scores = scores.take(self._index.places, axis=1)
        near = history @ self.weights_
        scores[row_numbers(near), near.indices] += near.data
        return np.asarray(scores, np.float32)

    @property
    def finds(self) -> bool:
        return vars(self).get("_index") is not None

    def find(self, history: Csr, k: int, allowed: NDArray[np.bool_] | None = None) -> tuple[IntArray, FloatArray]:
        assert self._index is not None
        return self._index.search(history @ self.left_, k, history, csr_array(history @ self.weights_), allowed)

    def reasons(self, history: Csr, items: IntArray) -> Reasons:
        near = exact(history, self.weights_, items)
        places = items if self._index is None else self._index.places[items]
        far = (self.left_[history.indices] * history.data[:, None]) @ self.right_[:, places]  # (sources, items)
        return replace(near, parts=near.parts + far.T)

    def economical(self, shape: Shape) -> Self:
        """Return the model without an index: as one of several it gives scores of all items."""
        return replace(self, cells=0)

    def beside(self, fitted: Recommender) -> Self:
        """Return the model with what the whole one has chosen: its search is the one that would be made here."""
        if not isinstance(fitted, ThinningLinear):
            return self
        return replace(self, **{name: getattr(fitted, f"{name}_") for name in _RIDGE if getattr(self, name) is None})

    def needs_validation(self, shape: Shape) -> bool:
        """Return False: training users judge its settings, as those of thinning-linear."""
        return False

    def fit_bytes(self, shape: Shape) -> int:
        """Return about how many bytes the fit holds at most, beside the data: in its search or in one of its stages."""
        places = shape.items * max(0, min(self.neighbours, shape.items - 1))
        packed = min(GRAM_BYTES, 2 * places * (self.neighbours + 1))
        solving = 32 * shape.interactions + 8 * places + int(1.15 * packed) + _COMPILER_BYTES * (places > 0)
        turning = 4 * shape.interactions + 37 * places  # the weights of each item's neighbours into columns
        width = (self.factors + SPARE) * (self.factors > 0)
        spanning = 16 * shape.interactions + 8 * places + 4 * width * (6 * shape.items + shape.users)
        searched = min(shape.items, selftune.MOST_ITEMS) if selftune.searches(self) else 0
        whole = 4 * shape.items**2 * (shape.items <= WHOLE_ITEMS)  # with it nothing is compiled
        return max(solving + whole, turning + whole, spanning, gram_bytes(searched, 2.1, shape.interactions))

    def _settle(self, train: Csr, valid: Fold | None, rng: np.random.Generator) -> None:
        """Let thinning-linear choose what is open; a penalty found on popular items is put in units of all items."""
        given = {name: getattr(self, name) for name in _RIDGE}
        found = {**given, **selftune.open_settings(self)}
        if self.l2 is None:
            found["l2"] = start_l2(train)
        self.trials_ = 0
        if selftune.searches(self):
            small, judged = selftune.searched_items(train, valid)
            whole = ThinningLinear(**given, tune_trials=self.tune_trials)
            name_part(whole, part_name(self))
            whole.fit(small, judged, rng=rng)
            self.trials_ = whole.trials_
            found = {name: getattr(whole, f"{name}_") for name in _RIDGE}
            if self.l2 is None:
                mean, popular = (part.nnz / max(1, part.shape[1]) for part in (train, small))
                found["l2"] *= (mean / popular) ** found["nu"]
        for name, value in found.items():
            setattr(self, f"{name}_", value)


@dataclass(frozen=True)
class NearField:
    """The small problems of all items, which are numbered by popularity meanwhile.

    Most sums then go to a few neighbouring places in memory. What a problem comes to depends on no other one.
    """

    rows: Csr  # (users, items)
    by_item: Csr  # its transpose
    n: FloatArray  # (items,)
    ridge: FloatArray  # (items,)
    order: Places  # the item of each number
    count: int  # neighbours of an item

    @classmethod
    def of(cls, rows: Csr, n: FloatArray, ridge: FloatArray, count: int) -> "NearField":
        order = np.argsort(-n, kind="stable").astype(np.int32)
        number = _inverse(order)
        numbered = csr_array((rows.data.copy(), number[rows.indices], rows.indptr.copy()), shape=rows.shape)
        numbered.sort_indices()
        return cls(numbered, numbered.T.tocsr(), n[order], ridge[order], order, count)

    @cached_property
    def whole(self) -> FloatArray:
        """G itself, (items, items), for problems of few items."""
        return gram(self.rows)

    def solve(self, targets: slice) -> Solved:
        """Return each target's neighbours and their weights, (targets, count), and G_jN L_Nj, (targets,)."""
        if len(self.n) <= WHOLE_ITEMS:
            chosen, shared = nearest_of_whole(self.whole, self.n, self.ridge, self.count, targets)
            weights = solve_of_whole(self.whole, chosen, targets, shared, self.ridge)
        else:
            chosen, shared = nearest(self.rows, self.by_item, self.n, self.ridge, self.count, targets)
            packed = triangles(self.rows, self.by_item, chosen, targets)
            weights = solve_each(packed, chosen, targets, shared, self.ridge)
        if not np.isfinite(weights).all():
            raise InputError("A neighbourhood's Gram matrix is not positive definite: raise the penalty (l2).")
        return chosen, weights, (weights * shared).sum(1)


def near_field(rows: Csr, n: FloatArray, ridge: FloatArray, count: int) -> tuple[Csr, FloatArray]:
    """Return the weights L of each item's `count` neighbours, column by column, and G_jN L_Nj, (items,)."""
    problem = NearField.of(rows, n, ridge, count)
    blocks = target_blocks(rows.shape[1], count) if count else ()
    return joined(problem.order, count, ((targets, problem.solve(targets)) for targets in blocks))


def joined(order: Places, count: int, blocks: Iterable[tuple[slice, Solved]]) -> tuple[Csr, FloatArray]:
    """Return what `near_field` does of the solutions of all targets."""
    n_items = len(order)
    chosen, weights = np.empty((n_items, count), np.int32), np.empty((n_items, count), np.float32)
    explained = np.zeros(n_items, np.float32)
    for targets, solved in blocks:
        chosen[targets], weights[targets], explained[order[targets]] = solved
        log.debug("Local thinning: %d of %d items are solved", targets.stop, n_items)
    return _columns(chosen, weights, order), explained


def target_blocks(n_items: int, count: int, most: int = GRAM_BYTES) -> Iterator[slice]:
    """Yield slices of targets whose small Gram matrices fit into `most` bytes."""
    step = max(1, most // max(1, 2 * count * (count + 1)))
    return (slice(start, min(start + step, n_items)) for start in range(0, n_items, step))


def _columns(chosen: Places, weights: FloatArray, order: Places) -> Csr:
    """Return the matrix whose column order[j] has the weights of j's neighbours, without the places left over."""
    n_items = len(chosen)
    there = (chosen != np.arange(n_items)[:, None]) & (weights != 0)
    starts = np.concatenate([[0], np.cumsum(there.sum(1))])
    by_target = csr_array((weights[there], order[chosen[there]], starts), shape=(n_items, n_items))
    return by_target[_inverse(order)].T.tocsr()


def _inverse(order: Places) -> Places:
    """Return the number of each item."""
    number = np.empty_like(order)
    number[order] = np.arange(len(order), dtype=np.int32)
    return number
