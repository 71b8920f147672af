"""The contract of every recommender."""

import dataclasses
import typing
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray, IntArray
from recfusion.core.errors import InputError, choices
from recfusion.core.rng import RngLike
from recfusion.data.interactions import Signal
from recfusion.data.signals import Extra
from recfusion.data.split import Fold
from recfusion.evaluation.topk import top_k
from recfusion.models.reasons import Reasons, left_out
from recfusion.models.settings import PARTS, check_array, checked, learned_names, open_names, saved_sparse, settings_of
from recfusion.training.epoch import Checkpoint, Epoch


@dataclass(frozen=True)
class Shape:
    """How large the training data is."""

    users: int
    items: int
    interactions: int
    dislikes: int = 0  # what users have seen and did not like, where that is used
    item_features: int = 0  # columns, where they are used

    @classmethod
    def of(cls, train: Csr, extra: Extra | None = None) -> "Shape":
        """Return the size of a training matrix, and of what is used beside it."""
        known = extra or Extra()
        dislikes = 0 if known.disliked is None else known.disliked.nnz
        features = 0 if known.item_features is None else known.item_features.matrix.shape[1]
        return cls(train.shape[0], train.shape[1], train.nnz, dislikes, features)


@dataclass(frozen=True)
class Forecast:
    """What a fit is expected to take; None where nobody knows."""

    seconds: float | None
    bytes: int | None  # at the peak, beside the data and the program itself


class NotFitted(InputError, AttributeError):  # noqa: N818
    """A model was asked for something that it has only after `fit`."""


