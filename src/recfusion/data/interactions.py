"""The data types: `RawData` as read, and `Interactions` after preparation, a 0/1 matrix with ids and signals."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recfusion.core.arrays import Csr, FloatArray, IntArray
from recfusion.core.errors import InputError
from recfusion.data.feature_recipe import Recipe
from recfusion.data.options import Preparation, Source
from recfusion.data.reading.ids import parse_ids

_DIGEST_STEP = 1 << 20  # numbers at a time
TRAIN, VALID, TEST = 0, 1, 2  # the parts of a given split
Signal = Literal["grades", "times", "item_features", "user_features"]  # ratings, timestamps, features


@dataclass(frozen=True)
class ReadReport:
    """Report of a reading: the columns used, and how many rows were left out."""

    rows: int
    columns: dict[str, str] = field(default_factory=dict)  # role (user, item, rating, time) -> column in the file
    missing: int = 0  # rows without a user, item, rating or time, if the file has such a column
    unparsable: int = 0  # rows with a bad rating or time, too many fields, or unpaired quotes
    notes: tuple[str, ...] = ()  # further remarks for the protocol card
    blank: int = 0  # empty lines, which are not counted as rows


@dataclass(frozen=True)
class RawData:
    """Interactions as read: one row each, in the order of the file.

    `rows` has the columns `user` and `item` (integers, or strings exactly as in the file) and, if the file has them,
    `rating` (Float32), `time` (Int64, seconds since 1970) and `part` (Int8, of a given split). `items` has one row per
    item: the column `item` and any others (title, genres, ...). If `ids` holds the sorted distinct ids of a role, the
    rows hold Int32 positions in them instead, and every id occurs.
    """

    name: str
    rows: pl.DataFrame
    items: pl.DataFrame | None
    report: ReadReport
    licence: str = ""
    citation: str = ""
    source: Source = field(default_factory=Source)
    users: pl.DataFrame | None = None  # one row per user: the column `user` and any others
    ids: Mapping[str, pl.Series] = field(default_factory=dict)  # by role, if the rows are coded
    all_items: pl.DataFrame | None = None  # the item file with the items that are not in the matrix, if one was given
    items_time: float | None = None  # when the file of `items` was written, seconds since 1970


@dataclass(frozen=True)
class Features:
    """Features of users or items, as a sparse matrix (users or items, features)."""

    matrix: Csr
    names: tuple[str, ...]  # of the columns
    recipe: Recipe | None = None  # how they were made from the columns of a table

    def __post_init__(self) -> None:
        if len(self.names) != self.matrix.shape[1]:
            raise InputError(f"Expected a name for each of {self.matrix.shape[1]:,} features, got {len(self.names):,}.")


@dataclass(frozen=True)
class PreparationStep:
    """Counts after one step of the preparation."""

    step: str
    users: int
    items: int
    interactions: int


@dataclass(frozen=True)
class Interactions:
    """Prepared data: a 0/1 matrix (users, items), the ids of its rows and columns, and how it was made."""

    name: str
    matrix: Csr  # (users, items), rows sorted by item
    users: pl.Series  # id of each row
    items: pl.Series  # id of each column
    item_table: pl.DataFrame  # one row per column of the matrix, in order: `item` and any others (title, genres, ...)
    times: NDArray[np.int64] | None = None  # seconds since 1970 of each stored entry, in the matrix's order
    grades: FloatArray | None = None  # rating or count of each stored entry, in the matrix's order
    parts: NDArray[np.int8] | None = None  # TRAIN, VALID or TEST of each stored entry, if the split is given
    disliked: Csr | None = None  # (users, items): ratings below the like threshold
    disliked_times: NDArray[np.int64] | None = None  # of its stored entries
    item_features: Features | None = None  # a row per column of the matrix
    user_features: Features | None = None  # a row per row of the matrix
    user_table: pl.DataFrame | None = None  # one row per row of the matrix: `user` and any others
    source: Source = field(default_factory=Source)
    preparation: Preparation = field(default_factory=Preparation)
    steps: tuple[PreparationStep, ...] = ()
    report: ReadReport = field(default_factory=lambda: ReadReport(rows=0))
    licence: str = ""
    citation: str = ""
    all_items: pl.DataFrame | None = None  # the item file with the items that are not in the matrix, if one was given
    items_time: float | None = None  # when the file of the item table was written, seconds since 1970
    earlier: tuple[IntArray, IntArray] | None = None  # entries bought before their time, and when; None without repeats

    def __post_init__(self) -> None:
        entries, (users, items) = self.matrix.nnz, self.matrix.shape
        sizes = {"grades": entries, "times": entries, "item_features": items, "user_features": users}
        for name in self.signals:
            value = getattr(self, name)
            size = value.matrix.shape[0] if isinstance(value, Features) else len(value)
            if size != sizes[name]:
                raise InputError(f"Expected {sizes[name]:,} {name} in '{self.name}', got {size:,}.")
        if self.disliked is not None and self.disliked.shape != self.matrix.shape:
            raise InputError(f"Expected dislikes over the users and items of '{self.name}', got {self.disliked.shape}.")

    @property
    def signals(self) -> tuple[Signal, ...]:
        """The signals that the data has."""
        return tuple(name for name in get_args(Signal) if getattr(self, name) is not None)

    @property
    def n_users(self) -> int:
        return int(self.matrix.shape[0])

    @property
    def n_items(self) -> int:
        return int(self.matrix.shape[1])

    @property
    def n_interactions(self) -> int:
        return int(self.matrix.nnz)

    @cached_property
    def fingerprint(self) -> str:
        """A digest of ids, matrix and times: equal for equal data, from whatever file or engine.

        It does not cover the signals that were added later, so that the fingerprints of published results stay valid.
        """
        digest = hashlib.blake2b(digest_size=16)
        for ids in (self.users, self.items):
            digest.update(str(ids.dtype.is_integer()).encode())
            digest.update("\n".join(ids.cast(pl.String)).encode())
        for numbers in (self.matrix.indptr, self.matrix.indices, self.times):
            if numbers is None:
                digest.update(b"|")
                continue
            for start in range(0, len(numbers), _DIGEST_STEP):  # avoids a second copy
                digest.update(np.ascontiguousarray(numbers[start : start + _DIGEST_STEP], np.int64).tobytes())
        return digest.hexdigest()

    def digest(self, signals: Iterable[Signal]) -> str:
        """Return a digest of these signals, empty for none."""
        digest, found = hashlib.blake2b(digest_size=16), sorted(signals)
        for name in found:
            value = getattr(self, name)
            if value is None:
                raise InputError(f"Expected {name} in '{self.name}', got none: use other data.", name)
            digest.update(name.encode())
            if isinstance(value, Features):
                digest.update("\n".join(value.names).encode())
                matrix = value.matrix.sorted_indices()
                value = np.concatenate([matrix.indptr, matrix.indices, matrix.data], dtype=np.float64)
            digest.update(np.ascontiguousarray(value).tobytes())
            if name == "grades" and self.disliked is not None:
                for part in (self.disliked.indptr, self.disliked.indices, self.disliked.data):
                    digest.update(np.ascontiguousarray(part, np.float64).tobytes())
        return digest.hexdigest() if found else ""

    def __repr__(self) -> str:
        size = f"{self.n_users:,} users x {self.n_items:,} items, {self.n_interactions:,} ones"
        return f"Interactions({self.name!r}: {size})"


def to_columns(ids: pl.Series, wanted: pl.Series) -> IntArray:
    """Return the position in `ids` of each wanted id, or -1; ids of another type are parsed (see `parse_ids`)."""
    if wanted.dtype == pl.String and ids.dtype == pl.String:
        wanted = wanted.zip_with(wanted.is_in(ids.implode()), parse_ids(wanted, ids.dtype))
    elif wanted.dtype != ids.dtype:
        wanted = parse_ids(wanted, ids.dtype)
    place = pl.DataFrame({"id": ids, "place": np.arange(len(ids), dtype=np.int64)})
    found = pl.DataFrame({"id": wanted}).join(place, on="id", how="left", maintain_order="left")
    return found["place"].fill_null(-1).to_numpy()
