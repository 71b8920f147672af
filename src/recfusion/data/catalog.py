"""The data sets known by name: where they come from, under which terms, where they lie on this machine, how to load."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Literal

import polars as pl

from recfusion.core.errors import InputError, choices
from recfusion.data.archive import Archive, md5_of, reading
from recfusion.data.published import MovieLensLayout, is_netflix_folder, read_movielens, read_netflix
from recfusion.data.raw import RawData, ReadReport

Layout = MovieLensLayout | Literal["embedded", "netflix"]

_PUBLISHER = "https://files.grouplens.org/datasets/movielens/"
_RESEARCH = (
    "Research use with acknowledgement; no commercial use and no redistribution without permission of GroupLens, "
    "University of Minnesota."
)
_HARPER = (
    "F. Maxwell Harper and Joseph A. Konstan. 2015. The MovieLens Datasets: History and Context. ACM Transactions on "
    "Interactive Intelligent Systems (TiiS) 5, 4, Article 19 (December 2015), 19 pages. "
    "DOI=http://dx.doi.org/10.1145/2827872"
)


@dataclass(frozen=True)
class DataSet:
    """One named data set."""

    name: str
    title: str
    url: str | None  # None: the publisher does not offer this edition (any more)
    md5: str | None  # of the archive, as the publisher gives it
    archive: str  # file name
    layout: Layout
    licence: str
    citation: str
    size: str  # of the archive, about
    ratings: int  # rows that the publisher counts
    folders: tuple[str, ...] = ()  # names under which the unpacked archive may lie


def _movielens(
    name: str, title: str, md5: str | None, layout: Layout, size: str, ratings: int, inner: str = ""
) -> DataSet:
    return DataSet(
        name=name,
        title=title,
        url=f"{_PUBLISHER}{name}.zip",
        md5=md5,
        archive=f"{name}.zip",
        layout=layout,
        licence=_RESEARCH,
        citation=_HARPER,
        size=size,
        ratings=ratings,
        folders=(name, inner) if inner else (name,),
    )


_SMALL = "MovieLens latest small, edition of October 2016 (embedded)"
_SETS = (
    replace(
        _movielens("ml-latest-small", _SMALL, None, "embedded", "0.6 MB", 100_004),
        url=None,
        licence="Research use with acknowledgement; may be redistributed under the same conditions; no commercial use "
        "without permission of GroupLens, University of Minnesota.",
    ),
    _movielens("ml-100k", "MovieLens 100K", "0e33842e24a9c977be4e0107933c0723", "u.data", "5 MB", 100_000),
    _movielens("ml-1m", "MovieLens 1M", "c4d9eecfca2ab87c1945afe126590906", "ratings.dat", "6 MB", 1_000_209),
    _movielens(
        *("ml-10m", "MovieLens 10M", "ce571fd55effeba0271552578f2648bd", "ratings.dat", "63 MB"),
        ratings=10_000_054,
        inner="ml-10M100K",
    ),
    _movielens("ml-20m", "MovieLens 20M", "cd245b17a1ae2cc31bb14903e1204af3", "ratings.csv", "190 MB", 20_000_263),
    _movielens("ml-25m", "MovieLens 25M", "6b51fb2759a8657d3bfcbfc42b592ada", "ratings.csv", "250 MB", 25_000_095),
    DataSet(
        name="netflix",
        title="Netflix Prize",
        url=None,
        md5=None,
        archive="nf_prize_dataset.tar.gz",
        layout="netflix",
        licence="Research use with acknowledgement; no commercial use or redistribution without permission of Netflix.",
        citation=(
            "James Bennett and Stan Lanning. 2007. The Netflix Prize. In Proceedings of KDD Cup and Workshop 2007, "
            "San Jose, California."
        ),
        size="700 MB",
        ratings=100_480_507,
        folders=("netflix", "nf_prize_dataset", "download"),
    ),
)

CATALOG: Mapping[str, DataSet] = {entry.name: entry for entry in _SETS}


def data_set(name: str) -> DataSet:
    """Return the entry called `name`; an unknown name is an error that lists the known ones."""
    if name not in CATALOG:
        raise choices("data set", name, CATALOG)
    return CATALOG[name]


def cache_folder() -> Path:
    """Return the folder for downloads: RECFUSION_CACHE, else recfusion in XDG_CACHE_HOME, else in ~/.cache."""
    if own := os.environ.get("RECFUSION_CACHE"):
        return _expanded(own, "RECFUSION_CACHE")
    return _expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "RECFUSION_CACHE") / "recfusion"


def data_folders() -> Iterator[Path]:
    """Yield the folders where local copies are looked for: those named by RECFUSION_DATA, then the cache."""
    named = [part for part in os.environ.get("RECFUSION_DATA", "").split(os.pathsep) if part]
    yield from (_expanded(part, "RECFUSION_DATA") for part in named)
    yield cache_folder()


def _expanded(folder: str, variable: str) -> Path:
    try:
        return Path(folder).expanduser()
    except RuntimeError:  # no such user, or one without a home
        raise InputError(f"Expected a folder, got '{folder}' without a home: set {variable} to a whole path.") from None


def locate(name: str) -> Path | None:
    """Return the archive or folder of a data set on this machine, or None."""
    entry = data_set(name)
    if entry.layout == "embedded":
        return Path(__file__).parent / "embedded"
    for folder in data_folders():
        with reading(folder):
            if (folder / entry.archive).is_file():
                return folder / entry.archive
            for unpacked in entry.folders:
                if _holds(folder / unpacked, entry.layout):
                    return folder / unpacked
    return None


def read_named(name: str) -> RawData:
    """Read a data set from the package or from this machine; nothing is downloaded."""
    entry = data_set(name)
    if entry.layout == "embedded":
        raw, notes = _read_embedded(name), []
    else:
        path = locate(name)
        if path is None:
            raise InputError(f"The data set '{name}' is not on this machine: {how_to_get(entry)}")
        raw = read_netflix(path, name) if entry.layout == "netflix" else read_movielens(path, name, entry.layout)
        notes = _doubts(entry, path, raw.rows.height)
    report = replace(raw.report, notes=(*raw.report.notes, *notes))
    return replace(raw, report=report, licence=entry.licence, citation=entry.citation)


def how_to_get(entry: DataSet) -> str:
    """Return the part of a sentence, up to its full stop, that says how a missing data set gets onto this machine."""
    place = f"put {entry.archive} or its unpacked folder {entry.folders[0]}/ into '{next(data_folders())}'"
    if entry.url is None:
        return f"its publisher no longer offers it, so {place}, or into a folder that RECFUSION_DATA names."
    return f"run `recfusion data fetch {entry.name}`, or {place}, or into a folder that RECFUSION_DATA names."


def _holds(folder: Path, layout: Layout) -> bool:
    if not folder.is_dir():
        return False
    if layout == "netflix":
        return is_netflix_folder(folder)
    return any(name.rpartition("/")[2] == layout for name in Archive(folder).names())


def _doubts(entry: DataSet, path: Path, rows: int) -> list[str]:
    """Return a note for each way in which a local copy differs from what its publisher offers."""
    notes = []
    if entry.md5 is not None and path.is_file() and (got := md5_of(path)) != entry.md5:
        notes.append(f"checksum differs from the publisher's: expected MD5 {entry.md5}, got {got} for {path.name}")
    if rows != entry.ratings:
        notes.append(f"{rows:,} ratings were read where the publisher counts {entry.ratings:,}")
    return notes


def _read_embedded(name: str) -> RawData:
    files = resources.files("recfusion.data.embedded")
    rows = pl.read_parquet(files.joinpath(f"{name}-ratings.parquet").read_bytes())
    items = pl.read_parquet(files.joinpath(f"{name}-items.parquet").read_bytes())
    columns = {"user": "userId", "item": "movieId", "rating": "rating", "time": "timestamp"}
    return RawData(
        name,
        rows.cast({"user": pl.Int64, "item": pl.Int64, "time": pl.Int64}),
        items.cast({"item": pl.Int64}),
        ReadReport(rows.height, columns),
    )
