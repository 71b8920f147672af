"""Feature recipes: how the columns of a table become features, also for rows that are added later."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from pydantic import BaseModel, Field
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr
from recfusion.core.errors import InputError, choices, validating

SEPARATOR = "|"  # between the values of one cell
MOST_WORDS = 4096  # features per text column; more words are hashed into so many
_BINS = 10  # quantiles of numbers
_FEW = 20  # up to so many distinct whole numbers are categories
_SHARED = 2  # rows that must have a value: one of a single row says nothing about others
_SHOWN = 30  # known values in a message about an unknown one
_WORD = re.compile(r"[^\W_]+")
Kind = Literal["categories", "words", "numbers"]


class Column(BaseModel, frozen=True, extra="forbid"):
    """How one column is encoded: its values and the weight of each, log(rows / rows that have it)."""

    name: str
    kind: Kind
    values: tuple[str, ...]  # categories, words, hash buckets of words, or bins of numbers
    weights: tuple[float, ...]
    edges: tuple[float, ...] = ()  # of the bins
    buckets: int = Field(0, ge=0)  # for hashed words; 0: not hashed
    names: tuple[str, ...] = ()  # the most frequent word of each hash bucket

    def keys(self, cell: object) -> list[str]:
        """Return the distinct values of a cell, known or not; none if it is missing."""
        if cell is None:
            return []
        if self.kind == "numbers":
            return _bin(cell, self.edges)
        if self.kind == "categories":
            text = str(cell).lower() if isinstance(cell, bool) else str(cell)
            return list(dict.fromkeys(part for one in text.split(SEPARATOR) if (part := one.strip())))
        words = dict.fromkeys(_WORD.findall(str(cell).lower()))
        return list(dict.fromkeys(_bucket(word, self.buckets) for word in words) if self.buckets else words)

    @property
    def features(self) -> list[str]:
        """The readable names of its features."""
        return [f"{self.name}: {name}" for name in self.names or self.values]


@dataclass(frozen=True)
class Encoded:
    """Features of some rows, each row of norm 1, and how many of their values are known."""

    matrix: Csr  # (rows, features)
    known: int
    given: int  # values in the cells, known or not
    absent: tuple[str, ...]  # columns of the recipe that the table lacks

    @property
    def without(self) -> int:
        """How many rows have no known value."""
        return int(np.count_nonzero(np.diff(self.matrix.indptr) == 0))


class Recipe(BaseModel, frozen=True, extra="forbid"):
    """Which columns become which features; stored with a model, so that new rows are encoded in the same way."""

    columns: tuple[Column, ...]
    unused: tuple[str, ...] = ()  # columns without shared values, such as ids

    @classmethod
    def of(cls, table: pl.DataFrame, asked: Sequence[str] | None = None) -> "Recipe":
        """Return the recipe of a table: of all usable columns but the first, the ids, or of those `asked` for."""
        present = table.columns[1:]
        for name in asked or ():
            if name not in present:
                raise choices("column for features", name, present or ["(there is none)"], "feature_columns")
        found = {name: _column(table[name]) for name in asked or present}
        unused = tuple(name for name, column in found.items() if column is None)
        if asked and unused:
            raise InputError(
                f"Expected values that several rows share in the column '{unused[0]}', got none: choose others.",
                "feature_columns",
            )
        return cls(columns=tuple(column for column in found.values() if column is not None), unused=unused)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all features, in the order of the matrix's columns."""
        return tuple(name for column in self.columns for name in column.features)

    def encode(self, table: pl.DataFrame) -> Encoded:
        """Return the features of the rows of a table; missing columns and unknown values add nothing."""
        entries: list[tuple[int, int, float]] = []  # row, feature, weight
        given = start = 0
        for column in self.columns:
            weights = enumerate(column.weights, start)
            known = dict(zip(column.values, weights, strict=True))
            for row, cell in enumerate(table[column.name] if column.name in table.columns else ()):
                keys = column.keys(cell)
                given += len(keys)
                entries += [(row, *known[key]) for key in keys if key in known]
            start += len(column.values)
        found = np.array(entries, np.float64).reshape(-1, 3)
        (owners, places), values = found[:, :2].T.astype(np.int64), found[:, 2].astype(np.float32)
        norms = np.sqrt(np.bincount(owners, values.astype(np.float64) ** 2, minlength=len(table)))
        values = (values / np.maximum(norms[owners], 1e-12)).astype(np.float32)
        matrix = csr_array((values, (owners, places)), shape=(len(table), start), dtype=np.float32)
        absent = tuple(column.name for column in self.columns if column.name not in table.columns)
        return Encoded(matrix, len(entries), given, absent)

    def unseen(self, table: pl.DataFrame) -> Iterator[str]:
        """Yield a sentence for each column of categories whose cells have values that the recipe does not know."""
        for column in self.columns:
            if column.kind != "categories" or column.name not in table.columns:
                continue
            keys = dict.fromkeys(key for cell in table[column.name] for key in column.keys(cell))
            strange = [key for key in keys if key not in column.values]
            if strange:
                more = f" and {len(strange) - 1:,} more" if len(strange) > 1 else ""
                known = ", ".join(column.values[:_SHOWN]) + (", ..." if len(column.values) > _SHOWN else "")
                yield f"The column '{column.name}' has '{strange[0]}'{more}, taken as missing: known are {known}."

    def sentences(self) -> Iterator[str]:
        """Yield a sentence per column for the model card."""
        how = {
            "categories": "its values",
            "words": f"words that at least {_SHARED} rows have",
            "numbers": "bins with about as many rows each",
        }
        for column in self.columns:
            hashed = f", hashed into {column.buckets:,}" if column.buckets else ""
            yield f"{column.name}: {len(column.values):,} features, {how[column.kind]}{hashed}"
        if self.unused:
            yield f"not used, since no two rows share a value: {', '.join(self.unused)}"


