"""A prepared data set as a folder of Parquet, as `recfusion spark prepare` writes it: read without preparing again."""

from dataclasses import replace
from pathlib import Path

import polars as pl
from pydantic import BaseModel, ValidationError

from recfusion.core.errors import InputError
from recfusion.core.files import check_regular, read_json, write_json
from recfusion.data.interactions import Interactions, PreparationStep, RawData, ReadReport
from recfusion.data.prepare import prepare
from recfusion.data.settings import Preparation, Source

PREPARED = "_prepared.json"  # written last: a folder that has it is complete
ITEMS = "_items.parquet"
PARTS = "part-*.parquet"


class Prepared(BaseModel, frozen=True, extra="forbid"):
    """What is known of a prepared folder beside its rows."""

    format: int = 1
    name: str
    preparation: Preparation  # as it was carried out
    steps: tuple[PreparationStep, ...]
    report: ReadReport


def is_prepared(path: Path) -> bool:
    """Return whether a folder holds a whole prepared data set."""
    try:
        return (path / PREPARED).is_file()
    except OSError:  # a name that is too long, a folder that may not be entered
        return False


def write_prepared(folder: Path, about: Prepared) -> None:
    """Complete a folder whose parts are there."""
    write_json(folder / PREPARED, about.model_dump(mode="json"))


def load_prepared(folder: Path, asked: Preparation | None = None) -> Interactions:
    """Return the interactions of a prepared folder; they equal those of the file that it was prepared from.

    It cannot be prepared otherwise: an `asked` preparation that is neither the usual one nor its own is an error.
    """
    try:
        about = Prepared.model_validate(read_json(folder / PREPARED))
    except ValidationError as error:
        raise InputError(
            f"Expected a prepared data set in '{folder}': {error.errors()[0]['msg'].lower()}; prepare it again."
        ) from None
    if asked not in (None, Preparation(), about.preparation):
        raise InputError(
            f"The data in '{folder}' was prepared with {about.preparation!r}: leave out the options of preparation, or "
            "prepare it again with them."
        )
    try:
        parts = sorted(folder.glob(PARTS))
        for part in parts:
            check_regular(part)
        rows = pl.read_parquet(parts, glob=False)
        items = pl.read_parquet(folder / ITEMS, glob=False) if (folder / ITEMS).is_file() else None
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(f"Cannot read the prepared data in '{folder}': {error}; prepare it again.") from None
    # Nothing is filtered here: ids become rows and columns, in their order.
    raw = RawData(about.name, rows, items, about.report, source=Source(data=str(folder)).shown())
    found = prepare(raw, Preparation(min_rating=None, min_items_per_user=0, min_users_per_item=0))
    return replace(found, preparation=about.preparation, steps=about.steps)
