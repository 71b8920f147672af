"""Small sample data, and a model with fits that several checks share."""

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
    """A model under test, with small data; copies of it are fitted, once for all checks if possible."""

    def __init__(self, model: Recommender) -> None:
        self.model = model
        self.kind = type(model)
        self.settings = deepcopy(setting_values(model))
        self.train, self.other = tastes(45, 0), tastes(30, 1)
        self.valid, self.few = _fold(tastes(24, 2)), _fold(tastes(2, 3))
        self.asked = _fold(tastes(6, 4)).history

    def fresh(self) -> Recommender:
        """Return an unfitted model with the same settings."""
        return dataclasses.replace(self.model)

    def fit(
        self, train: Csr, valid: Fold | None, *, rng: RngLike = SEED, model: Recommender | None = None
    ) -> Recommender:
        """Return the model, or a fresh one, fitted on copies of this data."""
        model = model or self.fresh()
        model.fit(train.copy(), deepcopy(valid), rng=rng)
        return model

    def score(self, history: Csr) -> FloatArray:
        """Return the scores of a copy of these histories by the fitted model."""
        return self.fitted.score(history.copy())

    @cached_property
    def first(self) -> "First":
        """The fit that most checks use."""
        return First(self)

    @property
    def fitted(self) -> Recommender:
        """The fitted model; checks do not fit it again."""
        return self.first.model

    @property
    def scores(self) -> FloatArray:
        """The scores of `asked` right after the fit."""
        return self.first.scores

    @cached_property
    def on_other(self) -> FloatArray:
        """The scores of a fresh model that is fitted on other data, after the first fit."""
        _ = self.first
        return self.fit(self.other, self.few).score(self.asked.copy())


class First:
    """A fit and its scores, with their inputs and outputs."""

    def __init__(self, subject: Subject) -> None:
        self.model = subject.fresh()
        self.train, self.valid, self.asked = subject.train.copy(), deepcopy(subject.valid), subject.asked.copy()
        self.returned = self.model.fit(self.train, self.valid, rng=SEED)
        self.scores: FloatArray = self.model.score(self.asked).copy()


def signals_of(rows: Csr, seed: int) -> Extra:
    """Return random ratings, times, dislikes and features."""
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
    """Return users of three groups, each with most items of their own group and one of another."""
    rng = np.random.default_rng(seed)
    size = N_ITEMS // _GROUPS
    dense = np.zeros((n_users, N_ITEMS), np.float32)
    for user, row in enumerate(dense):
        first = size * (user % _GROUPS)
        row[rng.permutation(np.arange(first, first + size))[: size - 2]] = 1
        row[(first + size + rng.integers(N_ITEMS - size)) % N_ITEMS] = 1
    return csr_array(dense)


def _fold(rows: Csr) -> Fold:
    """Return a fold that holds out the first two items of each user."""
    dense = rows.toarray()
    hidden = np.where(dense.cumsum(axis=1) <= 2, dense, 0)
    return Fold(np.arange(len(dense)), csr_array(dense - hidden), csr_array(hidden))
