"""A model of somebody else's, in a module that other processes can import; tests also copy this file elsewhere."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

import recfusion as rf


@dataclass
class Mine(rf.Recommender):
    """popularity with a power, for tests"""

    power: float = rf.setting(0.5, "exponent of the popularity", at_least=0, search=(0.1, 2.0))
    note: str = rf.setting("", "a file that fit adds the number of its process to")
    scores_: NDArray[np.float32] = rf.learned()  # (items,)

    def fit(self, train: csr_array, valid: rf.Fold | None = None, *, rng: object = None) -> Self:
        counts = np.bincount(train.indices, minlength=train.shape[1])
        self.scores_ = (counts**self.power).astype(np.float32)
        if self.note:
            with Path(self.note).open("a") as file:
                file.write(f"{os.getpid()}\n")
        return self

    def score(self, history: csr_array) -> NDArray[np.float32]:
        return np.tile(self.scores_, (history.shape[0], 1))


@dataclass
class Dying(Mine):
    """A model whose fit ends its process."""

    def fit(self, train: csr_array, valid: rf.Fold | None = None, *, rng: object = None) -> Self:
        os.kill(os.getpid(), signal.SIGKILL)
        return self


class NoModel:
    """Neither a dataclass nor a model."""


class NoDataclass(Mine):
    """A model without the decorator."""


@dataclass
class Unfinished(rf.Recommender):
    """A model that lacks score."""

    def fit(self, train: csr_array, valid: rf.Fold | None = None, *, rng: object = None) -> Self:
        return self


@dataclass
class Needy(Mine):
    """A model with a setting that JSON cannot hold."""

    when: object = None
