"""The linear denoiser for many items: weights for each item's neighbours, and a few factors for all other items."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray, IntArray, row_numbers
from recfusion.core.errors import InputError
from recfusion.core.memory import require_memory
from recfusion.core.rng import RngLike, make_rng
from recfusion.data.signals import valued
from recfusion.data.split import Fold
from recfusion.models import self_tuning as selftune
from recfusion.models.base import Shape
from recfusion.models.inverted_index import Index, usual_cells
from recfusion.models.linear.gram import gram, gram_bytes, user_weighted
from recfusion.models.reasons import Reasons, exact
from recfusion.models.settings import learned, self_tuned, setting
from recfusion.models.thinning import neighbours as near
from recfusion.models.thinning.linear import RIDGE, RidgeRecommender, ThinningLinear, fit_linear, penalty, start_l2
from recfusion.models.thinning.low_rank import SPARE, far_field, leading
from recfusion.models.thinning.neighbours import GRAM_BYTES, WHOLE_ITEMS, Places
from recfusion.models.thinning.plan import DENSE_ITEMS, EXACT_ITEMS

log = logging.getLogger(__name__)
_PER_SECOND = 5e9  # operations of small systems and sparse products (measured)
_COMPILER_BYTES = 100 << 20
_MORE_FACTORS = 512  # in a mixture for many items
_INPUT_POWERS = (0.0, 0.25, 0.5)  # a, with very many items
_SCALINGS = {"a": 0.25, "c": 0.0}  # kept unless others are better by a standard error (docs/scale.md)
_REFINEMENTS = (("b", 0.5), ("l2", 0.5), ("l2", 0.5))  # factors of settings that are tried with very many items
_NO_ITEMS: IntArray = np.zeros(0, np.int64)
_NO_CENTRES: FloatArray = np.zeros((0, 0), np.float32)
_CELLS_DOC = "cells of an index that finds lists; 0: no index (default: 2 root(items) from 200,000 items on)"
Fields = tuple[Csr, FloatArray, FloatArray]
Solved = tuple[Places, FloatArray, FloatArray]
Solver = Callable[[Csr, FloatArray, FloatArray, int], tuple[Csr, FloatArray]]  # the type of `near_field`


@dataclass
class ThinningLocal(RidgeRecommender):
    """`thinning-linear` as a sparse matrix plus a matrix of low rank: cost and memory are linear in the items.

    Column j of thinning-linear's B is the ridge regression of item j on all other items. The near field is the
    regression on the items N_j that say most about item j, (G_NN + diag Lambda_N)^-1 G_Nj, with the same G and Lambda.
    The far field makes the sum of both equal to the whole model on the span of the leading eigenvectors (see
    `low_rank`). With all other items as neighbours it is the whole model; without neighbours it is the truncated
    eigen-denoiser, `thinning-factors`. Open settings are chosen by thinning-linear's search, on the most popular items
    if there are many; the power c of popularity is then chosen on all items. With very many items, entries of a
    history may be divided by popularity^a too, which scales the rows of both matrices.
    """

    needs_validation: ClassVar[bool] = False  # settings are scored on training users, as in thinning-linear
    neighbours: int = setting(100, "neighbours with their own weights for each item", at_least=0)
    factors: int = setting(128, "leading eigenvectors that stand for all other items", at_least=0, at_most=100_000)
    a: float | None = self_tuned(0.0, "history entries are divided by popularity^a", search=(0.0, 0.5))
    cells: int | None = setting(None, _CELLS_DOC, at_least=0, at_most=1_000_000)
    tune_trials: int = selftune.trials_setting()
    a_: float = learned()
    weights_: Csr = learned()  # (items, items): column j has the weights of item j's neighbours
    left_: FloatArray = learned()  # (items, factors)
    right_: FloatArray = learned()  # (factors, items), in the order of the index if there is one
    order_: IntArray = learned(item_numbers=True)  # the items in the order of the index; empty without an index
    starts_: IntArray = learned()  # where each cell of the index starts, and the end; empty without an index
    centres_: FloatArray = learned()  # (cells, factors + 1); empty without an index
    _index: Index | None = field(init=False, repr=False, compare=False)  # made of these arrays
    # Solves the neighbourhoods elsewhere, such as on Spark; it is not a setting.
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
        fields = self._fields(train, generator)
        if EXACT_ITEMS < n_items <= DENSE_ITEMS and self.tune_trials:
            fields = self._refine(train, valid, generator, fields)
        weights, self.left_, right = fields
        self.a_ = self.a or 0.0
        if n_items > selftune.MOST_ITEMS and None in (self.a, self.c) and self.tune_trials:
            self._choose_scalings(train, valid, lambda history: _sum_fields(history, weights, self.left_, right))
        scaling, of_rows = selftune.scalings(train, (self.c_, self.a_))
        weights.data *= scaling[weights.indices]
        if self.a_:
            weights.data *= of_rows[row_numbers(weights)]
            self.left_ *= of_rows[:, None]
        self.weights_ = weights
        cells = usual_cells(n_items) if self.cells is None else self.cells
        right *= scaling
        self._hold(right, Index.of(right, cells, generator) if cells and right.size else None)
        return self

    def _fields(self, train: Csr, rng: np.random.Generator) -> Fields:
        """Return the weights of neighbours (items, items), and the left and the right factor of the far field."""
        rows, n_items = user_weighted(train, self.b_), train.shape[1]
        n = np.bincount(rows.indices, rows.data.astype(np.float64) ** 2, minlength=n_items).astype(np.float32)
        ridge = penalty(n, l2=self.l2_, nu=self.nu_) + np.float32(self.kappa_) * n
        weights, explained = (self.solver or near_field)(rows, n, ridge, min(self.neighbours, n_items - 1))
        rank = 0 if self.neighbours >= n_items - 1 else min(self.factors, n_items)
        s, u = leading(rows, ridge, rank, rng) if rank else (ridge[:0], np.zeros((n_items, 0), np.float32))
        return weights, *far_field(weights, ridge + n - explained, ridge, s, u)

    def _hold(self, right: FloatArray, index: Index | None) -> None:
        """Keep the right factor, in the order of the index if there is one."""
        parts = (right, _NO_ITEMS, _NO_ITEMS, _NO_CENTRES) if index is None else index.parts
        self.right_, self.order_, self.starts_, self.centres_ = parts
        self._index = index

    def load_state(self, state: Mapping[str, NDArray[Any]], chosen: Mapping[str, Any], n_items: int) -> None:
        # Models of older versions have no index.
        state = {"order_": _NO_ITEMS, "starts_": _NO_ITEMS, "centres_": _NO_CENTRES, **state}
        super().load_state(state, chosen, n_items)
        index = None
        if self.order_.size or self.starts_.size or self.centres_.size:
            index = Index(self.right_, self.order_, self.starts_, self.centres_)
            index.check(n_items)
        if self.weights_.shape != (n_items, n_items):
            raise ValueError(f"weights_ has the shape {self.weights_.shape} for {n_items} items")
        self._hold(self.right_, index)

    def score(self, history: Csr) -> FloatArray:
        places = slice(None) if self._index is None else self._index.places
        return _sum_fields(history, self.weights_, self.left_, self.right_, places)

    @property
    def finds(self) -> bool:
        return vars(self).get("_index") is not None

    def find(self, history: Csr, k: int, allowed: NDArray[np.bool_] | None = None) -> tuple[IntArray, FloatArray]:
        assert self._index is not None
        return self._index.search(history @ self.left_, k, history, csr_array(history @ self.weights_), allowed)

    def reasons(self, history: Csr, items: IntArray) -> Reasons:
        close = exact(history, self.weights_, items)
        places = items if self._index is None else self._index.places[items]
        far = (self.left_[history.indices] * history.data[:, None]) @ self.right_[:, places]  # (sources, items)
        return replace(close, parts=close.parts + far.T)

    def economical(self, shape: Shape) -> Self:
        """Return the model without an index: a mixture needs the scores of all items.

        It has more factors if it replaces an exact model in a catalogue that other parts with dense rows can read.
        """
        more = EXACT_ITEMS < shape.items <= DENSE_ITEMS and self.neighbours > 0
        return replace(self, cells=0, factors=max(self.factors, _MORE_FACTORS) if more else self.factors)

    def seconds(self, shape: Shape) -> float:
        """Return about how many seconds a fit takes: thinning-linear's search, small systems, and factors."""
        search = ThinningLinear(tune_trials=self.tune_trials).seconds(
            replace(shape, items=min(shape.items, selftune.MOST_ITEMS))
        )
        systems = shape.items * float(self.neighbours) ** 3 + 20 * (self.factors + SPARE) * float(shape.interactions)
        return (search if selftune.searches(self, unused=("a",)) else 0.0) + systems / _PER_SECOND

    def fit_bytes(self, shape: Shape) -> int:
        """Return about how many bytes the fit holds at its peak: in its search or in one of its stages."""
        places = shape.items * max(0, min(self.neighbours, shape.items - 1))
        packed = min(GRAM_BYTES, 2 * places * (self.neighbours + 1))
        solving = 32 * shape.interactions + 8 * places + int(1.15 * packed) + _COMPILER_BYTES * (places > 0)
        turning = 4 * shape.interactions + 37 * places  # the weights of each item's neighbours into columns
        width = (self.factors + SPARE) * (self.factors > 0)
        spanning = 16 * shape.interactions + 8 * places + 4 * width * (6 * shape.items + shape.users)
        searched = min(shape.items, selftune.MOST_ITEMS) if selftune.searches(self, unused=("a",)) else 0
        whole = 4 * shape.items**2 * (shape.items <= WHOLE_ITEMS)  # then nothing is compiled
        return max(solving + whole, turning + whole, spanning, gram_bytes(searched, 2.1, shape.interactions))

    def _settle(self, train: Csr, valid: Fold | None, rng: np.random.Generator) -> None:
        """Let thinning-linear choose the open settings; a penalty of popular items is converted for all items."""
        if selftune.searches(self, unused=("a",)):
            small, judged = selftune.searched_items(train, valid)
            fit_linear(self, small, judged, rng)
            if self.l2 is None:
                mean, popular = (part.nnz / max(1, part.shape[1]) for part in (train, small))
                self.l2_ *= (mean / popular) ** self.nu_
            return
        self.trials_ = 0
        starts = selftune.open_settings(self) | {"l2": start_l2(train)}
        for name in RIDGE:
            given = getattr(self, name)
            setattr(self, f"{name}_", starts[name] if given is None else given)

    def _refine(self, train: Csr, valid: Fold | None, rng: np.random.Generator, fields: Fields) -> Fields:
        """Try other weights of users and lower penalties on all items, and keep what is better by a standard error.

        The most popular items, which these settings are chosen on, prefer higher values than the others.
        """
        jury = selftune.validation_jury(train, valid)
        if jury is None or jury.n_users < selftune.LEAST_USERS:
            return fields
        of_rows, fold = selftune.scalings(train, (_SCALINGS["a"],))[0], jury.valid

        def judged(number: int, fields: Fields) -> selftune.Judged:
            def score(history: Csr) -> FloatArray:
                return _sum_fields(valued(history, history.data * of_rows[history.indices]), *fields)

            return selftune.Judged({"number": number}, selftune.ndcg(score, fold))

        best = judged(0, fields)
        for number, (name, factor) in enumerate(_REFINEMENTS, 1):
            before = getattr(self, f"{name}_")
            if getattr(self, name) is None:
                setattr(self, f"{name}_", factor * before)
                tried = judged(number, other := self._fields(train, rng))
                self.trials_ += 1
                if selftune.choose([best, tried], best.settings)["number"] == number:
                    best, fields = tried, other
                else:
                    setattr(self, f"{name}_", before)
        return fields

    def _choose_scalings(self, train: Csr, valid: Fold | None, score: Callable[[Csr], FloatArray]) -> None:
        """Choose the powers of popularity, a and c, that are best for validation users over all items.

        They need no refit, so that users can be sampled instead of items: the most popular items alone, which the other
        settings are chosen on, say little about them.
        """
        jury = selftune.validation_jury(train, valid)
        if jury is None or jury.n_users < selftune.LEAST_USERS:
            return
        usual = {"a": 0.0, "c": self.c_}
        if train.shape[1] > EXACT_ITEMS:
            usual = _SCALINGS
        usual = usual | {name: given for name in usual if (given := getattr(self, name)) is not None}
        tried = []
        for a in (usual["a"],) if self.a is not None or train.shape[1] <= EXACT_ITEMS else _INPUT_POWERS:
            of_rows = selftune.scalings(train, (a,))[0]

            def scaled(history: Csr, of_rows: FloatArray = of_rows) -> FloatArray:
                return score(valued(history, history.data * of_rows[history.indices]))

            found = selftune.by_scaling(jury, train, self.c, scaled, lambda _: train.data[:0])  # nobody is left out
            tried += [selftune.Judged({"a": a, **each.settings}, each.values) for each in found]
        chosen = selftune.choose(tried, usual)
        self.a_, self.c_ = float(chosen["a"]), float(chosen["c"])


