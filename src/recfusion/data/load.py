"""Reads and prepares a data set in one call: a catalog name, a file, a frame, a `Source`, or a prepared folder."""

from contextlib import closing
from dataclasses import replace
from os import PathLike
from pathlib import Path

import polars as pl
from pydantic import BaseModel

from recfusion.core.errors import InputError, validating
from recfusion.core.files import read_json, replacing, write_json
from recfusion.core.job_folder import PARTS
from recfusion.core.parquet import read_parquet
from recfusion.data.catalog import CATALOG, read_named, read_named_users
from recfusion.data.interactions import TEST, TRAIN, VALID, Interactions, PreparationStep, RawData, ReadReport
from recfusion.data.options import PUBLISHED, Preparation, Source
from recfusion.data.prepare import FUTURE, prepare
from recfusion.data.reading.batch_cache import BatchCache
from recfusion.data.reading.database import FetchedRows, is_database
from recfusion.data.reading.formats import ArrowStream, as_frame
from recfusion.data.reading.item_file import read_items
from recfusion.data.reading.reader import OnRows, read_table

PREPARED = "_prepared.json"  # written last: a folder that has it is complete
ITEMS = "_items.parquet"


class Prepared(BaseModel, frozen=True, extra="forbid"):
    """The metadata of a prepared folder."""

    format: int = 1
    name: str
    preparation: Preparation  # as it was carried out
    steps: tuple[PreparationStep, ...]
    report: ReadReport


def load(
    data: str | PathLike[str] | Source | ArrowStream = "ml-latest-small",
    preparation: Preparation | None = None,
    *,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    time: str | None = None,
    items: str | PathLike[str] | ArrowStream | None = None,
    users_file: str | PathLike[str] | None = None,
    feature_columns: str | None = None,
    name: str = "frame",
    max_bad_share: float | None = None,
) -> Interactions:
    """Return the interactions of `data` after preparation; a prepared folder is read as it is.

    `data` may also be a table in memory (see `as_frame`), which `name` names in messages and protocol cards. `user`,
    `item`, `rating` and `time` are columns of a file or frame, guessed if not given. `items` is a table about the
    items, `users_file` one about the users, and `feature_columns` names the columns that become item features.
    """
    frame = described = None
    if isinstance(data, Source):
        start = data.model_dump()
    elif isinstance(data, str | PathLike):
        start = {"data": str(data)}
    else:
        if name in CATALOG or _exists(name):
            raise InputError(f"Expected a name for the frame that no data set and no file has, got '{name}'.", "name")
        frame, start = as_frame(data), {"data": name}
    if items is not None and not isinstance(items, str | PathLike):
        described, items, start["items"] = as_frame(items), None, None
    given: dict[str, object] = {"user": user, "item": item, "rating": rating, "time": time}
    given |= {"items": items and str(items), "users_file": users_file and str(users_file)}
    given |= {"max_bad_share": max_bad_share, "feature_columns": feature_columns}
    with validating("a valid source", show=True):
        source = Source.model_validate(start | {key: value for key, value in given.items() if value is not None})
    if frame is None and source.data not in CATALOG and is_prepared(Path(source.data)):
        _refuse_file_options(source, described)
        return load_prepared(Path(source.data), preparation)
    return prepare(read(source, frame, described), preparation)


def read(
    source: Source,
    frame: pl.DataFrame | FetchedRows | None = None,
    items: pl.DataFrame | None = None,
    *,
    cache: BatchCache | None = None,
    on_rows: OnRows | None = None,
) -> RawData:
    """Return the rows of a source before preparation (see `read_table`); `frame` and `items` stand for its files."""
    if frame is None and source.data in CATALOG:
        _refuse_file_options(source, items)
        published_rows = replace(read_named(source.data), source=source)
        if source.users_file is None:
            return published_rows
        published = source.users_file == PUBLISHED
        users = read_named_users(source.data) if published else read_users(source.users_file, None, source.data)
        return replace(published_rows, source=source.shown(), users=users)
    if frame is None and is_database(source.data):
        with closing(FetchedRows(source.data, source.query)) as rows:
            named = source.model_copy(update={"data": source.label})  # without a password
            return read(named, rows, items, cache=cache, on_rows=on_rows)
    if source.query is not None and not isinstance(frame, FetchedRows):
        raise InputError("--query is for a database as --data, such as postgresql://HOST/NAME: leave it out.", "query")
    given = _given_files(source)
    absent = [file for file in (*source.files, *given) if not _exists(file)] if frame is None else []
    if absent:
        if absent[0] != source.data or Path(source.data).suffix:
            kind = {source.valid_file: "valid_file", source.test_file: "test_file"}.get(absent[0], "data")
            option = kind.replace("_", "-")
            raise InputError(f"Expected a file at '{absent[0]}', got nothing: name it with --{option}.", kind)
        raise InputError(
            f"'{source.data}' is neither a data set of the catalog ({', '.join(CATALOG)}) nor a file: name it with "
            "--data, or, if it was made from a frame in memory: pass the frame again.",
            "data",
        )
    if source.users_file is not None:  # fail before reading the rows
        _check_users_file(source.users_file, source.data)
    files = [] if frame is not None else [Path(file) for file in (*source.files, *given)]
    origin = frame if frame is not None else files[0] if len(files) == 1 else files
    parts = (*([TRAIN] * len(source.files)), *given.values()) if given else ()
    raw = read_table(origin, source, coded=True, cache=cache, on_rows=on_rows, parts_of_files=parts)
    described = Path(source.items) if items is None and source.items is not None else items
    known = raw.ids.get("item", raw.rows["item"])
    table = None if described is None else read_items(described, raw.report.columns["item"], source=source, known=known)
    if source.users_file is not None:
        raw = replace(raw, users=read_users(source.users_file, raw.report.columns["user"], source.data, source))
    written = described.stat().st_mtime if isinstance(described, Path) else None
    return replace(raw, items=table, source=source.shown(), items_time=written)


