"""Reading a table on Spark by the code of the local reader: files in pieces, the rows of each by buckets of users.

What is read of a piece is a file with a record batch for each bucket; a bucket has all rows of its users.
"""

import time
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from recfusion.core.errors import InputError
from recfusion.core.files import read_json, write_json
from recfusion.data.cells import Cells
from recfusion.data.interactions import ReadReport
from recfusion.data.kept import Faults
from recfusion.data.readers import Reading, check_share, first_faults, open_rows, read_coded
from recfusion.data.settings import Source
from recfusion.data.tables import Table, open_table
from recfusion.spark import check_path
from recfusion.spark.batches import OLDEST, read_batch, read_schema, write_batches
from recfusion.spark.session import task_slots
from recfusion.spark.tasks import make_files

PIECE_BYTES = 1 << 25  # of text that a task reads
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
        return pl.concat(pl.DataFrame(read_batch(file, bucket)).with_columns(casts) for file in self.files)


def input_files(path: Path) -> list[Path]:
    """Return the files of a table, as every machine finds them: itself, or those of a folder in the order of names."""
    check_path(str(path))
    if not path.is_dir():
        return [path.absolute()]
    found = sorted(file for file in path.absolute().rglob("*") if file.is_file() and file.name[:1] not in "._")
    if not found or len({file.suffix for file in found}) > 1:
        raise InputError(f"Expected a folder with files of one kind (CSV or Parquet), got {len(found)} in '{path}'.")
    return found


def open_pieces(source: Source, piece_bytes: int = PIECE_BYTES, *, lone_users: bool = False) -> list[Reading]:
    """Return how the pieces of a CSV or Parquet file are read, or of a folder of them.

    Columns, separator and the form of times are found in the first file.
    """
    first, *others = input_files(Path(source.data))
    reading = open_rows(first, source, lone_users=lone_users)
    if first.name.lower().endswith((".jsonl", ".ndjson")):
        raise InputError(f"Expected CSV or Parquet, got '{first}': convert it first.")
    tables = [reading.table, *(_alike(reading.table, file) for file in others)]
    empty = reading.head.clear()  # tasks get no rows, but what to do with their own
    return [replace(reading, table=piece, head=empty) for table in tables for piece in table.pieces(piece_bytes)]


def _alike(table: Table, file: Path) -> Table:
    """Return another file of a folder as a table; a text is laid out as the first one is."""
    return open_table(file, None, "") if table.layout is None else replace(table, where=str(file), source=file)


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
    facts = [Counter(about["facts"]) for about in found]
    total, faults = sum(facts, Counter()), _faults(pieces, facts)
    whole = replace(pieces[0], table=replace(pieces[0].table, where=source.data))
    check_share(whole, total, faults, source.max_bad_share)
    with_rows = [file for file, about in zip(files, found, strict=True) if any(about["sizes"])]
    return Pieces(
        files=tuple(with_rows),
        kinds=_kinds(with_rows),
        sizes=np.sum([about["sizes"] for about in found], axis=0),
        report=whole.report(total, faults),
        lowest=min((about["lowest"] for about in found if about["lowest"] is not None), default=0.0),
        returned=total["returned"],
        late=total["late"],
    )


def _name(number: int, piece: Reading) -> str:
    return "-".join(map(str, ("piece", f"{number:05d}", *piece.table.cuts))) + ".arrow"


@dataclass(frozen=True)
class _ReadPiece:
    """Reads a piece into its file."""

    buckets: int

    def __call__(self, task: tuple[Path, Reading]) -> None:
        file, reading = task
        read = read_coded(reading)
        users = read.rows["user"]
        cells = reading.cells.get("user")
        if cells is None:
            cells = Cells()
            users = cells.add(users)
        bucket = _bucket_of(cells.values, self.buckets)[users.to_numpy()]
        rows = read.rows[np.argsort(bucket, kind="stable")]
        rows = rows.with_columns(
            of.ids(rows[role]).gather(rows[role]).alias(role) for role, of in reading.cells.items()
        )
        ratings, times = (rows[name] if name in rows.columns else pl.Series([0]) for name in ("rating", "time"))
        counts = {"lines": read.count, "returned": (ratings < 0).sum(), "late": (times > time.time()).sum()}
        sizes = np.bincount(bucket, minlength=self.buckets).tolist()
        about = {"facts": {**read.facts, **counts}, "sizes": sizes, "lowest": ratings.min()}
        write_batches(file, rows.to_arrow(compat_level=OLDEST), sizes, about)


def _bucket_of(ids: pl.Series, buckets: int) -> NDArray[Any]:
    """Return the bucket of each id, by its text: the same on every machine, and whether or not it is a number."""
    texts = ids.fill_null("").cast(pl.Binary).to_list()
    kind = np.min_scalar_type(buckets)  # numbers of few bits are sorted by counting
    return (np.fromiter(map(zlib.crc32, texts), np.uint32, len(texts)) % buckets).astype(kind)


def _faults(pieces: Sequence[Reading], facts: Sequence[Mapping[str, int]]) -> Faults:
    """Return the first row of each kind of fault, from the pieces that have it; rows are numbered in their own file."""
    faults: Faults = {}
    several = len({piece.table.where for piece in pieces}) > 1
    lines: Counter[str] = Counter()
    for piece, counts in zip(pieces, facts, strict=True):
        where = piece.table.where
        if any(counts.get(kind) and kind not in faults for kind in ("missing", "unparsable")):
            found = first_faults(piece, counts, lines[where])
            place = f" in '{Path(where).name}'" * several
            faults = {kind: (row, what + place, cell) for kind, (row, what, cell) in found.items()} | dict(faults)
        lines[where] += counts["lines"]
    return faults


def _kinds(files: Sequence[Path]) -> dict[str, pl.DataType]:
    """Return the types of the columns; ids that are texts in one file are texts."""
    kinds: dict[str, pl.DataType] = {}
    for file in files:
        own = pl.DataFrame(read_schema(file).empty_table()).schema
        kinds |= {name: kind for name, kind in own.items() if kinds.get(name) != pl.String}
    return kinds
