"""The contract of every recommender: `fit` and `score`; optional abilities are in `abilities.py`."""

import dataclasses
import typing
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray, IntArray
from recfusion.core.errors import InputError, choices
from recfusion.core.rng import RngLike
from recfusion.data.signals import Extra
from recfusion.data.split import Fold
from recfusion.evaluation.scoring import read_by
from recfusion.models.reasons import Reasons, left_out
from recfusion.models.settings import PARTS, check_array, checked, learned_names, open_names, saved_sparse, settings_of


@dataclass(frozen=True)
class Shape:
    """The size of training data."""

    users: int
    items: int
    interactions: int
    dislikes: int = 0  # ratings below the like threshold, if they are used
    item_features: int = 0  # columns, if they are used
    user_features: int = 0
    timed: bool = False  # whether times are used

    @classmethod
    def of(cls, train: Csr, extra: Extra | None = None) -> "Shape":
        """Return the size of a training matrix and of the signals that are used with it."""
        known = extra or Extra()
        dislikes = 0 if known.disliked is None else known.disliked.nnz
        of_items, of_users = (
            0 if each is None else each.matrix.shape[1] for each in (known.item_features, known.user_features)
        )
        return cls(train.shape[0], train.shape[1], train.nnz, dislikes, of_items, of_users, known.times is not None)


@dataclass(frozen=True)
class Forecast:
    """What a fit is expected to take; None if it is not known."""

    seconds: float | None
    bytes: int | None  # at the peak, without the data and the program itself


class NotFitted(InputError, AttributeError):  # noqa: N818
    """A model was asked for something that it has only after `fit`."""


@dataclass
class Recommender(ABC):
    """A model: a dataclass with its hyper-parameters as fields; `learned` fields end in `_`.

    `fit` never changes a hyper-parameter, so that a second fit gives the same result as the first.

    A model that reads ratings, timestamps or features names them in a class variable `reads` and takes them as the
    keyword `extra`: `fit(train, valid, *, rng, extra)`, `score(history, *, extra)`, and `reasons` if it has its own.
    `extra` is an `Extra` with the signals that are used, or None.
    """

    trials_: int = dataclasses.field(init=False, default=0, repr=False, compare=False)  # of the last fit's search

    @abstractmethod
    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        """Learn from the 0/1 matrix `train` (users, items); `valid` is only for early stopping and tuning."""

    @abstractmethod
    def score(self, history: Csr) -> FloatArray:
        """Return scores (users, items) for a batch of histories (users, items), of known or new users.

        A user's scores depend on that user's history alone. The caller masks seen items and may overwrite the array.
        """

    def reasons(self, history: Csr, items: IntArray) -> Reasons:
        """Return the contribution of each item of one user's history (1, items) to the scores of `items`."""
        return left_out(self.score, history, items)

    def forecast(self, shape: Shape) -> Forecast:
        """Return the seconds and bytes that a fit on data of this size takes."""
        return Forecast(*(getattr(self, name, lambda _: None)(shape) for name in ("seconds", "fit_bytes")))

    def chosen(self) -> dict[str, Any]:
        """Return the open settings with the values that the fit chose, as they are written to JSON."""
        values = {name: getattr(self, f"{name}_") for name in open_names(type(self)) if getattr(self, name) is None}
        return {name: value for name, value in values.items() if value is not None}

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the learned arrays by name, as they are saved; a sparse matrix is saved as several arrays."""
        state: dict[str, NDArray[Any]] = {}
        for name in learned_names(type(self)):
            value = getattr(self, name)
            if isinstance(value, csr_array):
                shape = np.asarray(value.shape, np.int64)
                parts = {"data": value.data, "indices": value.indices, "indptr": value.indptr, "shape": shape}
                state |= {f"{name}.{part}": array for part, array in parts.items()}
            else:
                state[name] = np.asarray(value)
        return {name: np.ascontiguousarray(array) for name, array in state.items()}

    def load_state(self, state: Mapping[str, NDArray[Any]], chosen: Mapping[str, Any], n_items: int) -> None:
        """Restore the arrays and the chosen settings of a saved model with `n_items` items."""
        for name in learned_names(type(self)):
            if f"{name}.indptr" in state:
                value = saved_sparse({part: state[f"{name}.{part}"] for part in PARTS}, name)
            else:
                value = state[name]
            check_array(type(self), name, value, n_items)
            setattr(self, name, value)
        for name in open_names(type(self)):
            given = getattr(self, name)
            value = checked(type(self), name, chosen.get(name)) if given is None else given
            setattr(self, f"{name}_", value)

    @property
    def n_parameters(self) -> int:
        """How many numbers the model has learned."""
        return sum(int(np.size(getattr(self, name))) for name in learned_names(type(self)))

    def __post_init__(self) -> None:
        for name in settings_of(type(self)):
            setattr(self, name, checked(type(self), name, getattr(self, name)))

    if not typing.TYPE_CHECKING:  # a type checker would no longer report misspelt names

        def __getattr__(self, name: str) -> Any:
            """Raise NotFitted for a learned field without a value, and the usual error for any other name."""
            if any(name == field.name and not field.init for field in dataclasses.fields(type(self))):
                raise NotFitted(f"This {type(self).__name__} is not fitted yet: call fit before you use it.")
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")


def model_reasons(model: Recommender, history: Csr, items: IntArray, extra: Extra | None) -> Reasons:
    """Return a model's reasons, with the signals that it reads."""
    read = read_by(model, extra)
    if read is None:
        return model.reasons(history, items)
    if type(model).reasons is Recommender.reasons:  # the model has no method of its own
        return left_out(model.score, history, items, read)
    reasons: Reasons = typing.cast(Any, model).reasons(history, items, extra=read)
    return reasons


def build(model: type[Recommender], name: str, values: Mapping[str, Any], *, text: bool = True) -> Recommender:
    """Return a model with these settings; errors call it `name`."""
    declared = settings_of(model)
    parsed = {}
    for key, value in values.items():
        if key not in declared:
            raise choices(f"setting of {name}", key, declared or ["(it has none)"], key)
        parsed[key] = checked(model, key, value, called=name, text=text)
    try:
        return model(**parsed)
    except TypeError as error:
        raise InputError(f"{name} cannot be built from its settings ({error}): give each setting a default.") from None
