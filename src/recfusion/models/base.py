"""The contract of every recommender, and how a model's settings are declared, checked and read."""

import dataclasses
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
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


@dataclass(frozen=True)
class Shape:
    """How large the training data is."""

    users: int
    items: int
    interactions: int

    @classmethod
    def of(cls, train: Csr) -> "Shape":
        """Return the size of a training matrix."""
        return cls(train.shape[0], train.shape[1], train.nnz)


class NotFitted(InputError, AttributeError):  # noqa: N818
    """A model was asked for something that it has only after `fit`."""


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

    It stays None: what `fit` chose, or was given, is in the learned field of its name with an underscore.
    """
    doc = f"{doc} (chosen on the validation users; without them {start:g})"
    return dataclasses.field(default=None, metadata={"setting": Range(doc, at_least, search, log, start)})


def learned(*, item_numbers: bool = False) -> Any:
    """Declare what `fit` learns; it is saved with the model. Its name ends in an underscore.

    With `item_numbers` it holds columns of the matrix, which a saved model must not have outside of its items.
    """
    return dataclasses.field(
        init=False, repr=False, compare=False, metadata={"learned": True, "item_numbers": item_numbers}
    )


@dataclass
class Recommender(ABC):
    """A model: a dataclass whose fields are its hyper-parameters and whose `learned` fields end in `_`.

    `fit` never changes a hyper-parameter, so that fitting again gives what a fresh model gives.
    """

    trials_: int = dataclasses.field(init=False, default=0, repr=False, compare=False)  # of the last fit's own search

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
                value = _sparse({part: state[f"{name}.{part}"] for part in _PARTS}, name)
            else:
                value = state[name]
            _check_array(type(self), name, value, n_items)
            setattr(self, name, value)
        for name in open_names(type(self)):
            given = getattr(self, name)
            value = checked(type(self), name, chosen.get(name)) if given is None else given
            setattr(self, f"{name}_", value)

    def use_device(self, device: str) -> None:  # noqa: B027
        """Compute on `device`, for models that can; closed forms stay on the CPU."""

    def seconds(self, shape: Shape) -> float | None:
        """Return about how long a fit takes on data of this size; None where it is not worth asking."""
        return None

    def economical(self, shape: Shape) -> Self:
        """Return the model as it is best fitted as one of several on data of this size, where time is shared."""
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


_PARTS = ("data", "indices", "indptr", "shape")  # of a saved sparse matrix


def _sparse(parts: Mapping[str, NDArray[Any]], name: str) -> Csr:
    """Return a saved sparse matrix; one whose indices lie outside of it would crash the interpreter when used."""
    data, indices, indptr, shape = (parts[part] for part in _PARTS)
    whole = all(part.ndim == 1 and part.dtype.kind == "i" for part in (indices, indptr, shape)) and shape.shape == (2,)
    if not whole or data.ndim != 1 or len(indptr) != shape[0] + 1 or indptr[0] != 0 or indptr[-1] != len(indices):
        raise ValueError(f"{name} is no sparse matrix")
    inside = (np.diff(indptr) >= 0).all() and (not len(indices) or (indices.min() >= 0 and indices.max() < shape[1]))
    if len(data) != len(indices) or not inside:
        raise ValueError(f"{name} has entries outside of its {shape[0]} x {shape[1]} cells")
    return csr_array((data, indices, indptr), shape=tuple(int(n) for n in shape))


def _check_array(model: type[Recommender], name: str, value: Any, n_items: int) -> None:
    """Raise unless a saved array has the type that its field declares, and its item numbers are such."""
    dtypes = {dtype for kind in _alternatives(hints(model)[name]) for dtype in _dtypes(kind)}
    if dtypes and np.dtype(value.dtype) not in dtypes:
        raise ValueError(f"{name} has numbers of type {value.dtype}")
    field = next(field for field in dataclasses.fields(model) if field.name == name)
    if field.metadata.get("item_numbers") and value.size and not 0 <= value.min() <= value.max() < n_items:
        raise ValueError(f"{name} names items beyond the {n_items}")


def _alternatives(kind: Any) -> tuple[Any, ...]:
    return typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)


def _dtypes(kind: Any) -> list[np.dtype[Any]]:
    """Return the dtype of NDArray[number], float32 of a sparse matrix, and nothing of another type."""
    if kind is csr_array:
        return [np.dtype(np.float32)]
    inner = typing.get_args(kind)
    number = typing.get_args(inner[1]) if typing.get_origin(kind) is np.ndarray and len(inner) == 2 else ()
    return [np.dtype(number[0])] if number and isinstance(number[0], type) and number[0] is not np.generic else []


@cache
def settings_of(model: type[Recommender]) -> dict[str, Range]:
    """Return the settings of a model class: its declared ones, and plain fields of its constructor.

    A field with `compare=False` is no part of the model, such as the device to compute on.
    """
    found = {}
    for field in dataclasses.fields(model):
        if field.init and field.compare:
            found[field.name] = field.metadata.get("setting", Range(""))
    return found


def search_space(model: type[Recommender], names: Collection[str] | None = None) -> dict[str, Interval | Choice]:
    """Return what a model class declares to be searched of its settings, all of them or those named."""
    kinds = hints(model)
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
    """Return the values of a model's settings as they were given, as they go into JSON."""
    return {name: getattr(model, name) for name in settings_of(type(model))}


