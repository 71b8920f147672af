"""Reads a table on Spark with the local reader: each task writes a part of a file as record batches by user bucket."""

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
from recfusion.core.parquet import ParquetTable
from recfusion.data.interactions import ReadReport
from recfusion.data.options import Source
from recfusion.data.reading.batch_cache import Batch, Faults
from recfusion.data.reading.formats import find_format, open_table, table_errors
from recfusion.data.reading.id_codes import IdEncoder
from recfusion.data.reading.ids import whole_numbers
from recfusion.data.reading.reader import check_bad_rows, encoded_batches
from recfusion.data.reading.row_reader import RowReader, open_rows
from recfusion.data.reading.table import Table
from recfusion.data.reading.text_lines import BLOCK_BYTES
from recfusion.spark import check_path
from recfusion.spark.record_batches import as_batch, read_batches, read_schema, write_batches
from recfusion.spark.session import task_slots
from recfusion.spark.task_runner import make_files

PART_BYTES = 2 * BLOCK_BYTES - (1 << 20)  # text per task: just below two blocks of lines
_BUCKET_BYTES = 1 << 26  # text per bucket, about a million rows, which a task holds in memory
_COMPRESSION = 4  # typical ratio of gzip and Parquet
_MAX_BUCKETS = 1024


@dataclass(frozen=True)
class BucketedTable:
    """A table that was read: files with its rows by buckets of users, and the counts of the reading."""

    files: tuple[Path, ...]  # of the parts that have rows, in the order of the table
    dtypes: Mapping[str, pl.DataType]  # of the columns; ids are integers if all of the table are
    sizes: NDArray[np.int64]  # rows of each bucket
    report: ReadReport
    lowest_rating: float  # 0 if there are no ratings
    returns: int  # rows with a rating below 0
    future_rows: int  # rows with a time in the future

    @property
    def buckets(self) -> list[int]:
        """The numbers of the buckets that have rows."""
        return [int(number) for number in np.flatnonzero(self.sizes)]

    def rows(self, bucket: int) -> pl.DataFrame:
        """Return the rows of a bucket in the order of the table."""
        casts = [pl.col(name).cast(dtype) for name, dtype in self.dtypes.items()]
        batches = (batch for file in self.files for batch in read_batches(file, bucket, len(self.sizes)))
        return pl.concat(pl.DataFrame(batch).with_columns(casts) for batch in batches)


def input_files(path: Path) -> list[Path]:
    """Return the files of a table: itself, or those of a folder in the order of their names."""
    check_path(str(path))
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("*") if file.is_file() and file.name[:1] not in "._")
    if not found or len({file.suffix for file in found}) > 1:
        raise InputError(
            f"Expected files of one format (CSV or Parquet) in the folder '{path}', got {len(found)}.", "data"
        )
    return found


def open_parts(source: Source, part_bytes: int = PART_BYTES, *, lone_users: bool = False) -> list[RowReader]:
    """Return a reader for each part of a CSV or Parquet file, or of a folder of them."""
    first, *others = input_files(Path(source.data))
    reader = open_rows(first, source, lone_users=lone_users)  # decides on columns, separator and format of times
    file_format = find_format(first)
    if file_format is None or not file_format.splittable:
        raise InputError(f"Expected CSV or Parquet, got '{first}': convert it first.", "data")
    tables = [_open_like(reader.table, file) for file in (first, *others)]
    empty = reader.head.clear()  # tasks need the schema and no rows
    return [replace(reader, table=part, head=empty) for table in tables for part in table.split(part_bytes)]


def _open_like(table: Table, file: Path) -> Table:
    """Return a file as tasks open it, by its absolute path; a text file has the layout of `table`."""
    if table.layout is not None:
        return replace(table, where=str(file), source=file.absolute())
    found = table if table.where == str(file) else open_table(file, None, "")
    return replace(found, source=ParquetTable.open(file.absolute()))


