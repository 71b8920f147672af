"""Columns of ids as numbers: each distinct text is kept and parsed once, however many rows have it."""

import numpy as np
import polars as pl

from recfusion.data.reading.values import parse_texts, whole_numbers


class Cells:
    """The distinct cells of a column; a row holds the number of its cell, in the order in which cells were met."""

    def __init__(self) -> None:
        self.kind = pl.Categorical(pl.Categories.random())
        self.holder = pl.Series([], dtype=self.kind)  # polars forgets the texts when no column has them
        self.values = pl.Series("value", [], pl.String)  # the id that each cell means; null where it means none
        self.given = pl.Series("given", [], pl.Boolean)  # whether there is anything in it
        self.trimmed = pl.Series("trimmed", [], pl.Boolean)  # whether blanks around the id were removed

    def add(self, column: pl.Series) -> pl.Series:
        """Return the number of each row's cell, and parse the cells that were not met before."""
        # A row without a value has an empty text, which means the same.
        texts = column.cast(pl.String).fill_null("")
        coded = texts.cast(self.kind)
        self.holder, numbers = coded[:0], coded.to_physical()
        unmet = numbers >= len(self.values)
        if unmet.any():
            met = pl.DataFrame({"number": numbers.filter(unmet), "text": texts.filter(unmet)})
            new = parse_texts(met.unique("number").sort("number")["text"])
            self.values = pl.concat([self.values, new["value"]], rechunk=True)
            self.given = pl.concat([self.given, new["given"]], rechunk=True)
            self.trimmed = pl.concat([self.trimmed, new["trimmed"]], rechunk=True)
        return numbers

    def columns(self, role: str, numbers: pl.Series) -> list[pl.Series]:
        """Return what `parse_rows` needs of the rows: the number where something is given, and where it is an id."""
        found = []
        for name, known in (("given", self.given), ("value", self.values.is_not_null())):
            there = numbers if known.all() else numbers.set(~known.gather(numbers), None)
            found.append(there.alias(f"{role} {name}"))
        return found

    def count_trimmed(self, numbers: pl.Series) -> int:
        """Return how many of the rows have an id with blanks around it."""
        return int(self.trimmed.gather(numbers).sum()) if self.trimmed.any() else 0

    def ids(self, numbers: pl.Series) -> pl.Series:
        """Return the id of each cell that some of these rows have, null for others: whole numbers where all are."""
        used = np.zeros(len(self.values), bool)
        for chunk in numbers.drop_nulls().get_chunks():
            used[chunk.to_numpy()] = True
        values = self.values.set(pl.Series(~used), None)
        return whole_numbers(values)


def sorted_places(ids: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Return the place of each id among the sorted distinct ones, null for none, and those ids."""
    distinct = ids.drop_nulls().unique().sort()
    if distinct.dtype == pl.String:
        return ids.cast(pl.Enum(distinct)).to_physical().cast(pl.UInt32), distinct
    return distinct.search_sorted(ids).set(ids.is_null(), None), distinct
