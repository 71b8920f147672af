"""Scores of a model: with the signals that it reads, or from histories alone."""

from typing import Any, Protocol, cast, runtime_checkable

from recfusion.core.arrays import Csr, FloatArray
from recfusion.core.rng import RngLike
from recfusion.data.interactions import Signal
from recfusion.data.signals import Extra
from recfusion.data.split import Fold


class Scorer(Protocol):
    """Gives scores (users, items) for a batch of histories."""

    def score(self, history: Csr) -> FloatArray: ...


@runtime_checkable
class ReadsSignals(Protocol):
    """Reads ratings, timestamps or features beside the interactions; `reads` names them."""

    @property
    def reads(self) -> frozenset[Signal]: ...

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None, extra: Extra | None = None) -> Any: ...

    def score(self, history: Csr, *, extra: Extra | None = None) -> FloatArray: ...


def signals_read(model: object) -> frozenset[Signal]:
    """Return the signals that a model, or a model class, reads; none if it does not say."""
    return frozenset(getattr(model, "reads", ()))


def read_by(model: object, extra: Extra | None) -> Extra | None:
    """Return the part of some signals that a model reads; None if it reads none of them."""
    return None if extra is None else extra.only(signals_read(model))


def scores(model: Scorer, history: Csr, extra: Extra | None = None) -> FloatArray:
    """Return the scores (users, items) of a batch of histories; the model gets the signals that it reads."""
    read = read_by(model, extra)
    return model.score(history) if read is None else cast(ReadsSignals, model).score(history, extra=read)
