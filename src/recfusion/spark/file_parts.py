"""Reading a table on Spark by the code of the local reader: files in pieces, the rows of each by buckets of users.

What is read of a piece is a file with a record batch for each bucket; a bucket has all rows of its users.
"""

import time
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from recfusion.core.errors import InputError
from recfusion.core.files import read_json, write_json
from recfusion.data.interactions import ReadReport
from recfusion.data.options import Source
from recfusion.data.reading.batch_cache import Batch, Faults
from recfusion.data.reading.formats import Table, open_table, table_errors
from recfusion.data.reading.id_codes import Cells
from recfusion.data.reading.reader import Reading, check_share, coded_batches, first_faults, open_rows
from recfusion.data.reading.text_lines import BLOCK_BYTES
from recfusion.data.reading.values import whole_numbers
from recfusion.spark import check_path
from recfusion.spark.record_batches import as_batch, read_batches, read_schema, write_batches
from recfusion.spark.session import task_slots
from recfusion.spark.task_runner import make_files

PIECE_BYTES = 2 * BLOCK_BYTES - (1 << 20)  # of text for a task: two blocks of lines, and no third for what is over
_BUCKET_BYTES = 1 << 26  # of text, about a million rows, of which a task holds all at once
_PACKED = 4  # how much smaller packed text and Parquet are, about
_MOST_BUCKETS = 1024


@dataclass(frozen=True)
class Pieces:
    """A table that was read: the files of its pieces, and what was seen on the way."""

    files: tuple[Path, ...]  # of pieces that have rows, in the order of the table
    kinds: Mapping[str, pl.DataType]  # of the columns; ids are whole numbers where all of the table are
    sizes: NDArray[np.int64]  # rows of each bucket
    report: ReadReport
    lowest: float  # rating; 0 where there is none
    returned: int  # rows with a rating below 0
    late: int  # rows of the future

    @property
    def buckets(self) -> list[int]:
        """The buckets that have rows."""
        return [int(number) for number in np.flatnonzero(self.sizes)]

    def rows(self, bucket: int) -> pl.DataFrame:
        """Return the rows of a bucket in the order of the table."""
        casts = [pl.col(name).cast(kind) for name, kind in self.kinds.items()]
        batches = (batch for file in self.files for batch in read_batches(file, bucket, len(self.sizes)))
        return pl.concat(pl.DataFrame(batch).with_columns(casts) for batch in batches)


def input_files(path: Path) -> list[Path]:
    """Return the files of a table: itself, or those of a folder in the order of names."""
    check_path(str(path))
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("*") if file.is_file() and file.name[:1] not in "._")
    if not found or len({file.suffix for file in found}) > 1:
        raise InputError(f"Expected a folder with files of one kind (CSV or Parquet), got {len(found)} in '{path}'.")
    return found


def open_pieces(source: Source, piece_bytes: int = PIECE_BYTES, *, lone_users: bool = False) -> list[Reading]:
    """Return how the pieces of a CSV or Parquet file are read, or of a folder of them.

    Columns, separator and the form of times are found in the first file.
    """
    first, *others = input_files(Path(source.data))
    reading = open_rows(first, source, lone_users=lone_users)
    if first.name.lower().removesuffix(".gz").endswith((".jsonl", ".ndjson")):
        raise InputError(f"Expected CSV or Parquet, got '{first}': convert it first.")
    tables = [_everywhere(reading.table, first), *(_alike(reading.table, file) for file in others)]
    empty = reading.head.clear()  # tasks get no rows, but what to do with their own
    return [replace(reading, table=piece, head=empty) for table in tables for piece in table.pieces(piece_bytes)]


def _alike(table: Table, file: Path) -> Table:
    """Return another file of a folder as a table; a text is laid out as the first one is."""
    if table.layout is None:
        return _everywhere(open_table(file, None, ""), file)
    return replace(table, where=str(file), source=file.absolute())


def _everywhere(table: Table, file: Path) -> Table:
    """Return a table that tasks find, which have another working folder; messages name it as it was given."""
    place = file.absolute()
    return replace(table, source=pl.scan_parquet(place, glob=False) if table.layout is None else place)


