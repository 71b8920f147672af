"""Jobs on a Spark cluster: tuning trials, preparation, training, recommending. Only this package needs pyspark."""

import re

from recfusion.core.errors import InputError
from recfusion.data.reading.database import shown_address


def check_path(source: str) -> None:
    """Raise if `source` is an address such as s3://..., not a path."""
    if re.match(r"\w{2,}:/", source):  # a single letter is a Windows drive
        raise InputError(
            "Expected a path that every machine sees under the same name, got the address "
            f"'{shown_address(source)}': mount the storage first.",
            "data",
        )
