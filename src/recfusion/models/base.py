"""The contract of every recommender, and how a model's settings are declared, checked and read."""

import dataclasses
import typing
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, TypeAdapter, ValidationError
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray
from recfusion.core.errors import InputError, choices
from recfusion.core.rng import RngLike
from recfusion.data.split import Fold
from recfusion.search.space import Choice, Interval
from recfusion.training.epoch import Checkpoint, Epoch


@dataclass(frozen=True)
class Range:
    """Which values a setting may take, and between which it is worth searching."""

    doc: str
    at_least: float | None = None
    search: tuple[float, float] | None = None
    log: bool = False
    start: Any = None  # of a self-tuned setting: what it is without a search
    every: bool = False  # of a closed choice: all of its values are worth searching


def setting(
    default: Any,
    doc: str,
    *,
    at_least: float | None = None,
    search: tuple[float, float] | Literal["all"] | None = None,
    log: bool = False,
) -> Any:
    """Declare a hyper-parameter: its default, what it means, its bound and its search range, in one place.

    A closed choice (a Literal, or true or false) has no range: `search="all"` makes all its values worth searching.
    """
    span = None if search == "all" else search
    return dataclasses.field(
        default=default, metadata={"setting": Range(doc, at_least, span, log, every=search == "all")}
    )


def self_tuned(
    start: float, doc: str, *, search: tuple[float, float], at_least: float | None = None, log: bool = False
) -> Any:
    """Declare a setting that `fit` chooses on the validation users unless it is given; without them it is `start`.

    It is None until then: `fit` fills it in, so that results, cards and saved models state what was used.
    """
    doc = f"{doc} (chosen on the validation users; without them {start:g})"
    return dataclasses.field(default=None, metadata={"setting": Range(doc, at_least, search, log, start)})


def learned() -> Any:
    """Declare an array that `fit` learns; it is saved with the model."""
    return dataclasses.field(init=False, repr=False, compare=False, metadata={"learned": True})


@dataclass
class Recommender(ABC):
    """A model: a dataclass whose `setting` fields are its hyper-parameters and whose `learned` fields end in `_`."""

    @abstractmethod
    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        """Learn from the 0/1 matrix `train` (users, items); `valid` is for early stopping and tuning alone."""

    @abstractmethod
    def score(self, history: Csr) -> FloatArray:
        """Return scores (users, items) for one batch of histories (users, items), of users seen or unseen.

        A user's scores depend on that user's history alone. The caller masks seen items and may overwrite the array.
        """

    def epochs(
        self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None, checkpoint: Checkpoint | None = None
    ) -> Iterator[Epoch]:
        """Fit epoch by epoch, for callers that show progress or keep a checkpoint; a closed form has no epochs."""
        self.fit(train, valid, rng=rng)
        return iter(())

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
                state[name] = value
        return {name: np.ascontiguousarray(array) for name, array in state.items()}

    def load_state(self, state: Mapping[str, NDArray[Any]], n_items: int) -> None:
        """Take over the learned arrays of a saved model for `n_items` items."""
        for name in learned_names(type(self)):
            if f"{name}.indptr" in state:
                data, indices, indptr = (state[f"{name}.{part}"] for part in ("data", "indices", "indptr"))
                setattr(self, name, csr_array((data, indices, indptr), shape=tuple(state[f"{name}.shape"])))
            else:
                setattr(self, name, state[name])

    def __post_init__(self) -> None:
        for name, declared in settings_of(type(self)).items():
            value = getattr(self, name)
            if declared.at_least is not None and value is not None and value < declared.at_least:
                raise InputError(
                    f"Expected {name} of {type(self).__name__} to be at least {declared.at_least:g}, got {value}."
                )

    @property
    def idle(self) -> tuple[str, ...]:
        """The settings that do nothing beside the values of others: no search tries them."""
        return ()

    @property
    def n_parameters(self) -> int:
        """How many numbers the model has learned."""
        return sum(int(getattr(self, name).size) for name in learned_names(type(self)))


def settings_of(model: type[Recommender]) -> dict[str, Range]:
    """Return the declared settings of a model class."""
    return {f.name: f.metadata["setting"] for f in dataclasses.fields(model) if "setting" in f.metadata}


def search_space(model: type[Recommender], names: Collection[str] | None = None) -> dict[str, Interval | Choice]:
    """Return what a model class declares to be searched of its settings, all of them or those named."""
    kinds = typing.get_type_hints(model)
    found: dict[str, Interval | Choice] = {}
    for name, declared in settings_of(model).items():
        if names is not None and name not in names:
            continue
        if declared.every:
            found[name] = Choice(closed_values(kinds[name]))
        elif declared.search is not None:
            found[name] = Interval(*declared.search, log=declared.log, integer=kinds[name] is int)
    return found


def closed_values(kind: Any) -> tuple[Any, ...]:
    """Return the values of a type that is a closed choice, a Literal or bool; of any other none."""
    return (False, True) if kind is bool else typing.get_args(kind) if typing.get_origin(kind) is Literal else ()


def setting_values(model: Recommender) -> dict[str, Any]:
    """Return the values of a model's settings, as they go into JSON."""
    return {name: getattr(model, name) for name in settings_of(type(model))}


def learned_names(model: type[Recommender]) -> list[str]:
    """Return the names of the arrays that a model class learns."""
    return [f.name for f in dataclasses.fields(model) if "learned" in f.metadata]


def build(model: type[Recommender], name: str, values: Mapping[str, Any], *, text: bool = True) -> Recommender:
    """Return a model with settings of the types that its fields declare.

    A whole number may stand for any number. With `text`, text is parsed, as it comes from a command line.
    """
    declared = settings_of(model)
    kinds = typing.get_type_hints(model)
    parsed = {}
    for key, value in values.items():
        if key not in declared:
            raise choices(f"setting of {name}", key, declared or ["(it has none)"])
        try:
            adapter: TypeAdapter[Any] = TypeAdapter(kinds[key], config=ConfigDict(allow_inf_nan=False))
            plain = value.item() if isinstance(value, np.generic) else value
            parsed[key] = adapter.validate_python(plain, strict=not (text and isinstance(plain, str)))
        except ValidationError as error:
            expected = error.errors()[0]["msg"].lower()
            raise InputError(f"Setting {key} of {name}: {expected}; got {value!r}.") from None
    return model(**parsed)
