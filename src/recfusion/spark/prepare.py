"""Preparation as a Spark job: the same steps as in `data/prepare.py`, from CSV or Parquet to partitioned Parquet."""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from recfusion.core.errors import InputError
from recfusion.core.jobs import described
from recfusion.data.interactions import PreparationStep
from recfusion.data.load import ITEMS, Prepared, is_prepared, write_prepared
from recfusion.data.prepare import ADDED, LATEST, preparation_notes, resolve_min_rating, return_notes, time_notes
from recfusion.data.readers import read_items
from recfusion.data.scale import Scale, adds_up
from recfusion.data.settings import Preparation, Source
from recfusion.spark.rows import from_arrow, in_batches, input_files, read_rows, to_arrow
from recfusion.spark.session import task_slots
from recfusion.spark.stages import Stages

_PARTITION_ROWS = 1_000_000  # of which a task holds all at once
_MOST_LISTED = 500_000  # ids in the memory of every task
OnStep = Callable[[PreparationStep], None]


def spark_prepare(
    session: SparkSession,
    source: Source,
    preparation: Preparation,
    folder: Path,
    *,
    parts: int | None = None,
    on_step: OnStep | None = None,
) -> bool:
    """Prepare a table into a folder that `load` reads; return False where it was there already.

    Rows are read and duplicates dropped in stages that are kept until all is done; begun again, the job goes on after
    the last one. `parts` is the number of Parquet files; else Spark's own number of partitions.
    """
    job = {
        "prepare": source.absolute().model_dump(mode="json"),
        "preparation": preparation.model_dump(mode="json"),
        "files": described(input_files(Path(source.data))),
    }
    stages = Stages.of(session, folder, job)
    if is_prepared(folder):
        return False
    with stages.given_up_if_refused(), in_batches(session):
        _prepare(stages, source, preparation, parts, on_step or (lambda _: None))
    return True


def _prepare(stages: Stages, source: Source, preparation: Preparation, parts: int | None, told: OnStep) -> None:
    rows, report = read_rows(stages, source)
    items = None if source.items is None else read_items(Path(source.items), report.columns["item"])
    steps: list[PreparationStep] = []

    def note(name: str, frame: DataFrame) -> DataFrame:
        record(_step(name, frame))
        return frame

    def record(step: PreparationStep) -> None:
        steps.append(step)
        told(step)

    usable = report.rows - report.missing - report.unparsable
    if not usable:
        raise InputError(
            f"Expected interactions in '{source.data}', got no usable row: check the file and its columns."
        )
    column = report.columns.get("rating")
    lowest, returned, late = _extremes(rows)
    added = adds_up(column, lowest)
    unique = stages.frame("unique", lambda: _unique(rows, usable, added=added))
    once = _step(ADDED if added else LATEST, unique)
    record(replace(once, step="rows as read", interactions=usable))  # no user and no item is lost with repetitions
    record(once)
    threshold, scale = _threshold(unique, preparation, source.data, column, added=added)
    kept = unique
    if threshold is not None:
        kept = note(f"rating at least {threshold:g}", kept.where(kept["rating"] >= float(np.float32(threshold))))
    kept = _filter_rare(kept, preparation, steps[-1], record)
    if preparation.even_items and steps[-1].items % 2:
        kept = note("even number of items (least popular one dropped)", _without_rarest(kept))
    if not steps[-1].interactions:
        trail = "; ".join(f"{step.step}: {step.interactions:,}" for step in steps)
        raise InputError(
            f"No interactions of '{source.data}' are left after preparation ({trail}): "
            "lower the rating threshold, the minimum items per user or the minimum users per item."
        )
    stages.ensure("final", lambda: kept if parts is None else kept.repartition(parts, "user"))
    stages.publish(["final"])
    if items is not None:
        items.write_parquet(stages.folder / ITEMS)
    chosen = preparation.model_copy(update={"min_rating": threshold})
    told_of = (
        *preparation_notes(preparation, threshold, scale, steps),
        *return_notes(returned if added else 0),
        *time_notes(late),
    )
    report = replace(report, notes=(*report.notes, *told_of))
    about = Prepared(name=Path(source.data).name, preparation=chosen, steps=tuple(steps), report=report)
    write_prepared(stages.folder, about)
    stages.clear()


def _step(name: str, frame: DataFrame) -> PreparationStep:
    """Count users, items and rows; by two groupings, since distinct counts would send every row over the network."""
    users = _counts(frame, "user").agg(sf.count(sf.lit(1)), sf.sum("n")).first()
    items = _counts(frame, "item").count()
    assert users is not None
    return PreparationStep(name, int(users[0]), items, int(users[1] or 0))


def _counts(rows: DataFrame, role: str) -> DataFrame:
    return rows.groupBy(role).agg(sf.count(sf.lit(1)).alias("n"))


