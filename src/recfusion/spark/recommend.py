"""Lists for many users as a Spark job: each worker process loads the model once and handles users in batches."""

import functools
import shutil
from collections.abc import Generator, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import polars as pl
from pyspark.sql import SparkSession

from recfusion.core.errors import InputError
from recfusion.core.files import read_json, write_json
from recfusion.core.job_folder import PARTS, file_stamps, stages_of
from recfusion.data.options import Source
from recfusion.data.reading.formats import table_writer
from recfusion.data.reading.id_codes import encode_ids
from recfusion.inference.bundle import Bundle
from recfusion.inference.histories import read_histories
from recfusion.inference.lists import ListMaker
from recfusion.inference.recommending import recommend_batches
from recfusion.models.registry import find
from recfusion.spark.file_parts import BucketedTable, count_buckets, input_files, open_parts, read_parts
from recfusion.spark.session import task_cores, use_cores
from recfusion.spark.task_runner import run_tasks

CHUNKS = 8
DONE = "_recommended.json"  # written last, in a complete folder
_BATCH = 2000  # histories that a worker has in memory at once


@dataclass(frozen=True)
class ListCounts:
    """Counts of a job, or of a part of it."""

    users: int = 0
    unknown: int = 0  # rows with an item that the model does not know
    empty: int = 0  # users with no known items
    bad: int = 0  # rows without a value, or with one that cannot be parsed
    disliked: int = 0  # rows rated below the like threshold

    def __add__(self, other: "ListCounts") -> "ListCounts":
        return ListCounts(*(one + two for one, two in zip(astuple(self), astuple(other), strict=True)))


def spark_recommend(
    session: SparkSession,
    model: Path,
    users: Source,
    folder: Path,
    *,
    k: int = 10,
    chunks: int = CHUNKS,
    trust: Sequence[str] = (),
) -> Generator[tuple[int, ListCounts], None, None]:
    """Write the K best items of every user of a table as Parquet; yield (finished chunks, counts so far).

    Users are divided into chunks by their ids, and chunks into buckets, one for each task. A restarted job skips
    finished buckets. The lists equal those of `recommend_batches` on the same table, in another order of users. `trust`
    names model classes as file.py:Class or package.module:Class; all workers must be able to read such a file.
    """
    if k < 1 or chunks < 1:
        raise InputError(f"Expected at least one item and one chunk, got k = {k} and {chunks} chunks.")
    places = tuple(str(Path(place).absolute()) if ".py:" in place else place for place in trust)
    bundle = Bundle.load(model, trust=[find(place).load() for place in places])
    files = input_files(Path(users.data))
    job = {
        "recommend": users.absolute().model_dump(mode="json"),
        "files": file_stamps(files),
        "model": file_stamps([model / name for name in ("config.json", "model.safetensors", "items.parquet")]),
        "k": k,
        "chunks": chunks,
    }
    with stages_of(folder, job) as stages:
        if (folder / DONE).is_file():
            yield chunks, _counts(folder / DONE)
            return
        pieces = open_parts(users, lone_users=True)
        if "times" in bundle.protocol.signals.used and "time" not in pieces[0].columns:
            raise InputError(
                "Expected a column of times, which this model reads, since rows on Spark have no order: name it with "
                "--time.",
                "time",
            )
        table = read_parts(session, stages / "pieces", pieces, users, count_buckets(session, files, chunks))
        # A copy that all workers can read until the job is done; they cache models by path.
        copied = Path(shutil.copytree(model, stages / f"model-{uuid4().hex}"))
        make = _MakeLists(table, copied, places, k, task_cores(session), stages / "lists")
        total = ListCounts(bad=table.report.missing + table.report.unparsable)
        for chunk in range(chunks):
            own = [number for number in table.buckets if number % chunks == chunk]
            run_tasks(session, make, [number for number in own if not make.counts(number).is_file()])
            total = sum((_counts(make.counts(number)) for number in own), total)
            yield chunk + 1, total
        for file in sorted(make.folder.glob(PARTS)):
            file.replace(folder / file.name)
        write_json(folder / DONE, asdict(total))


@dataclass(frozen=True)
class _MakeLists:
    """A task that writes the lists of a bucket of users."""

    table: BucketedTable
    model: Path
    trust: tuple[str, ...]
    k: int
    threads: int
    folder: Path

    def counts(self, number: int) -> Path:
        """Return the path of a bucket's counts, which are written after its lists."""
        return self.folder / f"counts-{number:05d}.json"

    def __call__(self, number: int) -> None:
        bundle = _loaded(self.model, self.trust)
        use_cores(self.threads)  # after the model's libraries are loaded
        maker, total = ListMaker.of(bundle), ListCounts()
        rows = self.table.rows(number)
        # The latest of several rows of a user and item counts; of rows of the same time, the highest rating.
        order = [name for name in ("time", "rating") if name in rows.columns] or "user"
        batch = pl.Series("batch", encode_ids(rows["user"])[0] // _BATCH)
        with table_writer(self.folder / f"part-{number:05d}.parquet") as write:
            for part in rows.with_columns(batch).partition_by("batch", include_key=False, maintain_order=True):
                known = read_histories(bundle, part.sort(order, maintain_order=True))
                total += ListCounts(known.matrix.shape[0], known.unknown_rows, known.n_empty, disliked=known.disliked)
                for found in recommend_batches(maker, known, self.k, threads=1):
                    write(found)
        write_json(self.counts(number), asdict(total))


@functools.cache
def _loaded(folder: Path, trust: tuple[str, ...]) -> Bundle:
    """Return the model, which a worker process reads only once."""
    return Bundle.load(folder, trust=[find(place).load() for place in trust])


def _counts(path: Path) -> ListCounts:
    found: Any = read_json(path)
    return ListCounts(**found)
