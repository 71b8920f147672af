"""Work on a Spark cluster: trials of a search, preparing tables, recommending to many. Only this room needs pyspark."""

import re

from recfusion.core.errors import InputError


def check_path(source: str) -> None:
    """Raise where `source` is the address of a storage, and no path."""
    if re.match(r"\w{2,}:/", source):  # a single letter is a drive
        raise InputError(
            f"Expected a path that every machine sees under the same name, got the address '{source}': mount the "
            "storage first."
        )
