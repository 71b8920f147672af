"""Output folders that belong to one job, which resumes where it stopped."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from typing import Any

from recfusion.core.errors import InputError, TaskError, WriteError
from recfusion.core.files import check_replaceable, read_json, write_json

JOB = "_job.json"  # describes the job that owns the folder; Spark ignores names with an underscore
PARTS = "part-*.parquet"  # the output
_STAGES = "_stages"  # intermediate files, removed when the job is done


@contextmanager
def stages_of(folder: Path, job: dict[str, Any]) -> Iterator[Path]:
    """Yield the folder for a job's intermediate files, removed if the block succeeds; refuse a folder of another job.

    After an error about the input or options nothing is left behind, so that the corrected job may use the folder.
    """
    check_replaceable(folder, JOB)
    document = json.loads(json.dumps(job))
    if (folder / JOB).is_file() and read_json(folder / JOB) != document:
        raise InputError(
            f"The folder '{folder}' holds the work of another job (other input, model or options): name another "
            "folder, or remove it."
        )
    write_json(folder / JOB, document)
    try:
        yield folder.absolute() / _STAGES  # Spark tasks run in another folder
    except (TaskError, WriteError):
        raise
    except InputError:
        rmtree(folder / _STAGES, ignore_errors=True)
        if not any(folder.glob(PARTS)):
            (folder / JOB).unlink(missing_ok=True)
        raise
    rmtree(folder / _STAGES, ignore_errors=True)


def remove_parts(folder: Path) -> None:
    """Remove the parts that an interrupted run wrote."""
    for left in folder.glob(PARTS):
        left.unlink()


def file_stamps(files: list[Path]) -> list[list[Any]]:
    """Return path, size and modification time of files, to detect changed ones."""
    return [[str(file.absolute()), file.stat().st_size, file.stat().st_mtime_ns] for file in files]
