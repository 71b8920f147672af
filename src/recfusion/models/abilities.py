"""Optional abilities of models: a model has an ability if it has its members.

Abilities that callers ask for are protocols, for `isinstance(model, FindsLists)`. The others are single members that
the functions here read, with an answer for every model:

    without_histories() -> Self       a variant that holds no rows of training users
    check_grades(ratings, where)      raises if the model does not support some rating values
    lowest_grade: float               the lowest rating that it supports
    idle: tuple[str, ...]             settings without effect for the values of the others
    needs_validation                  whether its fit needs validation users, a bool or a method of the shape; without
                                      it, a fit needs them if a setting is open
    settled() -> Self                 a fresh model with all that the fit chose, if that is more than open settings
    planned(shape)                    the names of the models that a mixture fits on data of this size
    fit_notes()                       sentences about the last fit, for the model card
    use_device(device)                the device that it computes on
    seconds(shape), fit_bytes(shape)  estimates of a fit's seconds, and of its bytes at the peak, without the data
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from copy import copy
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from recfusion.core.arrays import Csr, FloatArray, IntArray
from recfusion.core.errors import InputError
from recfusion.core.rng import RngLike
from recfusion.data.signals import Extra
from recfusion.data.split import Fold
from recfusion.evaluation.scoring import ReadsSignals as ReadsSignals
from recfusion.evaluation.scoring import signals_read as signals_read
from recfusion.evaluation.topk import top_k
from recfusion.models.settings import open_names
from recfusion.training.epoch import Checkpoint, Epoch

if TYPE_CHECKING:
    from recfusion.models.base import Recommender, Shape

M = TypeVar("M", bound="Recommender")


@runtime_checkable
class FindsLists(Protocol):
    """Finds the best items with an index, without scoring all items; `finds` says whether there is one."""

    @property
    def finds(self) -> bool: ...

    def find(
        self, history: Csr, k: int, allowed: NDArray[np.bool_] | None = None
    ) -> tuple[IntArray, FloatArray]: ...  # like `top_k`, for allowed items; a few of the best may be missing


@runtime_checkable
class TrainsInEpochs(Protocol):
    """Fits epoch by epoch; a model that reads signals also takes `extra`."""

    def epochs(
        self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None, checkpoint: Checkpoint | None = None
    ) -> Iterator[Epoch]: ...


@runtime_checkable
class AddsItems(Protocol):
    """Adds items by their features, without a fit: `with_added` returns the learned arrays that change."""

    @classmethod
    def with_added(
        cls, saved: Callable[[str], NDArray[Any]], features: Csr, kept: Csr
    ) -> dict[str, NDArray[Any] | Csr]: ...


@runtime_checkable
class KeepsHistories(Protocol):
    """May hold rows of training users after the fit; `keeps_histories` says whether it does."""

    @property
    def keeps_histories(self) -> bool: ...


def adding_part(model: object) -> tuple[str, AddsItems] | None:
    """Return what adds items: the model itself, under an empty name, or the part of a mixture; None if nothing does."""
    named: dict[str, object] = {"": model} | getattr(model, "parts_", {})
    return next(((name, part) for name, part in named.items() if isinstance(part, AddsItems)), None)


def with_part(model: M, name: str, part: Any) -> M:
    """Return a mixture with another part of that name, or, without a name, the part itself."""
    if not name:
        return part
    changed: Any = copy(model)
    changed.parts_ = changed.parts_ | {name: part}
    return changed


def finds_lists(model: object) -> bool:
    """Return whether a fitted model finds lists with an index."""
    return isinstance(model, FindsLists) and model.finds


def find_lists(
    model: Recommender, history: Csr, k: int, allowed: NDArray[np.bool_] | None = None
) -> tuple[IntArray, FloatArray]:
    """Return the `k` best unseen items that are `allowed`: by the model's index, else by the scores of all items."""
    if isinstance(model, FindsLists) and model.finds:
        return model.find(history, k, allowed)
    scores = model.score(history)
    if allowed is not None:
        scores[:, ~allowed] = -np.inf
    return top_k(scores, history, k)


def fit_in_epochs(
    model: Recommender,
    train: Csr,
    valid: Fold | None = None,
    extra: Extra | None = None,
    *,
    rng: RngLike = None,
    checkpoint: Checkpoint | None = None,
) -> Iterator[Epoch]:
    """Fit a model and yield its epochs, if it has any; `extra` are the signals that it reads."""
    signals = {} if extra is None else {"extra": extra}
    if isinstance(model, TrainsInEpochs):
        return model.epochs(train, valid, rng=rng, checkpoint=checkpoint, **signals)
    model.fit(train, valid, rng=rng, **signals)
    return iter(())


def keeps_histories(model: object) -> bool:
    """Return whether the fitted model holds rows of training users."""
    return isinstance(model, KeepsHistories) and model.keeps_histories


def without_histories(model: Recommender) -> Recommender:
    """Return the model, or its variant that holds no rows of training users; raise if it has none."""
    model = getattr(model, "without_histories", lambda: model)()
    if keeps_histories(model):
        raise InputError(
            f"A fitted {type(model).__name__} with these settings holds rows of training users: choose another "
            "model, or allow histories."
        )
    return model


def check_rating_values(model: object, ratings: FloatArray, where: str) -> None:
    """Raise if the model does not support some rating values; `where` is "the data" or "the history"."""
    getattr(model, "check_grades", lambda *_: None)(ratings, where)


def lowest_rating(model: object) -> float:
    """Return the lowest rating that the model supports: the rating of a returned item."""
    return float(getattr(model, "lowest_grade", 0.0))


def skipped_settings(model: object) -> tuple[str, ...]:
    """Return the settings that have no effect for the values of the others; no search tries them."""
    return tuple(getattr(model, "idle", ()))


def needs_validation(model: Recommender, shape: Shape) -> bool:
    """Return whether a fit on data of this size chooses something on validation users."""
    known = getattr(model, "needs_validation", None)
    if known is None:
        return any(getattr(model, name) is None for name in open_names(type(model)))
    return bool(known(shape) if callable(known) else known)


def settled(model: M) -> M:
    """Return a fresh model with everything that this fit chose: it is fitted without validation users."""
    own: Callable[[], M] | None = getattr(model, "settled", None)
    return own() if own else dataclasses.replace(model, **model.chosen())


def planned_parts(model: object, shape: Shape) -> tuple[str, ...]:
    """Return the names of the models that a mixture would fit; none for other models."""
    return tuple(getattr(model, "planned", lambda _: ())(shape))


def fit_notes(model: object) -> tuple[str, ...]:
    """Return sentences about the last fit of a model, if it has any."""
    return tuple(getattr(model, "fit_notes", lambda: ())())


def use_device(model: object, device: str) -> None:
    """Set the device of a model that computes with torch; closed forms stay on the CPU."""
    getattr(model, "use_device", lambda _: None)(device)
