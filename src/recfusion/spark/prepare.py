"""Preparation as a Spark job: the steps of `data/prepare.py`, applied to buckets of users."""

import functools
import itertools
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
from pyspark.sql import SparkSession

from recfusion.core.errors import InputError
from recfusion.data.interactions import PreparationStep
from recfusion.data.load import Prepared, is_prepared, write_prepared
from recfusion.data.options import Preparation, Source
from recfusion.data.prepare import ADDED, LATEST, nothing_left, preparation_notes, resolve_min_rating
from recfusion.data.prepared_folder import preparation_job, remove_parts, stages_of
from recfusion.data.rating_scale import Scale, adds_up
from recfusion.data.reading.item_file import read_items
from recfusion.spark.file_parts import BucketedTable, count_buckets, input_files, open_parts, read_parts
from recfusion.spark.task_runner import make_files, run_tasks
from recfusion.spark.user_buckets import Count, Filters, Listed, Unique, Write


def spark_prepare(
    session: SparkSession, source: Source, preparation: Preparation, folder: Path, *, parts: int | None = None
) -> bool:
    """Prepare a table into a folder that `load` reads; return False if it was complete already.

    Parts that were read and buckets without duplicates are kept until the job is done, so that a restarted job resumes.
    `parts` is the number of Parquet files to write; by default one per bucket of users.
    """
    files = input_files(Path(source.data))
    with stages_of(folder, preparation_job(source, preparation, files)) as stages:
        if is_prepared(folder):
            return False
        buckets = max(count_buckets(session, files), parts or 1)
        table = read_parts(session, stages / "pieces", open_parts(source), source, buckets)
        items = None if source.items is None else read_items(Path(source.items), table.report.columns["item"])
        write_prepared(folder, _prepare(session, table, source, preparation, stages, parts), items)
    return True


def _prepare(
    session: SparkSession, table: BucketedTable, source: Source, choices: Preparation, stages: Path, parts: int | None
) -> Prepared:
    """Write the parts of a prepared folder, and return its metadata."""
    steps: list[PreparationStep] = []
    filters, scale, once = _unique(session, table, source, choices, stages)
    counted = _count(session, filters, stages)
    once = replace(once, items=len(counted.items))
    # Removing duplicates loses no user and no item.
    steps += [replace(once, step="rows as read", interactions=int(table.sizes.sum())), once]
    if filters.threshold is not None:
        rated = counted.items["before"].filter(counted.items["before"] > 0)
        steps.append(
            PreparationStep(f"rating at least {filters.threshold:g}", counted.users, len(rated), int(rated.sum()))
        )
    filters, items, last = _filter_rare(session, filters, counted, choices, stages, steps)
    rarest, even = _rarest(items) if choices.even_items and len(items) % 2 else (None, None)
    ends = [step for step in (last, even) if step is not None]
    if not (steps + ends)[-1].interactions:
        raise nothing_left(source.data, steps + ends, scale if choices.min_rating == "auto" else None)
    with_rarest, users = _write(session, filters, rarest, stages.parent, parts)
    for step, left in ((last, with_rarest), (even, users)):
        if step is not None:
            steps.append(replace(step, users=left))
    returned = table.returns if filters.unique.added else 0
    notes = preparation_notes(choices, filters.threshold, scale, steps, returned=returned, late=table.future_rows)
    return Prepared(
        name=Path(source.data).name,
        preparation=choices.model_copy(update={"min_rating": filters.threshold}),
        steps=tuple(steps),
        report=replace(table.report, notes=(*table.report.notes, *notes)),
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


@dataclass(frozen=True)
class _Counted:
    """Counts of what some filters keep."""

    users: int
    frequent: int  # users with enough items
    items: pl.DataFrame  # rows of each item `before` and after (`n`) dropping users with few items


def _count(session: SparkSession, filters: Filters, stages: Path) -> _Counted:
    """Return the counts of what filters keep, from one pass over the buckets."""
    work, buckets = Count(filters, stages / "counts"), filters.unique.table.buckets
    users = run_tasks(session, work, buckets)
    files = [work.file(number) for number in buckets]
    items = pl.scan_parquet(files, glob=False).group_by("item").agg(pl.col("before", "n").sum()).collect()
    return _Counted(sum(all_of for all_of, _ in users), sum(frequent for _, frequent in users), items)


def _filter_rare(
    session: SparkSession,
    filters: Filters,
    counted: _Counted,
    choices: Preparation,
    stages: Path,
    steps: list[PreparationStep],
) -> tuple[Filters, pl.DataFrame, PreparationStep | None]:
    """Drop rare users, then rare items; once, or until nothing changes.

    Returns the filters, the items that stay, and the last step if its users must still be counted.
    """
    last = None
    for round_number in itertools.count(1):
        again = f" (round {round_number})" if round_number > 1 else ""
        if last is not None:
            steps.append(replace(last, users=counted.users))
        items = counted.items.filter(pl.col("n") > 0)
        stay = items.filter(pl.col("n") >= choices.min_users_per_item)
        if last is not None and stay["n"].sum() == last.interactions:
            return filters, stay, None
        name = f"users with at least {choices.min_items_per_user} items{again}"
        steps.append(PreparationStep(name, counted.frequent, len(items), int(items["n"].sum())))
        name = f"items with at least {choices.min_users_per_item} users{again}"
        last = PreparationStep(name, 0, len(stay), int(stay["n"].sum()))
        listed = Listed.of(stages / f"items-{round_number}.parquet", items, choices.min_users_per_item)
        filters = replace(filters, rounds=(*filters.rounds, listed))
        if not choices.k_core:
            break
        counted = _count(session, filters, stages)
    return filters, stay, last


def _rarest(items: pl.DataFrame) -> tuple[int | str, PreparationStep]:
    """Return the item with the fewest rows, of several the one with the largest id, and the step that drops it."""
    rarest, n = items.sort("n", "item", descending=[False, True]).select("item", "n").row(0)
    name = "even number of items (least popular one dropped)"
    return rarest, PreparationStep(name, 0, len(items) - 1, int(items["n"].sum()) - n)


def _write(
    session: SparkSession, filters: Filters, rarest: int | str | None, folder: Path, parts: int | None
) -> tuple[int, int]:
    """Write what filters keep, except one item; return the number of users with and without it."""
    buckets = len(filters.unique.table.buckets)
    files = min(parts or buckets, buckets)
    remove_parts(folder)
    users = run_tasks(session, Write(filters, rarest, folder, files), range(files))
    return sum(before for before, _ in users), sum(after for _, after in users)
