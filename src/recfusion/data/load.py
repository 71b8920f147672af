"""Reading and preparing a data set in one call: a catalog name, a file, or a `Source` that names a file's columns."""

from dataclasses import replace
from pathlib import Path

from recfusion.core.errors import InputError
from recfusion.data.catalog import CATALOG
from recfusion.data.catalog import load as load_named
from recfusion.data.interactions import Interactions
from recfusion.data.prepare import prepare
from recfusion.data.prepared import is_prepared, load_prepared
from recfusion.data.raw import RawData
from recfusion.data.readers import read_items, read_table
from recfusion.data.settings import Preparation, Source


def load(data: str | Path | Source = "ml-latest-small", preparation: Preparation | None = None) -> Interactions:
    """Return the interactions of `data` after preparation; a folder that was prepared before is read as it is."""
    source = data if isinstance(data, Source) else Source(data=str(data))
    if source.data not in CATALOG and is_prepared(Path(source.data)):
        _refuse_file_options(source)
        return load_prepared(Path(source.data), preparation)
    return prepare(read(source), preparation)


def read(source: Source) -> RawData:
    """Return the rows of a source as read, before any preparation."""
    if source.data in CATALOG:
        _refuse_file_options(source)
        return replace(load_named(source.data), source=source)
    path = Path(source.data)
    if not path.exists() and not path.suffix:
        raise InputError(
            f"'{source.data}' is neither a data set of the catalog ({', '.join(CATALOG)}) nor a file: check the name."
        )
    raw = read_table(
        path,
        user=source.user,
        item=source.item,
        rating=source.rating,
        time=source.time,
        separator=source.separator,
        max_bad_share=source.max_bad_share,
    )
    items = None if source.items is None else read_items(Path(source.items), raw.report.columns["item"])
    return replace(raw, items=items, source=source.absolute())


def _refuse_file_options(source: Source) -> None:
    for name in ("user", "item", "rating", "time", "separator", "items"):
        if getattr(source, name) is not None:
            raise InputError(f"The columns of '{source.data}' are known: leave out --{name}, it is for your own files.")
