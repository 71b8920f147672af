"""Reading and preparing a data set in one call: a catalog name, a file, a frame, or a `Source` that names columns."""

from dataclasses import replace
from os import PathLike
from pathlib import Path

import polars as pl
from pydantic import ValidationError

from recfusion.core.errors import InputError
from recfusion.data.catalog import CATALOG, read_named
from recfusion.data.interactions import Interactions, RawData
from recfusion.data.item_file import read_items
from recfusion.data.prepare import prepare
from recfusion.data.prepared_folder import is_prepared, load_prepared
from recfusion.data.readers import read_table
from recfusion.data.settings import Preparation, Source
from recfusion.data.tables import ArrowStream, as_frame


def load(
    data: str | PathLike[str] | Source | ArrowStream = "ml-latest-small",
    preparation: Preparation | None = None,
    *,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    time: str | None = None,
    items: str | PathLike[str] | ArrowStream | None = None,
    name: str = "frame",
    max_bad_share: float | None = None,
) -> Interactions:
    """Return the interactions of `data` after preparation; a folder that was prepared before is read as it is.

    `data` may also be a table in memory (see `as_frame`), which `name` names in messages and protocol cards. `user`,
    `item`, `rating` and `time` are columns of a file or frame, guessed where not given; `items` is a second table
    with what is known of the items.
    """
    given: dict[str, object] = {"user": user, "item": item, "rating": rating, "time": time}
    given |= {"items": items, "max_bad_share": max_bad_share}
    frame = described = None
    if isinstance(data, Source):
        start = data.model_dump()
    elif isinstance(data, str | PathLike):
        start = {"data": str(data)}
    else:
        if name in CATALOG or _exists(name):
            raise InputError(f"Expected a name for the frame that no data set and no file has, got '{name}'.")
        frame, start = as_frame(data), {"data": name}
    if isinstance(items, PathLike):
        given["items"] = str(items)
    elif items is not None and not isinstance(items, str):
        described, given["items"], start["items"] = as_frame(items), None, None
    try:
        source = Source.model_validate(start | {key: value for key, value in given.items() if value is not None})
    except ValidationError as error:
        wrong = error.errors()[0]
        raise InputError(
            f"Expected another {wrong['loc'][0]}: {wrong['msg'].lower()}, got {wrong['input']!r}."
        ) from None
    if frame is None and source.data not in CATALOG and is_prepared(Path(source.data)):
        _refuse_file_options(source, described)
        return load_prepared(Path(source.data), preparation)
    return prepare(read(source, frame, described), preparation)


def read(source: Source, frame: pl.DataFrame | None = None, items: pl.DataFrame | None = None) -> RawData:
    """Return the rows of a source as read, before any preparation; `frame` and `items` stand for its files."""
    if frame is None and source.data in CATALOG:
        _refuse_file_options(source, items)
        return replace(read_named(source.data), source=source)
    if frame is None and not _exists(source.data):
        if Path(source.data).suffix:
            raise InputError(f"Expected a file at '{source.data}', got nothing: name it with --data.")
        raise InputError(
            f"'{source.data}' is neither a data set of the catalog ({', '.join(CATALOG)}) nor a file: name it with "
            "--data, or, if it was made from a frame in memory: pass the frame again."
        )
    raw = read_table(Path(source.data) if frame is None else frame, source)
    described = Path(source.items) if items is None and source.items is not None else items
    table = None if described is None else read_items(described, raw.report.columns["item"])
    return replace(raw, items=table, source=source.shown())


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError as error:
        raise InputError(f"Cannot read '{path}': {error.strerror}.") from None


def _refuse_file_options(source: Source, items: pl.DataFrame | None) -> None:
    for name in ("user", "item", "rating", "time", "separator", "items"):
        if getattr(source, name) is not None or (name == "items" and items is not None):
            raise InputError(f"The columns of '{source.data}' are known: leave out --{name}, it is for your own files.")
