"""Asking a model for scores: with the signals that it reads, or by its histories alone where it reads none."""

from collections.abc import Collection
from typing import Any, Protocol, cast

from recfusion.core.arrays import Csr, FloatArray
from recfusion.core.rng import RngLike
from recfusion.data.interactions import Signal
from recfusion.data.signals import Extra
from recfusion.data.split import Fold


class Scorer(Protocol):
    """Whatever gives scores (users, items) for a batch of histories."""

    def score(self, history: Csr) -> FloatArray: ...


class Reader(Protocol):
    """A model that takes more than ones."""

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None, extra: Extra | None = None) -> Any: ...

    def score(self, history: Csr, *, extra: Extra | None = None) -> FloatArray: ...


def read_by(model: object, extra: Extra | None) -> Extra | None:
    """Return what a model gets of some signals: those that its class says it reads; None for none."""
    reads: Collection[Signal] = getattr(model, "reads", ())
    return None if extra is None else extra.only(reads)


def scores(model: Scorer, history: Csr, extra: Extra | None = None) -> FloatArray:
    """Return the scores (users, items) of a batch of histories with what else is known of its users."""
    read = read_by(model, extra)
    return model.score(history) if read is None else cast(Reader, model).score(history, extra=read)
