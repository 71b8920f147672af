"""Saved arrays checked before they are used: their types, and that no index points outside."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr
from recfusion.models.settings import Kind, hints

PARTS = ("data", "indices", "indptr", "shape")  # of a saved sparse matrix


def saved_sparse(parts: Mapping[str, NDArray[Any]], name: str) -> Csr:
    """Return a saved sparse matrix; one whose indices lie outside of it would crash the interpreter when used."""
    data, indices, indptr, shape = (parts[part] for part in PARTS)
    whole = all(part.ndim == 1 and part.dtype.kind == "i" for part in (indices, indptr, shape)) and shape.shape == (2,)
    if not whole or data.ndim != 1 or len(indptr) != shape[0] + 1 or indptr[0] != 0 or indptr[-1] != len(indices):
        raise ValueError(f"{name} is no sparse matrix")
    inside = (np.diff(indptr) >= 0).all() and (not len(indices) or (indices.min() >= 0 and indices.max() < shape[1]))
    if len(data) != len(indices) or not inside:
        raise ValueError(f"{name} has entries outside of its {shape[0]} x {shape[1]} cells")
    return csr_array((data, indices, indptr), shape=tuple(int(n) for n in shape))


def check_array(model: Kind, name: str, value: Any, n_items: int) -> None:
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
