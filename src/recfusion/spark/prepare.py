"""Preparation as a Spark job: the steps of `data/prepare.py`, applied to buckets of users."""

import functools
import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from pyspark.sql import SparkSession

from recfusion.core.errors import InputError
from recfusion.core.files import replacing
from recfusion.core.job_folder import remove_parts, stages_of
from recfusion.core.parquet import read_parquet
from recfusion.data.interactions import PreparationStep
from recfusion.data.load import Prepared, is_prepared, write_prepared
from recfusion.data.options import Preparation, Source
from recfusion.data.prepare import ADDED, LATEST, nothing_left, preparation_notes, resolve_min_rating
from recfusion.data.prepared_folder import preparation_job
from recfusion.data.rating_scale import Scale, adds_up
from recfusion.data.reading.item_file import read_items
from recfusion.spark.file_parts import BucketedTable, count_buckets, input_files, open_parts, read_parts
from recfusion.spark.task_runner import make_files, run_tasks
from recfusion.spark.user_buckets import Count, Filters, Unique, Write


def spark_prepare(
    session: SparkSession, source: Source, preparation: Preparation, folder: Path, *, parts: int | None = None
) -> bool:
    """Prepare a table into `parts` Parquet files (default: one per bucket); return False if that was done before."""
    files = input_files(Path(source.data))
    with stages_of(folder, preparation_job(source, preparation, files)) as stages:
        if is_prepared(folder):
            return False
        buckets = max(count_buckets(session, files), parts or 1)
        table = read_parts(session, stages / "pieces", open_parts(source), source, buckets)
        items = (
            None
            if source.items is None
            else read_items(Path(source.items), table.report.columns["item"], source=source)
        )
        write_prepared(folder, _prepare(session, table, source, preparation, stages, parts), items)
    return True


def _prepare(
    session: SparkSession, table: BucketedTable, source: Source, choices: Preparation, stages: Path, parts: int | None
) -> Prepared:
    """Write the parts of a prepared folder, and return its metadata."""
    filters, scale, once = _unique(session, table, source, choices, stages)
    filters, items, steps, last = _filter(session, filters, once, choices, stages)
    rarest, even = None, None
    if choices.even_items and len(items) % 2:  # of several the one with the largest id
        rarest, n = items.sort("n", "item", descending=[False, True]).select("item", "n").row(0)
        name = "even number of items (least popular one dropped)"
        even = PreparationStep(name, 0, len(items) - 1, int(items["n"].sum()) - n)
    ends = [step for step in (last, even) if step is not None]
    returned = table.returns if filters.unique.added else 0
    about = functools.partial(
        preparation_notes, choices, filters.threshold, scale, returned=returned, late=table.future_rows
    )
    if not (steps + ends)[-1].interactions:
        raise nothing_left(source.data, steps + ends, about(steps + ends))
    remove_parts(stages.parent)
    files = min(parts or len(table.buckets), len(table.buckets))
    users = run_tasks(session, Write(filters, rarest, stages.parent, files), range(files))
    for step, left in zip((last, even), np.sum(users, axis=0).tolist(), strict=True):
        if step is not None:
            steps.append(replace(step, users=left))
    return Prepared(
        name=Path(source.data).name,
        preparation=choices.model_copy(update={"min_rating": filters.threshold}),
        steps=tuple(steps),
        report=replace(table.report, notes=(*table.report.notes, *about(steps))),
    )


def _unique(
    session: SparkSession, table: BucketedTable, source: Source, choices: Preparation, stages: Path
) -> tuple[Filters, Scale | None, PreparationStep]:
    """Remove duplicates; return the first filters, the scale, and the step without its number of items."""
    if not table.buckets:
        raise InputError(
            f"Expected interactions in '{source.data}', got no usable row: check the file and its columns."
        )
    column = table.report.columns.get("rating")
    added = adds_up(column, table.lowest_rating)
    unique = Unique(table, stages / "distinct", added)
    found = make_files(session, unique, {unique.file(number): number for number in table.buckets})
    scales = [Scale(**of["scale"]) for of in found if of["scale"] is not None]
    scale = functools.reduce(Scale.__add__, scales) if scales else None
    threshold = resolve_min_rating(choices.min_rating, scale, source.data)
    users, rows = (sum(of[name] for of in found) for name in ("users", "rows"))
    step = PreparationStep(ADDED if added else LATEST, users, 0, rows)
    return Filters(unique, threshold, choices.min_items_per_user), scale, step


def _added(counts: pl.DataFrame, more: pl.DataFrame) -> pl.DataFrame:
    """Return the counts of items in two tables, added up."""
    return pl.concat([counts, more]).group_by("item").agg(pl.col("before", "n").sum())


def _filter(
    session: SparkSession, filters: Filters, once: PreparationStep, choices: Preparation, stages: Path
) -> tuple[Filters, pl.DataFrame, list[PreparationStep], PreparationStep | None]:
    """Count the rows, drop rare users, then rare items; once, or until nothing changes.

    Returns the filters, the items that stay, the steps, and the last step if its users must still be counted.
    """
    work, table = Count(filters, stages / "counts"), filters.unique.table
    steps, last = [], None
    for round_number in itertools.count(1):
        again = f" (round {round_number})" if round_number > 1 else ""
        users, frequent = np.sum(run_tasks(session, replace(work, filters=filters), table.buckets), axis=0).tolist()
        files = [work.file(number) for number in table.buckets]
        counts = functools.reduce(_added, map(read_parquet, files))
        if last is not None:
            steps.append(replace(last, users=users))
        else:  # removing duplicates loses no user and no item
            once = replace(once, items=len(counts))
            steps += [replace(once, step="rows as read", interactions=int(table.sizes.sum())), once]
        if last is None and filters.threshold is not None:
            rated = counts["before"].filter(counts["before"] > 0)
            steps.append(PreparationStep(f"rating at least {filters.threshold:g}", users, len(rated), int(rated.sum())))
        items = counts.filter(pl.col("n") > 0)
        stay = items.filter(pl.col("n") >= choices.min_users_per_item)
        if last is not None and stay["n"].sum() == last.interactions:
            return filters, stay, steps, None
        name = f"users with at least {choices.min_items_per_user} items{again}"
        steps.append(PreparationStep(name, frequent, len(items), int(items["n"].sum())))
        name = f"items with at least {choices.min_users_per_item} users{again}"
        last = PreparationStep(name, 0, len(stay), int(stay["n"].sum()))
        listed = stages / f"stay-{round_number}.parquet"
        with replacing(listed) as beside:
            stay.select("item").write_parquet(beside)
        filters = replace(filters, rounds=(*filters.rounds, listed))
        if not choices.k_core:
            break
    return filters, stay, steps, last