@cache
def open_names(model: type[Recommender]) -> tuple[str, ...]:
    """Return the settings that `fit` chooses where they are None: those with a learned field of their name and `_`."""
    fields = {field.name: field for field in dataclasses.fields(model)}
    return tuple(
        name
        for name in settings_of(model)
        if fields[name].default is None and "learned" in getattr(fields.get(f"{name}_"), "metadata", {})
    )


def learned_names(model: type[Recommender]) -> list[str]:
    """Return the names of the arrays that a model class learns."""
    values = {f"{name}_" for name in open_names(model)}
    return [f.name for f in dataclasses.fields(model) if "learned" in f.metadata and f.name not in values]


@cache
def hints(model: type[Recommender]) -> dict[str, Any]:
    """Return the types of a model class's fields."""
    try:
        return typing.get_type_hints(model)
    except Exception as error:  # whatever an annotation of somebody else's class raises
        raise InputError(
            f"The annotations of {model.__name__} cannot be read ({type(error).__name__}: {error}): write its settings "
            "with types that its module knows."
        ) from None


@cache
def _adapter(model: type[Recommender], name: str) -> TypeAdapter[Any]:
    config = ConfigDict(allow_inf_nan=False, arbitrary_types_allowed=True)
    try:
        return TypeAdapter(hints(model)[name], config=config)
    except PydanticUserError:  # a record, say, which has rules of its own
        raise InputError(
            f"The setting {name} of {model.__name__} has a type that cannot be checked: use numbers, texts, truth "
            "values, lists or tables of them."
        ) from None


def checked(model: type[Recommender], name: str, value: Any, *, called: str = "", text: bool = False) -> Any:
    """Return a setting's value as its declared type; a whole number may stand for any number.

    With `text`, text is parsed, as it comes from a command line. `called` is what the error calls the model.
    """
    plain = value.item() if isinstance(value, np.generic) else value
    declared, of = settings_of(model)[name], called or model.__name__
    if plain is None and declared.start is not None:
        return None
    try:
        parsed = _adapter(model, name).validate_python(plain, strict=not (text and isinstance(plain, str)))
    except ValidationError as error:
        expected = error.errors()[0]["msg"].lower()
        raise InputError(f"Setting {name} of {of}: {expected}; got {value!r}.") from None
    if declared.at_least is not None and parsed is not None and parsed < declared.at_least:
        raise InputError(f"Expected {name} of {of} to be at least {declared.at_least:g}, got {parsed}.")
    return parsed


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


def without_seconds(settings: Any) -> Any:
    """Return settings of version 1 without the time limit of searches, which is no more."""
    if not isinstance(settings, dict):
        return settings
    return {key: without_seconds(value) for key, value in settings.items() if key != "tune_seconds"}
