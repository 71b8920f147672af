"""Output folders that belong to one job, which goes on where it stopped."""

import json
from pathlib import Path
from typing import Any

from recfusion.core.errors import InputError
from recfusion.core.files import check_replaceable, read_json, write_json

JOB = "_job.json"  # says which job a folder belongs to; names with an underscore are no data for Spark
STAGES = "_stages"  # what is kept until the job is done


def claim(folder: Path, job: dict[str, Any]) -> None:
    """Make a folder that of a job; another job's is refused."""
    check_replaceable(folder, JOB)
    asked = json.loads(json.dumps(job))
    if (folder / JOB).is_file() and read_json(folder / JOB) != asked:
        raise InputError(
            f"The folder '{folder}' holds the work of another job (other input, model or options): name another "
            "folder, or remove it."
        )
    write_json(folder / JOB, asked)


def described(files: list[Path]) -> list[list[Any]]:
    """Return what tells files from changed ones: name, size and time."""
    return [[str(file.absolute()), file.stat().st_size, file.stat().st_mtime_ns] for file in files]
