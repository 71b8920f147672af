"""Ids as codes: each distinct id is stored and parsed once, however many rows have it."""

from typing import TypeAlias, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recfusion.data.reading.ids import parse_texts, whole_numbers

Codes: TypeAlias = NDArray[np.int32]  # positions among the sorted distinct ids
_SLICE = 1 << 22  # rows that are converted at once


def encode_ids(ids: pl.Series) -> tuple[Codes, pl.Series]:
    """Return the code of each id, its position among the sorted distinct ids (for any order of rows), and those ids."""
    if not ids.dtype.is_integer():
        texts = ids.unique().cast(pl.String).sort()
        return ids.cast(pl.Enum(texts)).to_physical().to_numpy().astype(np.int32), texts
    low, high = cast(int, ids.min()), cast(int, ids.max())
    if high - low >= 4 * len(ids) + 1024:
        distinct, found = np.unique(ids.cast(pl.Int64).to_numpy(), return_inverse=True)
        return found.astype(np.int32), pl.Series(distinct)
    present = np.zeros(high - low + 1, bool)  # a table of the range is far cheaper than a sort
    codes = np.empty(len(ids), np.int32)
    parts = [slice(start, start + _SLICE) for start in range(0, len(ids), _SLICE)]
    for part in parts:
        present[ids[part].cast(pl.Int64).to_numpy() - low] = True
    positions = np.cumsum(present, dtype=np.int32) - np.int32(1)
    for part in parts:
        codes[part] = positions[ids[part].cast(pl.Int64).to_numpy() - low]
    return codes, pl.Series(np.flatnonzero(present) + low)


class IdEncoder:
    """Encodes a column of texts batch by batch; codes number the distinct cells in the order of their appearance."""

    def __init__(self) -> None:
        self.categories = pl.Categorical(pl.Categories.random())
        self.holder = pl.Series([], dtype=self.categories)  # polars forgets categories that no column uses
        self.cells = parse_texts(pl.Series([], dtype=pl.String))  # of each distinct cell

    @property
    def ids(self) -> pl.Series:
        """The id that each distinct cell means; null if it means none."""
        return self.cells["ids"]

    def encode(self, column: pl.Series) -> pl.Series:
        """Return the code of each cell, and parse the cells that are new."""
        texts = column.cast(pl.String).fill_null("")  # a missing value and an empty text mean the same
        encoded = texts.cast(self.categories)
        self.holder, codes = encoded[:0], encoded.to_physical()
        is_new = codes >= len(self.cells)
        if is_new.any():
            cells = pl.DataFrame({"code": codes.filter(is_new), "text": texts.filter(is_new)})
            new = parse_texts(cells.unique("code").sort("code")["text"])
            self.cells = pl.concat([self.cells, new], rechunk=True)
        return codes

    def parsed_columns(self, role: str, codes: pl.Series) -> list[pl.Series]:
        """Return the columns for `parse_rows`: the code if the cell is not empty, and the code if it is an id."""
        found = []
        for name, known in (("given", self.cells["given"]), ("value", self.ids.is_not_null())):
            column = codes if known.all() else codes.set(~known.gather(codes), None)
            found.append(column.alias(f"{role} {name}"))
        return found

    def count_trimmed(self, codes: pl.Series) -> int:
        """Return how many rows have an id with blanks around it."""
        trimmed = self.cells["trimmed"]
        return int(trimmed.gather(codes).sum()) if trimmed.any() else 0

    def decode(self, codes: pl.Series) -> pl.Series:
        """Return the id of each row: whole numbers if all ids are, else texts."""
        return self._used_ids(codes).gather(codes)

    def sort_codes(self, codes: pl.Series) -> tuple[pl.Series, pl.Series]:
        """Return the position of each row's id among the sorted distinct ids of these rows, and those ids."""
        ids = self._used_ids(codes)
        distinct = ids.drop_nulls().unique().sort()
        if distinct.dtype == pl.String:
            positions = ids.cast(pl.Enum(distinct)).to_physical()
        else:
            positions = distinct.search_sorted(ids).set(ids.is_null(), None)
        return positions.cast(pl.Int32).gather(codes), distinct

    def _used_ids(self, codes: pl.Series) -> pl.Series:
        """Return the ids of all cells, null for cells that none of the rows has."""
        used = np.zeros(len(self.ids), bool)
        for chunk in codes.drop_nulls().get_chunks():
            used[chunk.to_numpy()] = True
        return whole_numbers(self.ids.set(pl.Series(~used), None))