def _sum_fields(
    history: Csr, near: Csr, left: FloatArray, right: FloatArray, places: IntArray | slice = slice(None)
) -> FloatArray:
    """Return the scores (users, items) of both fields; `places` are those of the items in `right`."""
    scores = ((history @ left) @ right)[:, places]
    close = history @ near
    scores[row_numbers(close), close.indices] += close.data
    return np.asarray(scores, np.float32)


@dataclass(frozen=True)
class NearField:
    """The small regressions of all items, which are renumbered by popularity.

    Then most sums go to a few neighbouring places in memory. Each regression is independent of the others.
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
        """The whole Gram matrix (items, items), if there are few items."""
        return gram(self.rows)

    def solve(self, targets: slice) -> Solved:
        """Return each target's neighbours and their weights, (targets, count), and G_jN L_Nj, (targets,)."""
        if len(self.n) <= WHOLE_ITEMS:
            chosen, shared = near.nearest_of_whole(self.whole, self.n, self.ridge, self.count, targets)
            weights = near.solve_of_whole(self.whole, chosen, targets, shared, self.ridge)
        else:
            chosen, shared = near.nearest(self.rows, self.by_item, self.n, self.ridge, self.count, targets)
            packed = near.triangles(self.rows, self.by_item, chosen, targets)
            weights = near.solve_each(packed, chosen, targets, shared, self.ridge)
        if not np.isfinite(weights).all():
            raise InputError("A neighbourhood's Gram matrix is not positive definite: raise the penalty (l2).", "l2")
        return chosen, weights, (weights * shared).sum(1)


