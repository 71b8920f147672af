"""A model whose scores are checked: anybody's `score` may return anything."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from recfusion.core.arrays import Csr, FloatArray
from recfusion.core.errors import InputError
from recfusion.data.interactions import Signal
from recfusion.data.signals import Extra
from recfusion.evaluation.scoring import signals_read
from recfusion.models.base import Recommender


@dataclass(frozen=True)
class CheckedScorer:
    """Gives the scores of a model; raises if they are not an array (users, items) of floats that can be changed."""

    model: Recommender

    @property
    def reads(self) -> frozenset[Signal]:
        return signals_read(self.model)

    def score(self, history: Csr, *, extra: Extra | None = None) -> FloatArray:
        signals: Mapping[str, Any] = {} if extra is None else {"extra": extra}
        found = self.model.score(history, **signals)
        if problem := _problem(found, history.shape):
            users, items = history.shape
            raise InputError(
                f"Expected score of {type(self.model).__name__} to return a numpy array of floats with the shape "
                f"(users, items), here ({users}, {items}), got {problem}: change its score."
            )
        return found


def _problem(found: object, shape: tuple[int, int]) -> str:
    """Return what is wrong with scores, in words; nothing if they are usable."""
    if not isinstance(found, np.ndarray):
        return f"{type(found).__module__}.{type(found).__name__}".removeprefix("builtins.")
    if found.shape != shape:
        return f"the shape {found.shape}"
    if found.dtype.kind != "f":
        return f"numbers of the type {found.dtype}" if found.dtype.kind in "iub" else f"the type {found.dtype}"
    return "" if found.flags.writeable else "an array that cannot be changed (copy it)"
