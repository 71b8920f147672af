"""Preparation as a Spark job: the same steps as in `data/prepare.py`, from CSV or Parquet to partitioned Parquet."""

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from recfusion.core.errors import InputError
from recfusion.data.interactions import PreparationStep
from recfusion.data.load import ITEMS, Prepared, is_prepared, write_prepared
from recfusion.data.prepare import ADDED, LATEST, preparation_notes, resolve_min_rating, return_notes, time_notes
from recfusion.data.readers import read_items
from recfusion.data.scale import Scale, adds_up
from recfusion.data.settings import Preparation, Source
from recfusion.spark.rows import input_files, read_rows
from recfusion.spark.stages import Stages, described

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
    with stages.given_up_if_refused():
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

    note("rows as read", rows)
    if not steps[0].interactions:
        raise InputError(
            f"Expected interactions in '{source.data}', got no usable row: check the file and its columns."
        )
    column = report.columns.get("rating")
    lowest, returned = _returns(rows)
    added = adds_up(column, lowest)
    unique = stages.frame("unique", lambda: _added(rows) if added else _latest(rows))
    note(ADDED if added else LATEST, unique)
    threshold, scale = _threshold(unique, preparation, source.data, column, added=added)
    kept = unique
    if threshold is not None:
        kept = note(f"rating at least {threshold:g}", kept.where(kept["rating"] >= float(np.float32(threshold))))
    kept = _filter_rare(kept, preparation, steps[-1].interactions, record)
    if preparation.even_items and steps[-1].items % 2:
        kept = note("even number of items (least popular one dropped)", _without_rarest(kept))
    if not steps[-1].interactions:
        trail = "; ".join(f"{step.step}: {step.interactions:,}" for step in steps)
        raise InputError(
            f"No interactions of '{source.data}' are left after preparation ({trail}): "
            "lower the rating threshold, the minimum items per user or the minimum users per item."
        )
    stages.ensure("final", lambda: _in_order(kept, parts))
    stages.publish(["final"])
    if items is not None:
        items.write_parquet(stages.folder / ITEMS)
    chosen = preparation.model_copy(update={"min_rating": threshold})
    told_of = (
        *preparation_notes(preparation, threshold, scale, steps),
        *return_notes(returned if added else 0),
        *time_notes(_late(rows)),
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


def _latest(rows: DataFrame) -> DataFrame:
    """Keep one row per user and item: the latest, among equals the one with the highest rating."""
    deciding = [name for name in ("time", "rating") if name in rows.columns]
    if not deciding:
        return rows.distinct()
    kept = rows.groupBy("user", "item").agg(sf.max(sf.struct(*deciding)).alias("kept"))
    return kept.select("user", "item", *(sf.col("kept")[name].alias(name) for name in deciding))


def _returns(rows: DataFrame) -> tuple[float, int]:
    """Return the lowest rating, 0 where there are none, and how many are below 0."""
    if "rating" not in rows.columns:
        return 0.0, 0
    rating = sf.col("rating")
    found = rows.agg(sf.min(rating), sf.sum((rating < 0).cast("int"))).first()
    assert found is not None
    return float(found[0]), int(found[1])


def _late(rows: DataFrame) -> int:
    """Return how many rows are of the future."""
    return rows.where(rows["time"] > int(time.time())).count() if "time" in rows.columns else 0


def _added(rows: DataFrame) -> DataFrame:
    """Keep one row per user and item: the sum of its numbers, and the time of the last that is no return."""
    rating = sf.col("rating")
    columns = [sf.sum(rating.cast("double")).cast("float").alias("rating")]
    if "time" in rows.columns:
        columns.append(sf.max(sf.struct((rating > 0).alias("kept"), sf.col("time")))["time"].alias("time"))
    return rows.groupBy("user", "item").agg(*columns)


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


def _filter_rare(rows: DataFrame, choices: Preparation, before: int, record: OnStep) -> DataFrame:
    """Drop rare users, then rare items; once, or until nothing changes. `before` is the number of rows."""
    for round_number in itertools.count(1):
        again = f" (round {round_number})" if round_number > 1 else ""
        by_user = _frequent(rows, "user", choices.min_items_per_user).persist()
        users_step = _step(f"users with at least {choices.min_items_per_user} items{again}", by_user)
        kept = _frequent(by_user, "item", choices.min_users_per_item).persist()
        items_step = _step(f"items with at least {choices.min_users_per_item} users{again}", kept)
        by_user.unpersist()
        if round_number > 1 and items_step.interactions == before:
            break
        record(users_step)
        record(items_step)
        rows, before = kept, items_step.interactions
        if not choices.k_core:
            break
    return rows


def _frequent(rows: DataFrame, role: str, at_least: int) -> DataFrame:
    enough = _counts(rows, role).where(sf.col("n") >= at_least).select(role)
    return rows.join(enough, role, "leftsemi")


def _without_rarest(rows: DataFrame) -> DataFrame:
    """Drop the item with the fewest rows; among equals the one with the largest id."""
    rarest = _counts(rows, "item").orderBy(sf.col("n").asc(), sf.col("item").desc()).first()
    assert rarest is not None
    return rows.where(sf.col("item") != sf.lit(rarest["item"]))


def _in_order(rows: DataFrame, parts: int | None) -> DataFrame:
    """Return the rows in partitions of neighbouring users, sorted within."""
    ranged = rows.repartitionByRange("user") if parts is None else rows.repartitionByRange(parts, "user")
    return ranged.sortWithinPartitions("user", "item")
