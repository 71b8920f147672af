"""Prepares a table into a folder that loads quickly; a restarted preparation resumes."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from recfusion.core.errors import InputError
from recfusion.core.files import replacing
from recfusion.core.job_folder import file_stamps, remove_parts, stages_of
from recfusion.data.catalog import CATALOG
from recfusion.data.interactions import Interactions
from recfusion.data.load import Prepared, is_prepared, read, write_prepared
from recfusion.data.merge import entry_rows
from recfusion.data.options import Preparation, Source
from recfusion.data.prepare import prepare
from recfusion.data.reading.batch_cache import BatchCache

_PART_ROWS = 1 << 22


def prepare_folder(
    source: Source, preparation: Preparation, folder: Path, *, on_rows: Callable[[int], None] | None = None
) -> bool:
    """Prepare a table into a folder that `load` reads; return False if it was complete already."""
    if source.data in CATALOG:
        raise InputError(f"'{source.data}' is prepared as it is read: name a file of your own with --data.", "data")
    if source.users_file is not None:
        raise InputError("A prepared folder holds no table of users: leave out --users-file here.", "users_file")
    files = [Path(name) for name in (*source.files, source.items) if name is not None and Path(name).is_file()]
    with stages_of(folder, preparation_job(source, preparation, files)) as stages:
        if is_prepared(folder):
            return False
        raw = read(source, cache=BatchCache(stages), on_rows=on_rows)  # reading takes the longest
        data = prepare(replace(raw, items=None), preparation)  # notes about items are made when the folder is loaded
        _write_rows(data, folder)
        about = Prepared(name=data.name, preparation=data.preparation, steps=data.steps, report=data.report)
        write_prepared(folder, about, raw.items)
    return True


def preparation_job(source: Source, preparation: Preparation, files: list[Path]) -> dict[str, Any]:
    """Return the description of a preparation; a folder of another one is refused."""
    options = {"prepare": source.absolute(), "preparation": preparation}
    return {name: record.model_dump(mode="json") for name, record in options.items()} | {"files": file_stamps(files)}


def _write_rows(data: Interactions, folder: Path) -> None:
    """Write the interactions with their ids, and ratings and times if there are any."""
    remove_parts(folder)
    for number, start in enumerate(range(0, data.n_interactions, _PART_ROWS)):
        with replacing(folder / f"part-{number:05d}.parquet") as beside:
            entry_rows(data, slice(start, start + _PART_ROWS)).write_parquet(beside)
