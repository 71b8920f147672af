"""Splitting users and their histories into training, validation and test."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from recfusion.core.arrays import Csr, IntArray, keep_entries, row_numbers
from recfusion.core.errors import InputError
from recfusion.core.rng import stream
from recfusion.data.interactions import Interactions
from recfusion.data.settings import SplitPlan


@dataclass(frozen=True)
class Fold:
    """Users to be judged on: what the model is shown of each, and what it should find. Row r is users[r]."""

    users: IntArray  # rows of the Interactions
    history: Csr
    held_out: Csr


@dataclass(frozen=True)
class Split:
    """One seeded split: a training matrix and two folds over the same items."""

    seed: int
    plan: SplitPlan
    train_users: IntArray  # rows of the Interactions
    train: Csr
    valid: Fold
    test: Fold


def split(data: Interactions, plan: SplitPlan | None = None, *, seed: int = 0) -> Split:
    """Split `data` at random; the same seed gives the same split."""
    plan = plan or SplitPlan()
    if plan.valid + plan.test >= 1:
        raise InputError(f"Expected valid + test below 1, got {plan.valid} + {plan.test}: leave users to train on.")
    rng = stream(seed, "split")
    return _split_weak(data, plan, rng, seed) if plan.kind == "weak" else _split_users(data, plan, rng, seed)


def without_test(parts: Split) -> Split:
    """Return a split whose test users are gone: what may be sent to whoever chooses settings."""
    nobody = Fold(parts.test.users[:0], parts.test.history[:0], parts.test.held_out[:0])
    return replace(parts, test=nobody)


def _split_users(data: Interactions, plan: SplitPlan, rng: np.random.Generator, seed: int) -> Split:
    if plan.kind == "temporal" and data.times is None:
        raise InputError(f"A temporal split needs times, and '{data.name}' has none: name the column with --time.")
    n = data.n_users
    n_valid, n_test = max(1, round(plan.valid * n)), max(1, round(plan.test * n))
    if n - n_valid - n_test < 1:
        raise InputError(
            f"Expected at least 3 users (one each for training, validation and test), got {n} in '{data.name}': "
            "bring more users, or loosen the filters of the preparation."
        )
    order = rng.permutation(n)
    train, valid, test = (np.sort(part) for part in np.split(order, [n - n_valid - n_test, n - n_test]))
    folds = (_fold(data, users, plan, rng, what) for users, what in ((valid, "validation"), (test, "test")))
    return Split(seed, plan, train, data.matrix[train], *folds)


def _fold(data: Interactions, users: IntArray, plan: SplitPlan, rng: np.random.Generator, what: str) -> Fold:
    """Divide the histories of `users`: users with a single item cannot be judged and are left out."""
    lengths = np.diff(data.matrix.indptr)[users]
    users = users[lengths >= 2]
    if not len(users):
        raise InputError(
            f"Expected {what} users with at least 2 items, got none in '{data.name}': raise --min-items-per-user to 2 "
            "or more, or bring more data."
        )
    matrix = data.matrix[users]
    rank = _rank_in_row(matrix, rng, _entry_times(data, users) if plan.kind == "temporal" else None)
    lengths = np.diff(matrix.indptr)
    n_shown = np.clip(np.rint(plan.fold_in * lengths), 1, lengths - 1)
    shown = rank < np.repeat(n_shown, lengths)
    return Fold(users, keep_entries(matrix, shown), keep_entries(matrix, ~shown))


def _split_weak(data: Interactions, plan: SplitPlan, rng: np.random.Generator, seed: int) -> Split:
    """Give each user's history a training, a validation and a test part; short histories may lack the latter two."""
    matrix = data.matrix
    lengths = np.diff(matrix.indptr)
    n_valid, n_test = np.rint(plan.valid * lengths), np.rint(plan.test * lengths)
    rank = _rank_in_row(matrix, rng, None)
    last_train = np.repeat(lengths - n_valid - n_test, lengths)
    last_valid = np.repeat(lengths - n_test, lengths)
    train = keep_entries(matrix, rank < last_train)

    def fold(kept: NDArray[np.bool_], what: str) -> Fold:
        held_out = keep_entries(matrix, kept)
        users = np.flatnonzero((np.diff(held_out.indptr) > 0) & (np.diff(train.indptr) > 0))
        if not len(users):
            raise InputError(f"No user of '{data.name}' has enough items for a {what} part: raise the minimum items.")
        return Fold(users, train[users], held_out[users])

    valid = fold((rank >= last_train) & (rank < last_valid), "validation")
    return Split(seed, plan, np.arange(data.n_users), train, valid, fold(rank >= last_valid, "test"))


def _rank_in_row(matrix: Csr, rng: np.random.Generator, times: NDArray[np.int64] | None) -> IntArray:
    """Return each stored entry's place in a random order of its row; with times, in their order (ties at random)."""
    rows = row_numbers(matrix)
    chance = rng.random(matrix.nnz)
    order = np.lexsort((chance, rows) if times is None else (chance, times, rows))
    rank = np.empty(matrix.nnz, np.int64)
    rank[order] = np.arange(matrix.nnz) - np.repeat(matrix.indptr[:-1], np.diff(matrix.indptr))
    return rank


def _entry_times(data: Interactions, users: IntArray) -> NDArray[np.int64]:
    assert data.times is not None
    starts, lengths = data.matrix.indptr[users], np.diff(data.matrix.indptr)[users]
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return data.times[np.repeat(starts, lengths) + within]
