"""Reading a table of interactions with Spark by the very expressions of the local reader, partition by partition."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import polars.selectors as cs
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from recfusion.core.errors import InputError
from recfusion.data.interactions import ReadReport
from recfusion.data.lines import BOM, EXTRA, split_lines
from recfusion.data.parsing import row_flags
from recfusion.data.readers import Reading, check_share, first_faults, open_rows
from recfusion.data.settings import Source
from recfusion.spark import check_path
from recfusion.spark.stages import Stages, address

BATCH_SIZE = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BATCH_ROWS = 1 << 17


def input_files(path: Path) -> list[Path]:
    """Return the files of a table: itself, or those of a folder in the order of their names."""
    check_path(str(path))
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("*") if file.is_file() and file.name[:1] not in "._")
    if not found or len({file.suffix for file in found}) > 1:
        raise InputError(f"Expected a folder with files of one kind (CSV or Parquet), got {len(found)} in '{path}'.")
    return found


def read_rows(stages: Stages, source: Source, *, lone_users: bool = False) -> tuple[DataFrame, ReadReport]:
    """Return the usable rows of a CSV or Parquet file, or of a folder of them, and what was seen on the way to them.

    They equal those of `read_table`; the stage `parsed` keeps them. Columns, separator and the form of times are found
    in the first file.
    """
    files = input_files(Path(source.data))
    reading = open_rows(files[0], source, lone_users=lone_users)
    if files[0].name.lower().endswith((".jsonl", ".ndjson")):
        raise InputError(f"Expected CSV or Parquet, got '{files[0]}': convert it first.")
    parsed = stages.frame("parsed", lambda: _parsed(stages.session, files, reading))
    flags = [name for name in parsed.columns if name not in (*reading.columns, "good")]
    counts = parsed.agg(*(sf.sum(sf.col(f"`{name}`").cast("long")).alias(name) for name in flags)).first()
    assert counts is not None
    facts = {name: int(counts[name] or 0) for name in flags}
    faults = first_faults(reading, facts)
    check_share(replace(reading, table=replace(reading.table, where=source.data)), facts, faults, source.max_bad_share)
    whole = {role: facts.get(f"{role} text") == 0 for role in ("user", "item")}
    good = parsed.where("good").select(
        *(sf.col(role).cast("long") if whole.get(role) else sf.col(role) for role in reading.columns)
    )
    return good, reading.report(facts, faults)


def _parsed(session: SparkSession, files: list[Path], reading: Reading) -> DataFrame:
    names = [address(file) for file in files]
    empty = reading.head.clear()
    # The workers get no rows of the driver's file, but what to do with their own.
    parse = _Parse(replace(reading, table=replace(reading.table, source=pl.LazyFrame()), head=empty))
    schema = spark_schema(parse.rows(empty.lazy()))
    if reading.table.layout is not None:
        lines = session.read.option("lineSep", "\n").text(names)
        start, path = sf.col("_metadata.file_block_start"), sf.xxhash64("_metadata.file_path")
        line = sf.concat(sf.col("value").cast("binary"), sf.lit(b"\n"))  # so that a batch is a piece of the file
        table = lines.select(line.alias("line"), path.alias("path"), start.alias("start"))
        return table.mapInArrow(parse.text, schema)
    columns = [sf.col(f"`{name}`").alias(role) for role, name in reading.columns.items()]
    return session.read.parquet(*names).select(*columns).mapInArrow(parse.table, schema)


@dataclass(frozen=True)
class _Parse:
    """What a task does with its part of the table."""

    reading: Reading

    def rows(self, frame: pl.LazyFrame) -> pl.DataFrame:
        """Return each row's values, whether it is good, and the flags that are counted."""
        parsed = self.reading.parse(frame)
        values = {role: pl.col(f"{role} value") for role in self.reading.columns}
        flags = {name: flag.fill_null(False) for name, flag in row_flags(parsed).items()}
        return parsed.select(**values, good=pl.col("good"), **flags).collect()

    def table(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            frame = from_arrow(batch).with_columns(pl.lit(None, pl.String).alias(EXTRA))
            yield from to_arrow(self.rows(frame.lazy()))

    def text(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Parse lines as the local reader does; those of a file's header are left out."""
        layout, columns = self.reading.table.layout, self.reading.columns
        assert layout is not None
        roles = [cs.by_name(name).alias(role) for role, name in columns.items()]
        seen: dict[int, int] = {}  # lines of the first block of each file
        for batch in batches:
            text = _text(_without_header(batch, layout.skip_lines, seen))
            if text:
                found = split_lines(text, layout, list(columns.values())).lazy()
                yield from to_arrow(self.rows(found.select(*roles, EXTRA)))


def _without_header(batch: pa.RecordBatch, skip: int, seen: dict[int, int]) -> pa.Array:
    """Return the lines of a batch without those that are headers, and without the mark that a file may begin with."""
    lines, paths, starts = batch.columns
    at_start = np.flatnonzero(starts.to_numpy() == 0)
    names = paths.take(pa.array(at_start)).dictionary_encode()
    dropped: list[int] = []
    for code, path in enumerate(names.dictionary.to_pylist()):
        own = at_start[names.indices.to_numpy() == code]
        before = seen.get(path, 0)
        seen[path] = before + len(own)
        dropped += own[: max(0, skip - before)].tolist()
        if before == skip == 0:
            first = int(own[0])
            bare = pa.array([lines[first].as_py().removeprefix(BOM)], lines.type)
            lines = pa.concat_arrays([lines[:first], bare, lines[first + 1 :]])
    return lines.take(pa.array(np.setdiff1d(np.arange(len(lines)), dropped))) if dropped else lines


def _text(lines: pa.Array) -> bytes:
    """Return an array of lines as the bytes that they are, end to end."""
    if not len(lines):
        return b""
    width = np.int64 if pa.types.is_large_binary(lines.type) else np.int32
    _, offsets, data = lines.buffers()
    ends = np.frombuffer(offsets, width)[lines.offset : lines.offset + len(lines) + 1]
    return bytes(memoryview(data)[ends[0] : ends[-1]])


@contextmanager
def in_batches(session: SparkSession) -> Iterator[None]:
    """Send tables to Python in batches that are worth a call; Spark's own are of 10,000 rows."""
    before = str(session.conf.get(BATCH_SIZE))
    session.conf.set(BATCH_SIZE, str(_BATCH_ROWS))
    try:
        yield
    finally:
        session.conf.set(BATCH_SIZE, before)


def spark_schema(frame: pl.DataFrame) -> StructType:
    """Return the columns of a frame in Spark's types."""
    return from_arrow_schema(frame.to_arrow(compat_level=pl.CompatLevel.oldest()).schema)


def from_arrow(batch: pa.RecordBatch) -> pl.DataFrame:
    """Return a batch of Spark's as a frame."""
    found = pl.from_arrow(batch)
    assert isinstance(found, pl.DataFrame)
    return found


def to_arrow(frame: pl.DataFrame) -> list[pa.RecordBatch]:
    """Return a frame as Spark takes it, with the plain string type."""
    batches: list[pa.RecordBatch] = frame.to_arrow(compat_level=pl.CompatLevel.oldest()).to_batches()
    return batches