def count_buckets(session: SparkSession, files: Iterable[Path], multiple: int = 1) -> int:
    """Return how many buckets users are divided into: a multiple of the tasks that run at once, and of `multiple`."""
    sizes = (file.stat().st_size * (_PACKED if file.suffix.lower() in (".gz", ".parquet") else 1) for file in files)
    wanted = min(sum(sizes) // _BUCKET_BYTES, _MOST_BUCKETS)
    at_once = task_slots(session) * multiple
    return (wanted // at_once + 1) * at_once


def read_pieces(session: SparkSession, folder: Path, pieces: Sequence[Reading], source: Source, buckets: int) -> Pieces:
    """Return the usable rows of a table, which equal those of `read_table`; pieces that `folder` has are not read."""
    plan = folder / "buckets.json"
    if not plan.is_file():
        write_json(plan, buckets)
    read = _ReadPiece(int(str(read_json(plan))))  # a cluster of another size goes on with as many
    files = [folder / _name(number, piece) for number, piece in enumerate(pieces)]
    found = make_files(session, read, {file: (file, piece) for file, piece in zip(files, pieces, strict=True)})
    seen = [_Seen(**about) for about in found]
    total, faults = sum((Counter(of.facts) for of in seen), Counter()), _faults(pieces, seen)
    whole = replace(pieces[0], table=replace(pieces[0].table, where=source.data))
    check_share(whole, total, faults, source.max_bad_share)
    texts = {role for of in seen for role in of.texts}
    kinds = dict(pl.DataFrame(read_schema(files[0]).empty_table()).schema)
    kinds |= {role: pl.String() if role in texts else pl.Int64() for role in ("user", "item")}
    return Pieces(
        files=tuple(file for file, of in zip(files, seen, strict=True) if any(of.sizes)),
        kinds=kinds,
        sizes=np.sum([of.sizes for of in seen], axis=0),
        report=whole.report(total, faults),
        lowest=min((of.lowest for of in seen if of.lowest is not None), default=0.0),
        returned=total["returned"],
        late=total["late"],
    )


def _name(number: int, piece: Reading) -> str:
    return "-".join(map(str, ("piece", f"{number:05d}", *piece.table.cuts))) + ".arrow"


@dataclass
class _Seen:
    """What was seen in a piece."""

    sizes: list[int]  # rows of each bucket
    facts: dict[str, int] = field(default_factory=dict)  # counts of flags, of lines, and of doubtful ratings and times
    lowest: float | None = None  # rating
    texts: list[str] = field(default_factory=list)  # roles of ids that are not all whole numbers

    def add(self, batch: Batch, rows: pl.DataFrame, sizes: NDArray[np.int64]) -> None:
        """Take note of a batch, of its good rows and of those of each bucket."""
        ratings, times = (rows[name] if name in rows.columns else pl.Series([0]) for name in ("rating", "time"))
        doubtful = {"returned": int((ratings < 0).sum()), "late": int((times > time.time()).sum())}
        self.facts = dict(Counter(self.facts) + Counter({**batch.facts, **doubtful, "lines": batch.count}))
        self.sizes = [int(size) for size in self.sizes + sizes]
        lows = (self.lowest, cast("float | None", ratings.min()))
        self.lowest = min((low for low in lows if low is not None), default=None)
        texts = [role for role in ("user", "item") if rows[role].dtype == pl.String]
        self.texts += [role for role in texts if whole_numbers(rows[role].unique()).dtype == pl.String]


@dataclass(frozen=True)
class _ReadPiece:
    """What reads a piece into its file: of each batch a record batch for each bucket."""

    buckets: int

    def __call__(self, task: tuple[Path, Reading]) -> None:
        file, reading = task
        seen = _Seen([0] * self.buckets)
        write_batches(file, self._batches(reading, seen), lambda: asdict(seen))

    def _batches(self, reading: Reading, seen: _Seen) -> Iterator[pa.RecordBatch]:
        cells = reading.cells.get("user") or Cells()
        buckets = _bucket_of(cells.values, self.buckets)  # of each cell, as far as they were read
        with table_errors(reading.table.where):
            for batch in coded_batches(reading):
                users = batch.rows["user"] if "user" in reading.cells else cells.add(batch.rows["user"])
                buckets = np.append(buckets, _bucket_of(cells.values[len(buckets) :], self.buckets))
                bucket = buckets[users.to_numpy()]
                rows = batch.rows[np.argsort(bucket, kind="stable")]
                rows = rows.with_columns(of.values.gather(rows[role]).alias(role) for role, of in reading.cells.items())
                sizes = np.bincount(bucket, minlength=self.buckets)
                seen.add(batch, rows, sizes)
                whole = as_batch(rows)
                yield from (whole.slice(end - size, size) for end, size in zip(np.cumsum(sizes), sizes, strict=True))


def _bucket_of(ids: pl.Series, buckets: int) -> NDArray[Any]:
    """Return the bucket of each id, by its text: the same on every machine, and whether or not it is a number."""
    texts = ids.fill_null("").cast(pl.Binary).to_list()
    kind = np.min_scalar_type(buckets)  # numbers of few bits are sorted by counting
    return (np.fromiter(map(zlib.crc32, texts), np.uint32, len(texts)) % buckets).astype(kind)


def _faults(pieces: Sequence[Reading], seen: Sequence[_Seen]) -> Faults:
    """Return the first row of each kind of fault, from the pieces that have it; rows are numbered in their own file."""
    faults: Faults = {}
    several = len({piece.table.where for piece in pieces}) > 1
    lines: Counter[str] = Counter()
    for piece, of in zip(pieces, seen, strict=True):
        where, counts = piece.table.where, Counter(of.facts)
        if any(counts[kind] and kind not in faults for kind in ("missing", "unparsable")):
            found = first_faults(piece, counts, lines[where])
            place = f" in '{Path(where).name}'" * several
            faults = {kind: (row, what + place, cell) for kind, (row, what, cell) in found.items()} | dict(faults)
        lines[where] += counts["lines"]
    return faults