@dataclass
class Recommender(ABC):
    """A model: a dataclass whose fields are its hyper-parameters and whose `learned` fields end in `_`.

    `fit` never changes a hyper-parameter, so that fitting again gives what a fresh model gives.

    A model that reads more than ones says what in `reads`, and takes it as a keyword: `fit(train, valid, *, rng,
    extra)`, `score(history, *, extra)`, and `reasons` where it has its own; `extra` is an `Extra` with those signals
    that are used, or None.
    Callers ask for scores by `evaluation.scoring.scores`, so that a model that reads nothing never gets the keyword.
    """

    reads: ClassVar[frozenset[Signal]] = frozenset()
    trials_: int = dataclasses.field(init=False, default=0, repr=False, compare=False)  # of the last fit's own search
    part_: str = dataclasses.field(init=False, default="", repr=False, compare=False)  # what a mixture calls it

    @abstractmethod
    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        """Learn from the 0/1 matrix `train` (users, items); `valid` is for early stopping and tuning alone."""

    @abstractmethod
    def score(self, history: Csr) -> FloatArray:
        """Return scores (users, items) for one batch of histories (users, items), of users seen or unseen.

        A user's scores depend on that user's history alone. The caller masks seen items and may overwrite the array.
        """

    @property
    def finds(self) -> bool:
        """Whether the fitted model has a way to `find` lists that is quicker than all scores."""
        return False

    def find(self, history: Csr, k: int, allowed: NDArray[np.bool_] | None = None) -> tuple[IntArray, FloatArray]:
        """Return what `top_k` makes of the scores of unseen items, or of those of them that are `allowed`.

        A model with an index finds the best of very many items without scoring all of them, and so may miss a few;
        what it finds has the score that `score` gives it.
        """
        scores = self.score(history)
        if allowed is not None:
            scores[:, ~allowed] = -np.inf
        return top_k(scores, history, k)

    def reasons(self, history: Csr, items: IntArray) -> Reasons:
        """Return what each item of one user's history (1, items) contributes to the scores of `items`."""
        return left_out(self.score, history, items)

    def epochs(
        self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None, checkpoint: Checkpoint | None = None
    ) -> Iterator[Epoch]:
        """Fit epoch by epoch, for callers that show progress or keep a checkpoint; a closed form has no epochs."""
        self.fit(train, valid, rng=rng)
        return iter(())

    def chosen(self) -> dict[str, Any]:
        """Return the settings that were left open and that the fit chose, with their values, as they go into JSON."""
        values = {name: getattr(self, f"{name}_") for name in open_names(type(self)) if getattr(self, name) is None}
        return {name: value for name, value in values.items() if value is not None}

    def settled(self) -> Self:
        """Return a fresh model with all that this fit chose on validation users: it can be fitted without any."""
        return dataclasses.replace(self, **self.chosen())

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the learned arrays by name, as they are saved; a sparse matrix becomes its parts."""
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
        """Take over what a saved model has learned for `n_items` items: its arrays, and the settings it chose."""
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

    def check_grades(self, grades: FloatArray, where: str) -> None:  # noqa: B027
        """Raise where some grades are none that the model knows; asked of all data before a fit, and of histories.

        `where` says in an error what they stand in: "the data", or "the history", which a caller can mend.
        """

    @property
    def lowest_grade(self) -> float:
        """The grade of what was given back: below all that is liked."""
        return 0.0

    def named(self, told: str) -> str:
        """Return what a fit tells people, led by the model's name where it is but a part of a mixture."""
        return f"{self.part_}: {told}" if self.part_ else told

    def use_device(self, device: str) -> None:  # noqa: B027
        """Compute on `device`, for models that can; closed forms stay on the CPU."""

    def needs_validation(self, shape: Shape) -> bool:
        """Return whether a fit on data of this size chooses anything that takes validation users to choose.

        A closed form that scores training users as if they had been left out does without.
        """
        return any(getattr(self, name) is None for name in open_names(type(self)))

    def seconds(self, shape: Shape) -> float | None:
        """Return about how long a fit takes on data of this size; None where it is not worth asking."""
        return None

    def fit_bytes(self, shape: Shape) -> int | None:
        """Return about how many bytes a fit holds at its peak, beside the data; None where nobody knows."""
        return None

    def forecast(self, shape: Shape) -> Forecast:
        """Return what a fit on data of this size takes, from counts alone."""
        return Forecast(self.seconds(shape), self.fit_bytes(shape))

    def economical(self, shape: Shape) -> Self:
        """Return the model as it is best fitted as one of several on data of this size, where time is shared."""
        return self

    def beside(self, fitted: "Recommender") -> Self:
        """Return the model without the search that `fitted`, of the same data, has made for both of them."""
        return self

    @property
    def keeps_histories(self) -> bool:
        """Whether the fitted model holds rows of the training data, and so what single users have."""
        return False

    def without_histories(self) -> Self:
        """Return the model as it is fitted where no user's row may stay in it."""
        if self.keeps_histories:
            raise InputError(
                f"A fitted {type(self).__name__} with these settings holds rows of training users: choose another "
                "model, or allow histories."
            )
        return self

    def __post_init__(self) -> None:
        for name in settings_of(type(self)):
            setattr(self, name, checked(type(self), name, getattr(self, name)))

    if not typing.TYPE_CHECKING:  # which would no longer know a misspelt name

        def __getattr__(self, name: str) -> Any:
            """Say what a field without a value means; reached for what is not there, and for nothing else."""
            if any(name == field.name and not field.init for field in dataclasses.fields(type(self))):
                raise NotFitted(f"This {type(self).__name__} is not fitted yet: call fit before you use it.")
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    @property
    def idle(self) -> tuple[str, ...]:
        """The settings that have no effect, given the values of the others: no search tries them."""
        return ()

    @property
    def n_parameters(self) -> int:
        """How many numbers the model has learned."""
        return sum(int(np.size(getattr(self, name))) for name in learned_names(type(self)))


def build(model: type[Recommender], name: str, values: Mapping[str, Any], *, text: bool = True) -> Recommender:
    """Return a model with these settings; `name` is what errors call it."""
    declared = settings_of(model)
    parsed = {}
    for key, value in values.items():
        if key not in declared:
            raise choices(f"setting of {name}", key, declared or ["(it has none)"])
        parsed[key] = checked(model, key, value, called=name, text=text)
    try:
        return model(**parsed)
    except TypeError as error:
        raise InputError(f"{name} cannot be made of its settings ({error}): give each of them a default.") from None


def fitting(
    model: Recommender,
    train: Csr,
    valid: Fold | None = None,
    extra: Extra | None = None,
    *,
    rng: RngLike = None,
    checkpoint: Checkpoint | None = None,
) -> Iterator[Epoch]:
    """Fit a model epoch by epoch with the signals that it reads; one that reads none never gets the keyword."""
    if extra is None:
        return model.epochs(train, valid, rng=rng, checkpoint=checkpoint)
    reader: Any = model
    if type(model).epochs is not Recommender.epochs:
        found: Iterator[Epoch] = reader.epochs(train, valid, rng=rng, checkpoint=checkpoint, extra=extra)
        return found
    reader.fit(train, valid, rng=rng, extra=extra)  # a closed form
    return iter(())
