"""The linear denoiser on neighbourhoods: each item is predicted from the few items that say most about it."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.linalg.lapack import sposv
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray, IntArray
from recfusion.core.errors import InputError
from recfusion.core.memory import require_memory
from recfusion.core.rng import RngLike
from recfusion.data.split import Fold
from recfusion.models import selftune
from recfusion.models.base import Recommender, Shape
from recfusion.models.gram import blas_threads, user_weighted
from recfusion.models.reasons import Reasons, exact
from recfusion.models.settings import learned, self_tuned, setting
from recfusion.models.thinning.linear import ThinningLinear, penalty, start_l2
from recfusion.models.thinning.neighbours import GRAM_BYTES, nearest, small_grams

log = logging.getLogger(__name__)
_RIDGE = ("l2", "nu", "kappa", "b", "c")


@dataclass
class ThinningLocal(Recommender):
    """`thinning-linear` with no more than `neighbours` weights a target: cost and memory are linear in the items.

    Column j of thinning-linear's B is the ridge regression of item j on all others. Here it is the one on the items
    N_j that say most about it, (G_NN + diag Lambda_N)^-1 G_Nj, with the same G and Lambda; with all other items as
    neighbours it is the same model. Settings left open are chosen by thinning-linear's own search, on the most popular
    items where there are many.
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
    neighbours: int = setting(100, "items that each item is predicted from", at_least=1)
    tune_trials: int = selftune.trials_setting()
    l2_: float = learned()
    nu_: float = learned()
    kappa_: float = learned()
    b_: float = learned()
    c_: float = learned()
    weights_: Csr = learned()  # (items, items): column j has the weights of target j

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        n_items = train.shape[1]
        require_memory(
            self.fit_bytes(Shape.of(train)),
            f"Local thinning with {self.neighbours} neighbours on {n_items:,} items",
            "set fewer neighbours, or raise --min-users-per-item so that fewer items remain.",
        )
        self._settle(train, valid, rng)
        rows = user_weighted(train, self.b_)
        by_item = rows.T.tocsr()
        n = np.bincount(rows.indices, rows.data.astype(np.float64) ** 2, minlength=n_items).astype(np.float32)
        ridge = penalty(n, l2=self.l2_, nu=self.nu_) + np.float32(self.kappa_) * n
        count = min(self.neighbours, n_items - 1)
        chosen = nearest(rows, by_item, n, ridge, count)
        scaling = selftune.scalings(train, (self.c_,))[0]
        weights = np.empty(chosen.shape, np.float32)
        for targets in target_blocks(n_items, count) if count else ():
            weights[targets] = solve_each(*small_grams(rows, by_item, chosen, targets), chosen[targets], targets, ridge)
            log.debug("Local thinning: %d of %d items are solved", targets.stop, n_items)
        weights *= scaling[:, None]
        self.weights_ = _columns(chosen, weights)
        return self

    def score(self, history: Csr) -> FloatArray:
        return np.asarray((history @ self.weights_).toarray(), np.float32)

    def needs_validation(self, shape: Shape) -> bool:
        """Return False: thinning-linear's search needs none."""
        return False

    def reasons(self, history: Csr, items: IntArray) -> Reasons:
        return exact(history, self.weights_, items)

    def fit_bytes(self, shape: Shape) -> int:
        """Return about how many bytes the fit holds at most, beside the data."""
        count = max(1, min(self.neighbours, shape.items - 1))
        lists = shape.items * count * (8 + 4 + 8)  # neighbours, weights, and the places that sort them
        grams = min(GRAM_BYTES, 4 * shape.items * count**2)
        return 24 * shape.interactions + lists + grams

    def _settle(self, train: Csr, valid: Fold | None, rng: RngLike) -> None:
        """Let thinning-linear choose what is open; a penalty found on popular items is put in units of all items."""
        given = {name: getattr(self, name) for name in _RIDGE}
        small, judged = selftune.searched_items(train, valid)
        searched = self.tune_trials > 0 and None in given.values()
        starts = selftune.open_settings(self)
        if "l2" in starts:
            starts["l2"] = start_l2(train)
        self.trials_, found = 0, {**given, **starts}
        if searched:
            exact_model = ThinningLinear(**given, tune_trials=self.tune_trials).fit(small, judged, rng=rng)
            self.trials_ = exact_model.trials_
            found = {name: getattr(exact_model, f"{name}_") for name in _RIDGE}
            means = [part.nnz / max(1, part.shape[1]) for part in (train, small)]
            if self.l2 is None:
                found["l2"] *= (means[0] / means[1]) ** found["nu"]
        for name, value in found.items():
            setattr(self, f"{name}_", value)


def target_blocks(n_items: int, count: int) -> Iterator[slice]:
    """Yield slices of targets whose small Gram matrices fit into GRAM_BYTES."""
    step = max(1, GRAM_BYTES // max(1, 4 * count * count))
    return (slice(start, min(start + step, n_items)) for start in range(0, n_items, step))


def solve_each(
    among: FloatArray, towards: FloatArray, chosen: IntArray, targets: slice, ridge: FloatArray
) -> FloatArray:
    """Return (G_NN + diag ridge_N)^-1 G_Nj for each target j, (targets, count); `among` is overwritten.

    One LAPACK call a target: with 50 neighbours it takes less than half as long as torch's batched Cholesky and an
    eighth of numpy's batched solve (`benchmarks/local_solves.py`).
    """
    padded = chosen == np.arange(targets.start, targets.stop)[:, None]
    among[padded] = 0
    among.swapaxes(1, 2)[padded] = 0
    towards[padded] = 0
    diagonal = np.arange(chosen.shape[1])
    among[:, diagonal, diagonal] += ridge[chosen] + padded  # a place without an item has a weight of 0
    with blas_threads(chosen.shape[1]):
        for matrix, right in zip(among, towards, strict=True):
            _, right[:], failed = sposv(matrix.T, right, lower=True, overwrite_a=True)
            if failed:
                raise InputError("A neighbourhood's Gram matrix is not positive definite: raise the penalty (l2).")
    return towards


def _columns(chosen: IntArray, weights: FloatArray) -> Csr:
    """Return the matrix whose column j has the weights of item j's neighbours, without the places left over."""
    n_items, count = chosen.shape
    target = np.repeat(np.arange(n_items), count)
    there = (chosen.ravel() != target) & (weights.ravel() != 0)
    entries = (weights.ravel()[there], (chosen.ravel()[there], target[there]))
    return csr_array(entries, shape=(n_items, n_items))