def count_buckets(session: SparkSession, files: Iterable[Path], multiple: int = 1) -> int:
    """Return the number of buckets: a multiple of the tasks that run at once, and of `multiple`."""
    ratios = {".gz": _COMPRESSION, ".parquet": _COMPRESSION}
    size = sum(file.stat().st_size * ratios.get(file.suffix.lower(), 1) for file in files)
    wanted = min(size // _BUCKET_BYTES, _MAX_BUCKETS)
    at_once = task_slots(session) * multiple
    return (wanted // at_once + 1) * at_once


def read_parts(
    session: SparkSession, folder: Path, parts: Sequence[RowReader], source: Source, buckets: int
) -> BucketedTable:
    """Return the usable rows of a table, equal to those of `read_table`; parts that `folder` has are not read again."""
    plan = folder / "buckets.json"
    if not plan.is_file():
        write_json(plan, buckets)
    read = _ReadPart(int(str(read_json(plan))))  # a resumed job keeps its number, also on another cluster
    names = ("-".join(map(str, (f"piece-{number:05d}", *part.table.cuts))) for number, part in enumerate(parts))
    files = [folder / f"{name}.arrow" for name in names]
    found = make_files(session, read, {file: (file, part) for file, part in zip(files, parts, strict=True)})
    seen = [_PartSummary(**about) for about in found]
    total, faults = sum((Counter(part.facts) for part in seen), Counter()), dict[str, tuple[int, str, str]]()
    several, lines = len({part.table.where for part in parts}) > 1, Counter[str]()
    for part, summary in zip(parts, seen, strict=True):
        where = part.table.where
        file = f" in '{Path(where).name}'" * several
        for kind, (row, what, cell) in summary.faults.items():
            faults.setdefault(kind, (lines[where] + row, what + file, cell))  # numbered within the file
        lines[where] += summary.facts["lines"]
    whole = replace(parts[0], table=replace(parts[0].table, where=source.data))
    check_bad_rows(whole, total, faults, source.max_bad_share)
    texts = {role for part in seen for role in part.texts}
    dtypes = dict(pl.DataFrame(read_schema(files[0]).empty_table()).schema)
    dtypes |= {role: pl.String() if role in texts else pl.Int64() for role in ("user", "item")}
    return BucketedTable(
        files=tuple(file for file, part in zip(files, seen, strict=True) if any(part.sizes)),
        dtypes=dtypes,
        sizes=np.sum([part.sizes for part in seen], axis=0),
        report=whole.report(total, faults),
        lowest_rating=min((part.lowest for part in seen if part.lowest is not None), default=0.0),
        returns=total["returned"],
        future_rows=total["late"],
    )


@dataclass
class _PartSummary:
    """The counts of a part; written beside its rows."""

    sizes: list[int]  # rows of each bucket
    facts: dict[str, int] = field(default_factory=dict)  # counts of flags, lines, returns and future times
    lowest: float | None = None  # rating
    texts: list[str] = field(default_factory=list)  # roles of ids that are not all whole numbers
    faults: Faults = field(default_factory=dict)  # rows are numbered within the part

    def add(self, batch: Batch, rows: pl.DataFrame, sizes: NDArray[np.int64]) -> None:
        """Add a batch: its good rows, and how many of them each bucket has."""
        ratings, times = (rows[name] if name in rows.columns else pl.Series([0]) for name in ("rating", "time"))
        doubtful = {"returned": int((ratings < 0).sum()), "late": int((times > time.time()).sum())}
        self.facts = dict(Counter(self.facts) + Counter({**batch.counts, **doubtful, "lines": batch.size}))
        self.faults = {**batch.faults, **self.faults}
        self.sizes = [int(size) for size in self.sizes + sizes]
        lows = (self.lowest, cast("float | None", ratings.min()))
        self.lowest = min((low for low in lows if low is not None), default=None)
        texts = [role for role in ("user", "item") if rows[role].dtype == pl.String]
        self.texts += [role for role in texts if whole_numbers(rows[role].unique()).dtype == pl.String]


@dataclass(frozen=True)
class _ReadPart:
    """The task that reads a part into its file: for each batch a record batch per bucket."""

    buckets: int

    def __call__(self, task: tuple[Path, RowReader]) -> None:
        file, reader = task
        summary = _PartSummary([0] * self.buckets)
        write_batches(file, self._batches(reader, summary), lambda: asdict(summary))

    def _batches(self, reader: RowReader, summary: _PartSummary) -> Iterator[pa.RecordBatch]:
        encoder = reader.encoders.get("user") or IdEncoder()
        bucket_of_code = _bucket_of(encoder.ids, self.buckets)
        with table_errors(reader.table.where):
            for batch in encoded_batches(reader):
                users = batch.rows["user"] if "user" in reader.encoders else encoder.encode(batch.rows["user"])
                new = encoder.ids[len(bucket_of_code) :]
                bucket_of_code = np.append(bucket_of_code, _bucket_of(new, self.buckets))
                bucket = bucket_of_code[users.to_numpy()]
                rows = batch.rows[np.argsort(bucket, kind="stable")]
                ids = (of.ids.gather(rows[role]).alias(role) for role, of in reader.encoders.items())
                rows = rows.with_columns(ids)
                sizes = np.bincount(bucket, minlength=self.buckets)
                summary.add(batch, rows, sizes)
                whole = as_batch(rows)
                yield from (whole.slice(end - size, size) for end, size in zip(np.cumsum(sizes), sizes, strict=True))


def _bucket_of(ids: pl.Series, buckets: int) -> NDArray[Any]:
    """Return the bucket of each id, by a checksum of its text: the same on every machine, for numbers and texts."""
    texts = ids.fill_null("").cast(pl.Binary).to_list()
    kind = np.min_scalar_type(buckets)  # small integers sort faster
    return (np.fromiter(map(zlib.crc32, texts), np.uint32, len(texts)) % buckets).astype(kind)
