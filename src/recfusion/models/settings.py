"""Settings and learned fields of models: how they are declared, checked and read."""

import dataclasses
import types
import typing
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr
from recfusion.core.errors import InputError, first_problem
from recfusion.training.search_space import Choice, Interval

if typing.TYPE_CHECKING:
    from _typeshed import DataclassInstance

Kind: typing.TypeAlias = "type[DataclassInstance]"  # a model's class
PARTS = ("data", "indices", "indptr", "shape")  # of a saved sparse matrix


@dataclass(frozen=True)
class Range:
    """The allowed values of a setting, and the range for a search."""

    doc: str
    at_least: float | None = None
    at_most: float | None = None  # for counts: an absurd one would never end, or take all memory
    search: tuple[float, float] | Literal["all"] | None = None  # "all": each value of a closed choice
    log: bool = False
    start: Any = None  # of a self-tuned setting: its value without a search


def setting(
    default: Any,
    doc: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    search: tuple[float, float] | Literal["all"] | None = None,
    log: bool = False,
) -> Any:
    """Declare a hyper-parameter: its default, meaning, bounds and search range.

    A closed choice (a Literal or a bool) has no range: `search="all"` searches all its values.
    """
    return dataclasses.field(default=default, metadata={"setting": Range(doc, at_least, at_most, search, log)})


def self_tuned(
    start: float,
    doc: str,
    *,
    search: tuple[float, float],
    at_least: float | None = None,
    log: bool = False,
    rule: str | None = None,
) -> Any:
    """Declare a setting that `fit` chooses by a search unless it is given; without a search it is `start`.

    The setting stays None: the chosen or given value is in the learned field with its name and an underscore. `rule`
    describes a start that depends on the data.
    """
    doc = f"{doc} (chosen by the fit; without a search {rule or f'{start:g}'})"
    return dataclasses.field(default=None, metadata={"setting": Range(doc, at_least, None, search, log, start)})


def learned(*, item_numbers: bool = False) -> Any:
    """Declare a learned field, with a name that ends in an underscore; it is saved with the model.

    With `item_numbers` it holds numbers of items, which are checked when a model is loaded.
    """
    metadata = {"learned": True, "item_numbers": item_numbers}
    return dataclasses.field(init=False, repr=False, compare=False, metadata=metadata)


@cache
def settings_of(model: Kind) -> dict[str, Range]:
    """Return the settings of a model class: declared settings and plain fields of its constructor.

    A field with `compare=False`, such as the device, is not a setting.
    """
    fields = [field for field in dataclasses.fields(model) if field.init and field.compare]
    return {field.name: field.metadata.get("setting", Range("")) for field in fields}


def search_space(model: Kind, names: Collection[str] | None = None) -> dict[str, Interval | Choice]:
    """Return the search ranges of a model class, for all settings or for these names."""
    kinds = hints(model)
    found: dict[str, Interval | Choice] = {}
    for name, declared in settings_of(model).items():
        if names is not None and name not in names:
            continue
        if declared.search == "all":
            found[name] = Choice(closed_values(kinds[name]))
        elif declared.search is not None:
            found[name] = Interval(*declared.search, log=declared.log, integer=kinds[name] is int)
    return found


def closed_values(kind: Any) -> tuple[Any, ...]:
    """Return the values of a closed choice, a Literal or bool; none for any other type."""
    return (False, True) if kind is bool else typing.get_args(kind) if typing.get_origin(kind) is Literal else ()


def setting_values(model: "DataclassInstance") -> dict[str, Any]:
    """Return the settings of a model as they were given, as they are written to JSON."""
    return {name: getattr(model, name) for name in settings_of(type(model))}


@cache
def open_names(model: Kind) -> tuple[str, ...]:
    """Return the settings that `fit` chooses if they are None: those with a learned field `name_`."""
    fields = {field.name: field for field in dataclasses.fields(model)}
    return tuple(
        name
        for name in settings_of(model)
        if fields[name].default is None and "learned" in getattr(fields.get(f"{name}_"), "metadata", {})
    )


def learned_names(model: Kind) -> list[str]:
    """Return the names of the arrays that a model class learns."""
    values = {f"{name}_" for name in open_names(model)}
    return [f.name for f in dataclasses.fields(model) if "learned" in f.metadata and f.name not in values]


