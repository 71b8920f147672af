"""Splitting users and their histories into training, validation and test."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recfusion.core.arrays import Csr, IntArray, keep_entries, row_numbers
from recfusion.core.errors import InputError
from recfusion.core.rng import stream
from recfusion.data.interactions import TEST, TRAIN, VALID, Interactions, Signal
from recfusion.data.options import SplitPlan
from recfusion.data.signals import Extra, RowIndex, valued, whole_extra

# What to do if the parts of the entries leave nobody to evaluate on.
_ADVICE = {
    "given": "check that the files have the same user ids, or add --valid-file",
    "global": "choose --split temporal, or other shares",
}


class NobodyToJudge(InputError):  # noqa: N818
    """No user can be held out and scored, so there is no split; training on all users is still possible."""


@dataclass(frozen=True)
class Fold:
    """Users to evaluate on: the history shown to the model, and the held-out items to find. Row r is users[r]."""

    users: IntArray  # rows of the Interactions
    history: Csr
    held_out: Csr
    extra: Extra | None = None  # signals of the histories, if any are used

    @property
    def disliked(self) -> Csr | None:
        """The shown items that the users disliked."""
        return None if self.extra is None else self.extra.disliked

    def take(self, rows: RowIndex) -> "Fold":
        """Return the fold of some of its users."""
        extra = None if self.extra is None else self.extra.rows(rows)
        return Fold(self.users[rows], self.history[rows], self.held_out[rows], extra)

    def over(self, items: IntArray) -> "Fold":
        """Return the fold over some of its items, with the users who still have a shown and a held-out item."""
        extra = None if self.extra is None else self.extra.columns(items)
        return Fold(self.users, self.history[:, items], self.held_out[:, items], extra).scorable()

    def scorable(self) -> "Fold":
        """Return the fold of the users who have a shown and a held-out item."""
        return self.take(np.flatnonzero((np.diff(self.history.indptr) > 0) & (np.diff(self.held_out.indptr) > 0)))


@dataclass(frozen=True)
class Split:
    """One seeded split: a training matrix and two folds over the same items."""

    seed: int
    plan: SplitPlan
    train_users: IntArray  # rows of the Interactions
    train: Csr
    valid: Fold
    test: Fold
    extra: Extra | None = None  # signals of the training matrix, if any are used
    whole: Csr | None = None  # fit the final model on this, if `train` and `valid` are parts of one training file


def split(data: Interactions, plan: SplitPlan | None = None, *, seed: int = 0, used: tuple[Signal, ...] = ()) -> Split:
    """Split `data` at random; the same seed gives the same split, whatever signals are `used`.

    Each disliked item of a held-out user is shown with the same probability as a liked one; in a temporal or global
    split, those before the last shown like are shown. Disliked items that are not shown are ordinary candidates.
    """
    plan = plan or SplitPlan()
    if plan.valid + plan.test >= 1:
        raise InputError(
            f"Expected valid + test below 1, got {plan.valid} + {plan.test}: leave users to train on.", "valid"
        )
    if not np.any(np.diff(data.matrix.indptr) >= 2):
        raise NobodyToJudge(
            f"No user of '{data.name}' has 2 items, one to show and one to find, so nobody can be evaluated: "
            "train on everybody with --all-users, or bring more data."
        )
    rng = stream(seed, "split")
    if plan.kind in ("temporal", "global") and data.times is None:
        raise InputError(
            f"A {plan.kind} split needs times, and '{data.name}' has none: name the column with --time.", "time"
        )
    if plan.kind != "given" and data.source.test_file is not None:
        raise InputError("--test-file is for --split given: add it, or leave out the file.", "test_file")
    kinds = {"weak": _split_weak, "leave-one-out": _split_weak, "global": _split_time, "given": _split_given}
    parts = kinds.get(plan.kind, _split_users)(data, plan, rng, seed)
    if plan.kind == "given" and {"grades", "times"} & set(used):
        raise InputError("A given split is evaluated without ratings and times: use --signals binary.", "signals")
    if plan.cold_items:
        parts = _without_cold(data, parts, used)
    return _with_extra(data, parts, used) if used else parts


def without_test(parts: Split) -> Split:
    """Return a split without its test users, for choosing settings."""
    return replace(parts, test=parts.test.take(slice(0, 0)))


def _without_cold(data: Interactions, parts: Split, used: tuple[Signal, ...]) -> Split:
    """Return the split with a share of the items removed from training; test users must find these."""
    if parts.plan.kind != "strong" or {"grades", "times"} & set(used):
        raise InputError(
            "New items are evaluated on a strong split, without ratings and times: leave out --cold-items.",
            "cold_items",
        )
    order = stream(parts.seed, "cold items").permutation(data.n_items)
    cold = np.zeros(data.n_items, bool)
    cold[order[: max(1, round(parts.plan.cold_items * data.n_items))]] = True

    def warm(matrix: Csr) -> Csr:
        return keep_entries(matrix, ~cold[matrix.indices])

    whole = data.matrix[parts.test.users]
    folds = (
        Fold(parts.valid.users, warm(parts.valid.history), warm(parts.valid.held_out)),
        Fold(parts.test.users, warm(whole), keep_entries(whole, cold[whole.indices])),
    )
    valid, test = (fold.scorable() for fold in folds)
    if not len(valid.users) or not len(test.users):
        raise InputError(f"No user of '{data.name}' has both new and known items: change --cold-items.", "cold_items")
    return replace(parts, train=warm(parts.train), valid=valid, test=test)


def _with_extra(data: Interactions, parts: Split, used: tuple[Signal, ...]) -> Split:
    """Return the split with the signals of what each part shows the model."""
    by_time = parts.plan.kind in ("temporal", "global") or _by_time(data, parts.plan)
    learned = parts.plan.fold_in if parts.plan.kind == "strong" else 1 - parts.plan.valid - parts.plan.test
    tested = 1 - parts.plan.test if parts.plan.kind == "weak" else learned
    # One draw per disliked item of the data, so that the same ones are shown in whatever part their user is.
    chance = stream(parts.seed, "dislikes").random(0 if data.disliked is None else data.disliked.nnz)

    def of(users: IntArray, history: Csr, shown: float) -> Extra | None:
        whole = whole_extra(data, used)
        assert whole is not None
        found, stays = whole.rows(users), _is_in(data.matrix[users], history)
        found = found.keep(stays, "grades", "times")
        if found.disliked is None:
            return found
        if by_time:
            latest = _latest(data, users, stays)
            seen = _values(data.disliked, data.disliked_times, users) <= latest[row_numbers(found.disliked)]
        else:
            seen = _values(data.disliked, chance, users) < shown
        return found.keep(seen, "disliked", "disliked_times")

    whole_users = parts.plan.kind in ("strong", "temporal")  # training users have nothing held out
    training = whole_extra(data, used) if whole_users else None
    train = training.rows(parts.train_users) if training is not None else of(parts.train_users, parts.train, learned)
    valid, test = (
        replace(fold, extra=of(fold.users, fold.history, shown))
        for fold, shown in ((parts.valid, learned), (parts.test, tested))
    )
    return replace(parts, extra=train, valid=valid, test=test)


def _is_in(whole: Csr, part: Csr) -> NDArray[np.bool_]:
    """Return which stored entries of `whole` are also in `part`, a subset."""
    keys, own = (row_numbers(m).astype(np.int64) * m.shape[1] + m.indices for m in (whole, part))
    return np.isin(keys, own, assume_unique=True)


def _latest(data: Interactions, users: IntArray, shown: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the time of the last shown item of each user, (users,)."""
    times, latest = _values(data.matrix, data.times, users), np.full(len(users), np.iinfo(np.int64).min)
    np.maximum.at(latest, row_numbers(data.matrix[users])[shown], times[shown])
    return latest