def near_field(rows: Csr, n: FloatArray, ridge: FloatArray, count: int) -> tuple[Csr, FloatArray]:
    """Return the weights L of each item's `count` neighbours, column by column, and G_jN L_Nj, (items,)."""
    problem = NearField.of(rows, n, ridge, count)
    blocks = target_blocks(rows.shape[1], count) if count else ()
    return joined(problem.order, count, ((targets, problem.solve(targets)) for targets in blocks))


def joined(order: Places, count: int, blocks: Iterable[tuple[slice, Solved]]) -> tuple[Csr, FloatArray]:
    """Return the result of `near_field` from the solutions of all targets."""
    n_items = len(order)
    chosen, weights = np.empty((n_items, count), np.int32), np.empty((n_items, count), np.float32)
    explained = np.zeros(n_items, np.float32)
    for targets, solved in blocks:
        chosen[targets], weights[targets], explained[order[targets]] = solved
        log.debug("Local thinning: %d of %d items are solved", targets.stop, n_items)
    return _columns(chosen, weights, order), explained


def target_blocks(n_items: int, count: int, most: int = GRAM_BYTES) -> Iterator[slice]:
    """Yield slices of targets with small Gram matrices that fit into `most` bytes."""
    step = max(1, most // max(1, 2 * count * (count + 1)))
    return (slice(start, min(start + step, n_items)) for start in range(0, n_items, step))


def _columns(chosen: Places, weights: FloatArray, order: Places) -> Csr:
    """Return the matrix with the weights of j's neighbours in column order[j], without unused places."""
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