class Recipes(BaseModel, frozen=True, extra="forbid"):
    """The recipes of a model's item and user features, if it has them."""

    items: Recipe | None = None
    users: Recipe | None = None

    @classmethod
    def parse(cls, document: object, where: str) -> "Recipes":
        """Return the recipes that `document` (from JSON) holds."""
        with validating(f"recipes of features in '{where}'"):
            found = cls.model_validate(document)
        columns = [column for recipe in (found.items, found.users) if recipe is not None for column in recipe.columns]
        if any(len({*column.values}) != len(column.weights) for column in columns):
            raise InputError(f"Expected distinct values with a weight each in '{where}': train the model again.")
        return found


def _column(cells: pl.Series) -> Column | None:
    """Return how a column is encoded; None if it has no shared values."""
    kind = _kind(cells)
    if kind is None:
        return None
    column = Column(name=cells.name, kind=kind, values=(), weights=(), edges=_edges(cells) if kind == "numbers" else ())
    counts = Counter(key for cell in cells for key in column.keys(cell))
    names: dict[str, str] = {}
    if kind == "words" and sum(count >= _SHARED for count in counts.values()) > MOST_WORDS:
        names = {_bucket(word, MOST_WORDS): word for word, _ in reversed(counts.most_common())}
        column = column.model_copy(update={"buckets": MOST_WORDS})
        counts = Counter(key for cell in cells for key in column.keys(cell))
    # A value of a single row or of all rows is useless.
    values = sorted(key for key, count in counts.items() if _SHARED <= count < len(cells))
    made = {
        "values": tuple(values),
        "weights": tuple(round(float(np.log(len(cells) / counts[value])), 6) for value in values),
        "names": tuple(names[value] for value in values if names),
    }
    return column.model_copy(update=made) if values else None


def _kind(cells: pl.Series) -> Kind | None:
    if cells.dtype.is_numeric():
        whole = cells.dtype.is_integer() and cells.drop_nulls().n_unique() <= _FEW
        return "categories" if whole else "numbers"
    if cells.dtype == pl.Boolean:
        return "categories"
    if cells.dtype not in (pl.String, pl.Categorical, pl.Enum):
        return None  # dates and lists are not supported
    texts = cells.cast(pl.String).drop_nulls()
    several = texts.str.contains(SEPARATOR, literal=True).any()
    few = texts.n_unique() <= max(_FEW, len(texts) // 10)
    return "categories" if several or few else "words"


def _edges(cells: pl.Series) -> tuple[float, ...]:
    numbers = cells.drop_nulls().cast(pl.Float64).to_numpy()
    numbers = numbers[np.isfinite(numbers)]
    if not len(numbers):
        return ()
    return tuple(np.unique(np.quantile(numbers, np.arange(1, _BINS) / _BINS)).tolist())


def _bin(cell: object, edges: Sequence[float]) -> list[str]:
    """Return the name of the bin of a number; none if the cell is no number."""
    try:
        number = float(str(cell))
    except ValueError:
        return []
    if not np.isfinite(number) or not edges:
        return []
    place = int(np.searchsorted(edges, number, side="right"))
    low, high = (f"{edge:.6g}" for edge in (edges[max(place - 1, 0)], edges[min(place, len(edges) - 1)]))
    return [f"below {high}" if place == 0 else f"from {low}" if place == len(edges) else f"{low} to {high}"]


def _bucket(word: str, buckets: int) -> str:
    """Return the hash bucket of a word, the same on every machine."""
    digest = hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=8).digest()
    return f"#{int.from_bytes(digest, 'big') % buckets}"