def _split_users(data: Interactions, plan: SplitPlan, rng: np.random.Generator, seed: int) -> Split:
    n = data.n_users
    n_valid, n_test = max(1, round(plan.valid * n)), max(1, round(plan.test * n))
    if n - n_valid - n_test < 1:
        raise NobodyToJudge(
            f"Expected at least 3 users (one each for training, validation and test), got {n} in '{data.name}': "
            "bring more users, loosen the filters of the preparation, or train on everybody with --all-users."
        )
    order = rng.permutation(n)
    train, valid, test = (np.sort(part) for part in np.split(order, [n - n_valid - n_test, n - n_test]))
    validation = _fold(data, valid, plan, rng, "validation")
    return Split(seed, plan, train, data.matrix[train], validation, _fold(data, test, plan, rng, "test"))


def _fold(data: Interactions, users: IntArray, plan: SplitPlan, rng: np.random.Generator, what: str) -> Fold:
    """Divide the histories of `users` into shown and held-out items; users with a single item are left out."""
    lengths = np.diff(data.matrix.indptr)[users]
    users = users[lengths >= 2]
    if not len(users):
        raise NobodyToJudge(
            f"Expected {what} users with at least 2 items, got none in '{data.name}': raise --min-items-per-user to 2 "
            "or more, or bring more data."
        )
    matrix = data.matrix[users]
    rank = rank_in_row(matrix, rng, _values(data.matrix, data.times, users) if plan.kind == "temporal" else None)
    lengths = np.diff(matrix.indptr)
    n_shown = np.clip(np.rint(plan.fold_in * lengths), 1, lengths - 1)
    shown = rank < np.repeat(n_shown, lengths)
    return Fold(users, keep_entries(matrix, shown), keep_entries(matrix, ~shown))


