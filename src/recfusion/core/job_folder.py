"""Output folders that belong to one job, which resumes where it stopped."""

import json
from pathlib import Path
from typing import Any

from recfusion.core.errors import InputError
from recfusion.core.files import check_replaceable, read_json, write_json

JOB = "_job.json"  # describes the job that owns the folder; Spark ignores names with an underscore
STAGES = "_stages"  # intermediate results, removed when the job is done


def claim_folder(folder: Path, job: dict[str, Any]) -> None:
    """Claim an output folder for a job; refuse one that another job owns."""
    check_replaceable(folder, JOB)
    document = json.loads(json.dumps(job))
    if (folder / JOB).is_file() and read_json(folder / JOB) != document:
        raise InputError(
            f"The folder '{folder}' holds the work of another job (other input, model or options): name another "
            "folder, or remove it."
        )
    write_json(folder / JOB, document)


def file_stamps(files: list[Path]) -> list[list[Any]]:
    """Return path, size and modification time of files, to detect changed ones."""
    return [[str(file.absolute()), file.stat().st_size, file.stat().st_mtime_ns] for file in files]
