"""Categories of items: the values of a column, which may hold several separated by `|`, or lists of texts."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from scipy.sparse import csc_array, csr_array

from recfusion.core.arrays import Csr, FloatArray
from recfusion.core.errors import InputError, choices
from recfusion.data.feature_recipe import SEPARATOR

_SHOWN = 30  # values that an error message lists


@dataclass(frozen=True)
class Categories:
    """The categories of each item."""

    column: str
    names: tuple[str, ...]
    matrix: Csr  # (items, categories), 0/1

    @classmethod
    def of(cls, items: pl.DataFrame, column: str) -> "Categories":
        """Return the categories of a column in alphabetical order; an item with a missing value has none."""
        if column not in items.columns:
            raise choices("column of the item table", column, items.columns)
        values = items[column]
        if values.dtype != pl.List(pl.String):
            if values.dtype.is_nested() or values.dtype.base_type() in (pl.Binary, pl.Object, pl.Duration):
                raise InputError(
                    f"The column {column} holds {values.dtype}, which is no category: choose another column."
                )
            values = values.cast(pl.String).str.split(SEPARATOR)
        rows = pl.DataFrame({"row": np.arange(len(items)), "name": values}).explode("name")
        rows = rows.with_columns(pl.col("name").str.strip_chars()).filter(pl.col("name").str.len_chars() > 0).unique()
        names = rows["name"].unique().sort()
        place = dict(zip(names, range(len(names)), strict=True))
        columns = np.array([place[name] for name in rows["name"]], np.int64)
        ones = np.ones(len(rows), np.float32)
        matrix = csr_array((ones, (rows["row"].to_numpy(), columns)), shape=(len(items), len(names)))
        return cls(column, tuple(names), matrix)

    @cached_property
    def chances(self) -> Csr:
        """p(category | item), equal for all categories of an item; (items, categories)."""
        total = np.maximum(np.diff(self.matrix.indptr), 1)
        data = np.repeat(1 / total, np.diff(self.matrix.indptr)).astype(np.float32)
        return csr_array((data, self.matrix.indices, self.matrix.indptr), shape=self.matrix.shape)

    def chance(self, number: int) -> FloatArray:
        """Return p(category | item) of one category, (items,)."""
        return self._by_category[:, [number]].toarray()[:, 0]

    @cached_property
    def _by_category(self) -> csc_array:
        return self.chances.tocsc()

    def number(self, name: str) -> int:
        if name not in self.names:
            some = ", ".join(self.names[:_SHOWN]) + (", ..." if len(self.names) > _SHOWN else "")
            raise InputError(f"Unknown value '{name}' of the column {self.column}: choose one of {some}.")
        return self.names.index(name)