def _split_weak(data: Interactions, plan: SplitPlan, rng: np.random.Generator, seed: int) -> Split:
    """Divide each history into training, validation and test; short histories may lack the latter two.

    In a leave-one-out split validation and test have one item each, the latest ones if there are times.
    """
    lengths = np.diff(data.matrix.indptr)
    n_valid, n_test = np.rint(plan.valid * lengths), np.rint(plan.test * lengths)
    if plan.kind == "leave-one-out":
        n_valid = n_test = (lengths >= 3).astype(np.float64)
    rank = rank_in_row(data.matrix, rng, data.times if _by_time(data, plan) else None)
    last_train = np.repeat(lengths - n_valid - n_test, lengths)
    last_valid = np.repeat(lengths - n_test, lengths)
    return _split_entries(data, plan, seed, np.add(rank >= last_train, rank >= last_valid, dtype=np.int8))


def _by_time(data: Interactions, plan: SplitPlan) -> bool:
    return plan.kind == "leave-one-out" and data.times is not None


def _split_given(data: Interactions, plan: SplitPlan, rng: np.random.Generator, seed: int) -> Split:
    """Take the parts of the data; the model is shown all other known items of a test user.

    Without validation pairs a random share `valid` of each training history is used, at least one of two items, and
    the final model is fitted on the whole training file.
    """
    if data.parts is None:
        raise InputError(
            f"A given split needs a file of test pairs, and '{data.name}' has none: name it with --test-file.",
            "test_file",
        )
    part, whole = data.parts, None
    if not np.any(part == VALID):
        whole = keep_entries(data.matrix, part == TRAIN)
        lengths = np.diff(whole.indptr)
        n_valid = np.clip(np.rint(plan.valid * lengths), 1, np.maximum(lengths - 1, 0))
        drawn = rank_in_row(whole, rng, None) >= np.repeat(lengths - n_valid, lengths)
        part = part.copy()
        part[np.flatnonzero(part == TRAIN)[drawn]] = VALID
    return replace(_split_entries(data, plan, seed, part), whole=whole)


def _split_time(data: Interactions, plan: SplitPlan, _: np.random.Generator, seed: int) -> Split:
    """Train before one moment, validate up to a second one, and test after it; the seed is not used.

    The two moments are chosen by the shares `valid` and `test` of all interactions. The model is shown all earlier
    items of a user, and must find those in the window; users without earlier items are left out.
    """
    times = data.times
    assert times is not None
    ordered = np.sort(times)
    n_test, n_valid = (round(share * len(ordered)) for share in (plan.test, plan.valid))
    last, first = (int(ordered[-1 - n]) if n < len(ordered) else int(ordered[0]) for n in (n_test, n_test + n_valid))
    parts = _split_entries(data, plan, seed, np.add(times > first, times > last, dtype=np.int8))
    users = np.flatnonzero(np.diff(parts.train.indptr))
    return replace(parts, train_users=users, train=parts.train[users])


def _split_entries(data: Interactions, plan: SplitPlan, seed: int, part: NDArray[np.int8]) -> Split:
    """Divide the stored entries of all users by their part; the model is shown the entries of all earlier parts.

    At the test the validation items belong to the history: otherwise they would be recommended, and count as misses.
    """

    def fold(which: int, what: str) -> Fold:
        history, held_out = keep_entries(data.matrix, part < which), keep_entries(data.matrix, part == which)
        found = Fold(np.arange(data.n_users), history, held_out).scorable()
        if not len(found.users):
            advice = _ADVICE.get(plan.kind, "raise --min-items-per-user")
            raise NobodyToJudge(f"No user of '{data.name}' has items to show and to find in the {what}: {advice}.")
        return found

    train = keep_entries(data.matrix, part == TRAIN)
    return Split(seed, plan, np.arange(data.n_users), train, fold(VALID, "validation"), fold(TEST, "test"))


def rank_in_row(matrix: Csr, rng: np.random.Generator, times: NDArray[np.int64] | None) -> IntArray:
    """Return each stored entry's rank in a random order of its row; with times, in time order (ties at random)."""
    rows = row_numbers(matrix)
    chance = rng.random(matrix.nnz)
    order = np.lexsort((chance, rows) if times is None else (chance, times, rows))
    rank = np.empty(matrix.nnz, np.int64)
    rank[order] = np.arange(matrix.nnz) - np.repeat(matrix.indptr[:-1], np.diff(matrix.indptr))
    return rank


def _values(matrix: Csr | None, values: NDArray[Any] | None, users: IntArray) -> NDArray[Any]:
    """Return the values of the stored entries of `matrix[users]`, in order."""
    assert matrix is not None
    assert values is not None
    return valued(matrix, values)[users].data