def _given_files(source: Source) -> dict[str, int]:
    """Return the validation and test files of a given split with their parts."""
    if source.valid_file is not None and source.test_file is None:
        raise InputError("Expected a test file beside --valid-file, got none: add --test-file.", "test_file")
    files = {source.valid_file: VALID, source.test_file: TEST}
    return {file: part for file, part in files.items() if file is not None}


def read_users(file: str, column: str | None, data: str, source: Source | None = None) -> pl.DataFrame:
    """Return a table about the users of `data`, one row each; `column` is the name of the user column there."""
    _check_users_file(file, data)
    return read_items(Path(file), column, source=source, role="user")


def _check_users_file(file: str, data: str) -> None:
    if file == PUBLISHED:
        raise InputError(
            f"--users-file {PUBLISHED} means the table of users of ml-100k and ml-1m, and '{data}' is neither: "
            "name a file with a row per user.",
            "users_file",
        )
    if not _exists(file):
        raise InputError(f"Expected a file of users at '{file}', got nothing: name it with --users-file.", "users_file")


def is_prepared(path: Path) -> bool:
    """Return whether a folder holds a complete prepared data set."""
    try:
        return (path / PREPARED).is_file()
    except OSError:  # a name too long, or no permission
        return False


def write_prepared(folder: Path, about: Prepared, items: pl.DataFrame | None) -> None:
    """Write the table of items and the metadata, which completes a prepared folder."""
    if items is not None:
        with replacing(folder / ITEMS) as beside:
            items.write_parquet(beside)
    write_json(folder / PREPARED, about.model_dump(mode="json"))


def read_about(folder: Path) -> Prepared:
    """Return the metadata of a prepared folder."""
    with validating(f"a prepared data set in '{folder}'", "prepare it again"):
        return Prepared.model_validate(read_json(folder / PREPARED))


def load_prepared(folder: Path, asked: Preparation | None = None) -> Interactions:
    """Return the interactions of a prepared folder; raise if `asked` is another preparation than its own."""
    about = read_about(folder)
    if asked not in (None, Preparation(), about.preparation):
        raise InputError(
            f"The data in '{folder}' was prepared with {about.preparation!r}: leave out the options of preparation, or "
            "prepare it again with them."
        )
    try:
        rows = pl.concat([read_parquet(part) for part in sorted(folder.glob(PARTS))] or [pl.DataFrame()])
        items = read_parquet(folder / ITEMS) if (folder / ITEMS).is_file() else None
        written = None if items is None else (folder / ITEMS).stat().st_mtime
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(f"Cannot read the prepared data in '{folder}': {error}; prepare it again.") from None
    # Nothing is filtered here: ids become rows and columns.
    raw = RawData(about.name, rows, items, about.report, source=Source(data=str(folder)).shown(), items_time=written)
    found = prepare(raw, Preparation(min_rating=None, min_items_per_user=0, min_users_per_item=0))
    new = found.report.notes[len(about.report.notes) :]
    # Rows of the future were counted at the preparation, when no row was dropped yet.
    notes = (*about.report.notes, *(note for note in new if not note.startswith(FUTURE)))
    report = replace(found.report, notes=notes)
    return replace(found, preparation=about.preparation, steps=about.steps, report=report)


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError as error:
        raise InputError(f"Cannot read '{path}': {error.strerror}.") from None


def _refuse_file_options(source: Source, items: pl.DataFrame | None) -> None:
    files = ("items", "valid_file", "test_file")
    for name in ("user", "item", "rating", "time", "rows", "separator", "encoding", "date_format", *files):
        if getattr(source, name) is not None or (name == "items" and items is not None):
            option = f"--{name.replace('_', '-')}"
            raise InputError(
                f"The columns of '{source.data}' are known: leave out {option}, it is for your files.", name
            )