def _unique(rows: DataFrame, count: int, *, added: bool) -> DataFrame:
    """Return one row per user and item, those of a user side by side; `count` is the number of rows as they are.

    Rows go to the partition of their user once, and what is one table there is no work for Spark.
    """
    partitions = max(task_slots(rows.sparkSession), -(-count // _PARTITION_ROWS))
    return rows.repartition(partitions, "user").mapInArrow(_OneRow(added), rows.schema)


@dataclass(frozen=True)
class _OneRow:
    """What a task does with all the rows of its users."""

    added: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = [from_arrow(batch) for batch in batches]
        if parts:
            rows = pl.concat(parts)
            yield from to_arrow((_added(rows) if self.added else _latest(rows)).select(rows.columns))


def _latest(rows: pl.DataFrame) -> pl.DataFrame:
    """Keep one row per user and item: the latest, among equals the one with the highest rating."""
    ordered = rows.sort("user", "item", *(name for name in ("time", "rating") if name in rows.columns))
    return ordered.filter((pl.struct("user", "item") != pl.struct("user", "item").shift(-1)).fill_null(True))


def _added(rows: pl.DataFrame) -> pl.DataFrame:
    """Keep one row per user and item: the sum of its numbers, and the time of the last that is no return."""
    columns = [pl.col("rating").cast(pl.Float64).sum().cast(pl.Float32)]
    if "time" in rows.columns:
        bought = pl.col("time").filter(pl.col("rating") > 0).max()
        columns.append(pl.coalesce(bought, pl.col("time").max()).alias("time"))
    return rows.group_by("user", "item").agg(columns).sort("user", "item")


def _extremes(rows: DataFrame) -> tuple[float, int, int]:
    """Return the lowest rating, 0 where there are none, how many are below 0, and how many rows are of the future."""
    nothing = sf.lit(0)
    rating, late = (sf.col(name) if name in rows.columns else nothing for name in ("rating", "time"))
    below, after = ((where).cast("int") for where in (rating < 0, late > int(time.time())))
    found = rows.agg(sf.min(rating), sf.sum(below), sf.sum(after)).first()
    assert found is not None
    return float(found[0]), int(found[1]), int(found[2])


def _threshold(
    unique: DataFrame, preparation: Preparation, where: str, column: str | None, *, added: bool
) -> tuple[float | None, Scale | None]:
    """Return the rating from which on a row counts, and the scale."""
    if "rating" not in unique.columns:
        threshold = resolve_min_rating(preparation.min_rating, None)
        if threshold is not None:
            raise InputError(f"A rating of at least {threshold:g} is asked for, but '{where}' has no ratings.")
        return None, None
    rating = sf.col("rating")
    whole, one = sf.min((rating == sf.floor(rating)).cast("int")), sf.avg((rating == 1).cast("int"))
    five = sf.avg((rating <= 5).cast("int"))
    found = unique.agg(sf.min(rating), sf.max(rating), sf.min(sf.when(rating > 0, rating)), whole * one, five).first()
    assert found is not None
    low, high, positive, ones, up_to_five = found
    scale = Scale(low, high, positive, ones, up_to_five, column, added)
    return resolve_min_rating(preparation.min_rating, scale), scale


def _filter_rare(rows: DataFrame, choices: Preparation, before: PreparationStep, record: OnStep) -> DataFrame:
    """Drop rare users, then rare items; once, or until nothing changes. `before` are the counts of the rows."""
    users = _counts(rows, "user").persist()
    for round_number in itertools.count(1):
        again = f" (round {round_number})" if round_number > 1 else ""
        by_user, n_users, n_rows = _frequent(rows, users, "user", choices.min_items_per_user)
        items = _counts(by_user, "item").persist()
        name = f"users with at least {choices.min_items_per_user} items{again}"
        users_step = PreparationStep(name, n_users, items.count(), n_rows)
        kept, n_items, n_rows = _frequent(by_user, items, "item", choices.min_users_per_item)
        if choices.k_core:  # else each round would begin at the first
            kept = kept.persist()
        left = _counts(kept, "user").persist()
        name = f"items with at least {choices.min_users_per_item} users{again}"
        items_step = PreparationStep(name, left.count(), n_items, n_rows)
        if round_number > 1 and n_rows == before.interactions:
            break
        record(users_step)
        record(items_step)
        rows, before, users = kept, items_step, left
        if not choices.k_core:
            break
    return rows


def _frequent(rows: DataFrame, counted: DataFrame, role: str, at_least: int) -> tuple[DataFrame, int, int]:
    """Return the rows of users or items that have enough, how many of these there are, and how many rows."""
    n = sf.col("n")
    enough = n >= at_least
    found = counted.agg(sf.count(sf.lit(1)), sf.count(sf.when(enough, 1)), sf.sum(sf.when(enough, n))).first()
    assert found is not None
    total, many, n_rows = (int(number or 0) for number in found)
    if many == total:
        return rows, many, n_rows
    # The shorter list goes to every task; only very long ones are worth sending all rows around for.
    shorter = counted.where(enough if many <= total - many else ~enough).select(role)
    listed = sf.broadcast(shorter) if min(many, total - many) <= _MOST_LISTED else shorter
    return rows.join(listed, role, "leftsemi" if many <= total - many else "leftanti"), many, n_rows


def _without_rarest(rows: DataFrame) -> DataFrame:
    """Drop the item with the fewest rows; among equals the one with the largest id."""
    rarest = _counts(rows, "item").orderBy(sf.col("n").asc(), sf.col("item").desc()).first()
    assert rarest is not None
    return rows.where(sf.col("item") != sf.lit(rarest["item"]))
