"""Prepares a table into a folder that loads quickly; a restarted preparation resumes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
import polars as pl

from recfusion.core.arrays import row_numbers
from recfusion.core.errors import InputError, TaskError, WriteError
from recfusion.core.files import replacing
from recfusion.core.job_folder import JOB, STAGES, claim_folder, file_stamps
from recfusion.data.catalog import CATALOG
from recfusion.data.interactions import Interactions
from recfusion.data.load import PARTS, Prepared, is_prepared, read, write_prepared
from recfusion.data.options import Preparation, Source
from recfusion.data.prepare import prepare
from recfusion.data.reading.batch_cache import BatchCache

_PART_ROWS = 1 << 22


def prepare_folder(
    source: Source, preparation: Preparation, folder: Path, *, on_rows: Callable[[int], None] | None = None
) -> bool:
    """Prepare a table into a folder that `load` reads; return False if it was complete already.

    Parsed batches are kept until the folder is complete, because reading takes the longest.
    """
    if source.data in CATALOG:
        raise InputError(f"'{source.data}' is prepared as it is read: name a file of your own with --data.", "data")
    if source.users_file is not None:
        raise InputError("A prepared folder holds no table of users: leave out --users-file here.", "users_file")
    files = [Path(name) for name in (source.data, source.items) if name is not None and Path(name).is_file()]
    with stages_of(folder, preparation_job(source, preparation, files)) as stages:
        if is_prepared(folder):
            return False
        raw = read(source, cache=BatchCache(stages), on_rows=on_rows)
        data = prepare(replace(raw, items=None), preparation)  # notes about items are made when the folder is loaded
        _write_rows(data, folder)
        about = Prepared(name=data.name, preparation=data.preparation, steps=data.steps, report=data.report)
        write_prepared(folder, about, raw.items)
    return True


def preparation_job(source: Source, preparation: Preparation, files: list[Path]) -> dict[str, Any]:
    """Return the description of a preparation; a folder of another one is refused."""
    options = {"prepare": source.absolute(), "preparation": preparation}
    return {name: record.model_dump(mode="json") for name, record in options.items()} | {"files": file_stamps(files)}


@contextmanager
def stages_of(folder: Path, job: dict[str, Any]) -> Iterator[Path]:
    """Yield the folder for a job's intermediate files, removed if the block succeeds; refuse a folder of another job.

    After an error about the input or options nothing is left behind, so that the corrected job may use the folder.
    """
    claim_folder(folder, job)
    try:
        yield folder.absolute() / STAGES  # Spark tasks run in another folder
    except (TaskError, WriteError):
        raise
    except InputError:
        rmtree(folder / STAGES, ignore_errors=True)
        if not any(folder.glob(PARTS)):
            (folder / JOB).unlink(missing_ok=True)
        raise
    rmtree(folder / STAGES, ignore_errors=True)


def remove_parts(folder: Path) -> None:
    """Remove the parts that an interrupted run wrote."""
    for left in folder.glob(PARTS):
        left.unlink()


def _write_rows(data: Interactions, folder: Path) -> None:
    """Write the interactions with their ids, and ratings and times if there are any."""
    remove_parts(folder)
    rows = row_numbers(data.matrix)
    for number, start in enumerate(range(0, data.n_interactions, _PART_ROWS)):
        part = slice(start, start + _PART_ROWS)
        columns = {"user": data.users.gather(rows[part].astype(np.uint32))}
        columns["item"] = data.items.gather(data.matrix.indices[part].astype(np.uint32))
        columns |= {} if data.grades is None else {"rating": pl.Series(data.grades[part])}
        columns |= {} if data.times is None else {"time": pl.Series(data.times[part])}
        with replacing(folder / f"part-{number:05d}.parquet") as beside:
            pl.DataFrame(columns).write_parquet(beside)
