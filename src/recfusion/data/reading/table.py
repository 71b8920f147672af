"""An open table: the rows of a file or frame in batches, as texts or with their types."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path

import polars as pl
import polars.selectors as cs

from recfusion.core.parquet import ParquetTable
from recfusion.data.reading.database import FetchedRows
from recfusion.data.reading.text_lines import EXTRA_FIELD, TextLayout, line_blocks, line_cuts, split_lines

HEAD_ROWS = 1000  # read first, to find out the types of the columns
_HEAD_BYTES = 1 << 20


@dataclass(frozen=True)
class Table:
    """An open table: a text file, read line by line, or a table with types."""

    where: str  # its name in messages
    source: Path | pl.LazyFrame | ParquetTable | FetchedRows
    columns: list[str]
    layout: TextLayout | None = None  # of a text file
    blank_lines: int = 0  # between the rows of a typed table
    cuts: tuple[int, ...] = ()  # row numbers between the batches of a typed table; the byte range of a part of a text

    @property
    def semicolons(self) -> bool:
        """Whether semicolons separate the columns, as in files with decimal commas."""
        return self.layout is not None and self.layout.separator == ";"

    @property
    def has_names(self) -> bool:
        """Whether the columns have names: False for a text file without a header."""
        return self.layout is None or self.layout.header

    def head(self, wanted: Sequence[str]) -> pl.DataFrame | None:
        """Return the first rows, at most HEAD_ROWS, as `batches` returns them; None if a text has no line."""
        start = self if self.layout is not None else replace(self, cuts=(0, HEAD_ROWS))
        return next((rows.head(HEAD_ROWS) for rows in start.batches(wanted, block_bytes=_HEAD_BYTES)), None)

    def batches(self, wanted: Sequence[str], skip: int = 0, block_bytes: int | None = None) -> Iterator[pl.DataFrame]:
        """Yield all rows in batches, without the first `skip`: the columns `wanted`, and EXTRA_FIELD."""
        if isinstance(self.source, pl.LazyFrame):
            lazy = self.source.select(cs.by_name(*wanted), pl.lit(None, pl.String).alias(EXTRA_FIELD))
            yield from (lazy.slice(start, end - start).collect() for start, end in pairwise(self.cuts[skip:]))
        elif isinstance(self.source, FetchedRows):
            for rows in islice(self.source.batches(), skip, None):
                yield rows.select(cs.by_name(*wanted), pl.lit(None, pl.String).alias(EXTRA_FIELD))
        elif isinstance(self.source, ParquetTable):
            names = list(dict.fromkeys(wanted))
            for start, end in pairwise(self.cuts[skip:]):
                yield self.source.read(names, start, end).with_columns(pl.lit(None, pl.String).alias(EXTRA_FIELD))
        elif self.layout is not None:
            header = 0 if self.cuts else self.layout.skip_lines
            blocks = line_blocks(self.source, header, block_bytes, span=self.cuts, encoding=self.layout.encoding)
            for block in islice(blocks, skip, None):
                yield split_lines(block, self.layout, wanted)

    def split(self, about_bytes: int) -> list["Table"]:
        """Return the table as several parts, in order: about so many bytes of text each, or one batch of typed rows."""
        cuts = self.cuts
        if isinstance(self.source, Path) and self.layout is not None:
            if self.layout.encoding.startswith(("utf-16", "utf-32")):  # a line feed has several bytes
                return [self]
            cuts = line_cuts(self.source, self.layout.skip_lines, about_bytes)
        return [replace(self, cuts=pair) for pair in pairwise(cuts)] or [self]
