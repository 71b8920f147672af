"""Small data, and a model on it: what several checks ask of it is done once."""

import dataclasses
from copy import deepcopy
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray
from recfusion.core.rng import RngLike
from recfusion.data.interactions import Features
from recfusion.data.signals import Extra, valued
from recfusion.data.split import Fold
from recfusion.models.base import Recommender
from recfusion.models.settings import setting_values

N_ITEMS, _GROUPS = 24, 3
SEED = 5


class Subject:
    """A model that is looked at, with small data. It is never fitted itself; what many checks need is done once."""

    def __init__(self, model: Recommender) -> None:
        self.model = model
        self.kind = type(model)
        self.settings = deepcopy(setting_values(model))
        self.train, self.other = tastes(45, 0), tastes(30, 1)
        self.valid, self.few = _fold(tastes(24, 2)), _fold(tastes(2, 3))
        self.asked = _fold(tastes(6, 4)).history

    def fresh(self) -> Recommender:
        """Return a model with the same settings that has learned nothing."""
        return dataclasses.replace(self.model)

    def fit(
        self, train: Csr, valid: Fold | None, *, rng: RngLike = SEED, model: Recommender | None = None
    ) -> Recommender:
        """Return a model, a fresh one unless given, fitted on copies of this data."""
        model = model or self.fresh()
        model.fit(train.copy(), deepcopy(valid), rng=rng)
        return model

    @cached_property
    def first(self) -> "First":
        """A fit that many checks ask about."""
        return First(self)

    @property
    def fitted(self) -> Recommender:
        """A fitted model, which checks do not fit again."""
        return self.first.model

    @property
    def scores(self) -> FloatArray:
        """What the fitted model gave for `asked` right after its fit."""
        return self.first.scores

    @cached_property
    def on_other(self) -> FloatArray:
        """What a fresh model gives that is fitted on other data, after the first."""
        _ = self.first
        return self.fit(self.other, self.few).score(self.asked.copy())


class First:
    """A fit and its scores, with what they were given and what came back."""

    def __init__(self, subject: Subject) -> None:
        self.model = subject.fresh()
        self.train, self.valid, self.asked = subject.train.copy(), deepcopy(subject.valid), subject.asked.copy()
        self.returned = self.model.fit(self.train, self.valid, rng=SEED)
        self.scores: FloatArray = self.model.score(self.asked).copy()


def signals_of(rows: Csr, seed: int) -> Extra:
    """Return grades, times, dislikes and features of made-up users and items."""
    rng = np.random.default_rng(seed)
    below = csr_array(np.where((rows.toarray() == 0) & (rng.random(rows.shape) < 0.1), 1, 0).astype(np.float32))
    kinds = np.eye(_GROUPS, dtype=np.float32)
    names = tuple(f"group {number}" for number in range(_GROUPS))
    of_items = np.repeat(kinds, rows.shape[1] // _GROUPS, axis=0)
    return Extra(
        grades=valued(rows, rng.integers(4, 6, rows.nnz).astype(np.float32)),
        times=valued(rows, rng.integers(10**9, size=rows.nnz)),
        disliked=valued(below, rng.integers(1, 4, below.nnz).astype(np.float32)),
        disliked_times=valued(below, rng.integers(10**9, size=below.nnz)),
        item_features=Features(csr_array(of_items), names),
        user_features=Features(csr_array(kinds[np.arange(rows.shape[0]) % _GROUPS]), names),
    )


def tastes(n_users: int, seed: int) -> Csr:
    """Return users of three groups: most of the items of their own group, and one of another."""
    rng = np.random.default_rng(seed)
    size = N_ITEMS // _GROUPS
    dense = np.zeros((n_users, N_ITEMS), np.float32)
    for user, row in enumerate(dense):
        first = size * (user % _GROUPS)
        row[rng.permutation(np.arange(first, first + size))[: size - 2]] = 1
        row[(first + size + rng.integers(N_ITEMS - size)) % N_ITEMS] = 1
    return csr_array(dense)


def _fold(rows: Csr) -> Fold:
    """Return users of whom all but their first two items are shown."""
    dense = rows.toarray()
    hidden = np.where(dense.cumsum(axis=1) <= 2, dense, 0)
    return Fold(np.arange(len(dense)), csr_array(dense - hidden), csr_array(hidden))
