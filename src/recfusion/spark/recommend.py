"""Lists for many users as a Spark job: the model is loaded once in each worker process, users pass by in batches."""

import functools
import shutil
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import polars as pl
import pyarrow as pa
from pyspark import Accumulator, SparkFiles
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from recfusion.core.errors import InputError
from recfusion.core.files import read_json, write_json
from recfusion.core.jobs import described
from recfusion.data.settings import Source
from recfusion.models.registry import find
from recfusion.serving.bundle import Bundle
from recfusion.serving.histories import Histories, added_up, liked_rows, read_histories
from recfusion.serving.lists import ListMaker
from recfusion.serving.recommend import recommend_batches
from recfusion.spark.rows import BATCH_SIZE, from_arrow, in_batches, input_files, read_rows, spark_schema, to_arrow
from recfusion.spark.session import task_cores, task_slots, use_cores
from recfusion.spark.stages import Stages, address

CHUNKS = 8
DONE = "_recommended.json"  # written last: a folder that has it is complete
_BATCH = 2000  # users whose histories a worker holds at once
_COUNTS = "_counts.json"
_READ = "read.json"  # counts of the rows as they were read


@dataclass(frozen=True)
class ListCounts:
    """What a job, or a chunk of it, met with."""

    users: int = 0
    unknown: int = 0  # rows whose item the model does not know
    empty: int = 0  # users of whom no known item is left
    bad: int = 0  # rows without a value, or that cannot be parsed
    disliked: int = 0  # rows rated below what the model's preparation counts

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
    """Write the K best items of every user of a table as Parquet; yield (chunks done, counts so far) on the way.

    Users are divided into chunks by their ids; a chunk that is whole is not computed again. The lists equal those of
    `recommend_batches` on the same table, in another order of users. `trust` are places of classes that the model may
    be of; a file of one must be there for all workers.
    """
    if k < 1 or chunks < 1:
        raise InputError(f"Expected at least one item and one chunk, got k = {k} and {chunks} chunks.")
    places = tuple(str(Path(place).absolute()) if ".py:" in place else place for place in trust)
    bundle = Bundle.load(model, trust=[find(place).load() for place in places])
    job = {
        "recommend": users.absolute().model_dump(mode="json"),
        "files": described(input_files(Path(users.data))),
        "model": described([model / name for name in ("config.json", "model.safetensors", "items.parquet")]),
        "k": k,
        "chunks": chunks,
    }
    stages = Stages.of(session, folder, job)
    if (folder / DONE).is_file():
        yield chunks, _counts(folder / DONE)
        return
    with stages.given_up_if_refused(), in_batches(session):
        stages.ensure("histories", lambda: _histories(stages, users, bundle, chunks), by="chunk")
    session.conf.set(BATCH_SIZE, str(_BATCH))
    total = _counts(stages.place(_READ))
    archive = _ship(stages, model)
    for chunk in range(chunks):
        total += _chunk(stages, chunk, archive, bundle, k, places)
        yield chunk + 1, total
    stages.publish([_name(chunk) for chunk in range(chunks)])
    write_json(folder / DONE, asdict(total))
    stages.clear()


def _histories(stages: Stages, users: Source, bundle: Bundle, chunks: int) -> DataFrame:
    """Return a row per user: the items, with ratings and times where the table has them."""
    rows, report = read_rows(stages, users, lone_users=True)
    if "times" in bundle.protocol.signals.used and "time" not in rows.columns:
        raise InputError(
            "Expected a column of times, which this model reads and without which rows have no order on Spark: name it "
            "with --time."
        )
    write_json(stages.place(_READ), asdict(ListCounts(bad=report.missing + report.unparsable)))
    entry = sf.struct(*(name for name in rows.columns if name != "user"))
    grouped = rows.groupBy("user").agg(sf.collect_list(entry).alias("entries"))
    return grouped.withColumn("chunk", sf.pmod(sf.xxhash64("user"), sf.lit(chunks)).cast("int"))


def _chunk(stages: Stages, chunk: int, archive: str, bundle: Bundle, k: int, trust: tuple[str, ...]) -> ListCounts:
    """Make the lists of one chunk where they are not there, and return its counts."""
    name, part = _name(chunk), f"histories/chunk={chunk}"
    kept = stages.place(name) / _COUNTS
    if stages.is_whole(name) and kept.is_file():
        return _counts(kept)
    if not stages.place(part).is_dir():  # nobody's id falls into it
        return ListCounts()
    session = stages.session
    unknown, empty, seen, disliked = (session.sparkContext.accumulator(0) for _ in range(4))
    histories = stages.read(part).repartition(task_slots(session))
    work = _Recommend(archive, trust, k, task_cores(session), unknown, empty, seen, disliked)
    lists = histories.mapInArrow(work, spark_schema(_example(bundle, histories)))
    lists.write.mode("overwrite").parquet(address(stages.place(name)))
    counts = ListCounts(seen.value, unknown.value, empty.value, disliked=disliked.value)
    write_json(kept, asdict(counts))
    return counts


@dataclass(frozen=True)
class _Recommend:
    """What a task does with its users."""

    archive: str
    trust: tuple[str, ...]
    k: int
    threads: int
    unknown: "Accumulator[int]"
    empty: "Accumulator[int]"
    seen: "Accumulator[int]"
    disliked: "Accumulator[int]"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        bundle = _loaded(SparkFiles.get(self.archive), self.trust)
        use_cores(self.threads)
        for batch in batches:
            known, disliked = _known(bundle, from_arrow(batch).explode("entries").unnest("entries"))
            self.disliked.add(disliked)
            self.seen.add(len(known.users))
            self.unknown.add(known.unknown_rows)
            self.empty.add(known.n_empty)
            for found in recommend_batches(ListMaker.of(bundle), known, self.k, threads=1):
                yield from to_arrow(found)


def _known(bundle: Bundle, rows: pl.DataFrame) -> tuple[Histories, int]:
    """Return the histories as the local path reads them, and how many rows are not liked.

    Of several rows of a user and item the latest counts, and of one time the highest rating.
    """
    rows = rows.sort([name for name in ("time", "rating") if name in rows.columns] or "user", maintain_order=True)
    rows, blanked = liked_rows(added_up(rows, bundle.protocol), bundle.protocol)
    found = read_histories(bundle, rows)
    return found, found.disliked + blanked


@functools.cache
def _loaded(folder: str, trust: tuple[str, ...]) -> Bundle:
    """Return the model, read once in the life of a worker process."""
    return Bundle.load(folder, trust=[find(place).load() for place in trust])


def _example(bundle: Bundle, histories: DataFrame) -> pl.DataFrame:
    """Return a list without rows, whose columns are those of all."""
    kind = pl.String if dict(histories.dtypes)["user"] == "string" else pl.Int64
    nobody = pl.DataFrame({"user": pl.Series([None], dtype=kind), "item": pl.Series([None], dtype=pl.String)})
    return next(recommend_batches(ListMaker.of(bundle), read_histories(bundle, nobody), 1)).clear()


def _ship(stages: Stages, model: Path) -> str:
    """Send the model folder to all workers and return the name under which they find it."""
    # Workers fetch it when they first need it, so it must stay until the job is done. They keep what they loaded by its
    # name, and a session may see several models.
    packed = Path(shutil.make_archive(str(stages.place(f"recfusion-model-{uuid4().hex}")), "zip", model))
    stages.session.sparkContext.addArchive(str(packed))
    return packed.name


def _name(chunk: int) -> str:
    return f"lists-{chunk:05d}"


def _counts(path: Path) -> ListCounts:
    found: Any = read_json(path)
    return ListCounts(**found)