@cache
def hints(model: Kind) -> dict[str, Any]:
    try:
        return typing.get_type_hints(model)
    except Exception as error:  # an annotation of another person's class may raise anything
        raise InputError(
            f"The annotations of {model.__name__} cannot be read ({type(error).__name__}: {error}): use types that its "
            "module knows."
        ) from None


@cache
def _adapter(model: Kind, name: str) -> TypeAdapter[Any]:
    config = ConfigDict(allow_inf_nan=False, arbitrary_types_allowed=True)
    try:
        return TypeAdapter(hints(model)[name], config=config)
    except PydanticUserError:  # such as a record with its own rules
        raise InputError(
            f"The setting {name} of {model.__name__} has a type that cannot be checked: use numbers, strings, bools, "
            "or lists or dictionaries of them.",
            name,
        ) from None


def checked(model: Kind, name: str, value: Any, *, called: str = "", text: bool = False) -> Any:
    """Return the value of a setting as its declared type; an integer is accepted for a float.

    With `text`, strings from a command line are parsed. Errors call the model `called`.
    """
    plain = value.item() if isinstance(value, np.generic) else value
    declared, of = settings_of(model)[name], called or model.__name__
    if plain is None and declared.start is not None:
        return None
    try:
        parsed = _adapter(model, name).validate_python(plain, strict=not (text and isinstance(plain, str)))
    except ValidationError as error:
        problem = first_problem(error.errors()[0])[1]
        raise InputError(f"Setting {name} of {of}: {problem}; got {value!r}.", name) from None
    if declared.at_least is not None and parsed is not None and parsed < declared.at_least:
        raise InputError(f"Expected {name} of {of} to be at least {declared.at_least:g}, got {parsed}.", name)
    if declared.at_most is not None and parsed is not None and parsed > declared.at_most:
        raise InputError(f"Expected {name} of {of} to be at most {declared.at_most:,}, got {parsed}.", name)
    return parsed


def without_retired(settings: Any) -> Any:
    """Return saved settings without retired ones: time limits, draws of mixtures, old objectives."""
    if not isinstance(settings, dict):
        return settings
    retired = {"tune_seconds"} | ({"steps", "temperature", "draw"} if "members" in settings else set())
    retired |= {"objective"} if "earliest" in settings else set()
    return {key: without_retired(value) for key, value in settings.items() if key not in retired}


def saved_sparse(parts: Mapping[str, NDArray[Any]], name: str) -> Csr:
    """Return a saved sparse matrix; raise if its indices are out of range, which would crash the interpreter."""
    data, indices, indptr, shape = (parts[part] for part in PARTS)
    whole = all(part.ndim == 1 and part.dtype.kind == "i" for part in (indices, indptr, shape)) and shape.shape == (2,)
    if not whole or data.ndim != 1 or len(indptr) != shape[0] + 1 or indptr[0] != 0 or indptr[-1] != len(indices):
        raise ValueError(f"{name} is not a sparse matrix")
    inside = (np.diff(indptr) >= 0).all() and (not len(indices) or (indices.min() >= 0 and indices.max() < shape[1]))
    if len(data) != len(indices) or not inside:
        raise ValueError(f"{name} has entries outside of its {shape[0]} x {shape[1]} cells")
    return csr_array((data, indices, indptr), shape=tuple(int(n) for n in shape))


def check_array(model: Kind, name: str, value: Any, n_items: int) -> None:
    """Raise unless a saved array has the declared type and, if it holds item numbers, valid ones."""
    kind = hints(model)[name]
    alternatives = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    dtypes = {dtype for alternative in alternatives for dtype in _dtypes(alternative)}
    if dtypes and np.dtype(value.dtype) not in dtypes:
        raise ValueError(f"{name} has numbers of type {value.dtype}")
    field = next(field for field in dataclasses.fields(model) if field.name == name)
    if field.metadata.get("item_numbers") and value.size and not 0 <= value.min() <= value.max() < n_items:
        raise ValueError(f"{name} names items beyond the {n_items}")


def _dtypes(kind: Any) -> list[np.dtype[Any]]:
    """Return the dtype of NDArray[number], float32 for a sparse matrix, and none for other types."""
    if kind is csr_array:
        return [np.dtype(np.float32)]
    inner = typing.get_args(kind)
    number = typing.get_args(inner[1]) if typing.get_origin(kind) is np.ndarray and len(inner) == 2 else ()
    return [np.dtype(number[0])] if number and isinstance(number[0], type) and number[0] is not np.generic else []
