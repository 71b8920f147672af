"""The data sets known by name: where they come from, under which terms, where they lie on this machine, how to load."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import polars as pl
import polars.selectors as cs

from recfusion.core.errors import InputError, choices
from recfusion.data.interactions import RawData, ReadReport
from recfusion.data.options import PUBLISHED
from recfusion.data.published.archive import Archive, md5_of, reading
from recfusion.data.published.lastfm import PLAYS, read_lastfm
from recfusion.data.published.movielens import MovieLensLayout, read_movielens, read_people
from recfusion.data.published.netflix import is_netflix_folder, read_netflix

Layout = MovieLensLayout | Literal["embedded", "netflix", "user_artists.dat"]

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
    """One named data set, by default one of MovieLens."""

    name: str
    title: str
    layout: Layout
    ratings: int  # rows that the publisher counts
    md5: str | None = None  # of the archive, as the publisher gives it; None: this edition is not offered (any more)
    licence: str = _RESEARCH
    citation: str = _HARPER
    also: tuple[str, ...] = ()  # names under which the unpacked archive may lie, beside its own
    columns: tuple[str, ...] = ("userId", "movieId", "rating", "timestamp")  # of an embedded one, in its source
    absent: str = "its publisher no longer offers it"  # why it cannot be fetched, where it cannot

    @property
    def archive(self) -> str:
        """The name of its file."""
        names = {"netflix": "nf_prize_dataset.tar.gz", PLAYS: "hetrec2011-lastfm-2k.zip"}
        return names.get(self.layout, f"{self.name}.zip")

    @property
    def url(self) -> str | None:
        """Where the publisher offers it."""
        return f"{_PUBLISHER}{self.archive}" if self.md5 else None


_SETS = (
    DataSet(
        *("ml-latest-small", "MovieLens latest small, edition of October 2016 (embedded)", "embedded", 100_004),
        licence="Research use with acknowledgement; may be redistributed under the same conditions; no commercial use "
        "without permission of GroupLens, University of Minnesota.",
    ),
    DataSet("ml-100k", "MovieLens 100K", "u.data", 100_000, "0e33842e24a9c977be4e0107933c0723"),
    DataSet("ml-1m", "MovieLens 1M", "ratings.dat", 1_000_209, "c4d9eecfca2ab87c1945afe126590906"),
    DataSet(
        *("ml-10m", "MovieLens 10M", "ratings.dat", 10_000_054, "ce571fd55effeba0271552578f2648bd"),
        also=("ml-10M100K",),
    ),
    DataSet("ml-20m", "MovieLens 20M", "ratings.csv", 20_000_263, "cd245b17a1ae2cc31bb14903e1204af3"),
    DataSet("ml-25m", "MovieLens 25M", "ratings.csv", 25_000_095, "6b51fb2759a8657d3bfcbfc42b592ada"),
    DataSet(
        *("netflix", "Netflix Prize", "netflix", 100_480_507),
        licence="Research use with acknowledgement; no commercial use or redistribution without permission of Netflix.",
        citation="James Bennett and Stan Lanning. 2007. The Netflix Prize. In Proceedings of KDD Cup and Workshop "
        "2007, San Jose, California.",
        also=("nf_prize_dataset", "download"),
    ),
    DataSet(
        *("online-retail", "Invoice lines of a British online shop, 2010 and 2011 (embedded)", "embedded", 404_909),
        licence="CC0: no rights reserved.",
        citation="Daqing Chen, Sai Laing Sain and Kun Guo. 2012. Data mining for the online retail industry: A case "
        "study of RFM model-based customer segmentation using data mining. Journal of Database Marketing and Customer "
        "Strategy Management 19, 3, 197-208. DOI=http://dx.doi.org/10.1057/dbm.2012.17",
        columns=("CustomerID", "StockCode", "Quantity", "InvoiceDate"),
    ),
    DataSet(
        *("lastfm-2k", "Play counts of Last.fm listeners (HetRec 2011)", PLAYS, 92_834),
        licence="Research use with acknowledgement; no commercial use and no redistribution without permission.",
        citation="Iván Cantador, Peter Brusilovsky and Tsvi Kuflik. 2011. Second workshop on information heterogeneity "
        "and fusion in recommender systems (HetRec 2011). In Proceedings of RecSys 2011, Chicago, Illinois.",
        also=("hetrec2011-lastfm-2k",),
        absent="its publisher gives no checksum for it",
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
    elsewhere = f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/recfusion"
    return _expanded(os.environ.get("RECFUSION_CACHE") or elsewhere, "RECFUSION_CACHE")


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
            for unpacked in (entry.name, *entry.also):
                if _holds(folder / unpacked, entry.layout):
                    return folder / unpacked
    return None


def read_named(name: str) -> RawData:
    """Read a data set from the package or from this machine; nothing is downloaded."""
    entry, path = data_set(name), locate(name)
    if path is None:
        raise InputError(f"The data set '{name}' is not on this machine: {how_to_get(entry)}")
    if entry.layout == "embedded":
        raw = _read_embedded(path, entry)
    elif entry.layout == PLAYS:
        raw = read_lastfm(path, name)
    else:
        raw = read_netflix(path, name) if entry.layout == "netflix" else read_movielens(path, name, entry.layout)
    report = replace(raw.report, notes=tuple(_doubts(entry, path, raw.rows.height)))
    return replace(raw, report=report, licence=entry.licence, citation=entry.citation)


def read_named_people(name: str) -> pl.DataFrame:
    """Read what a named data set itself says of its users."""
    entry, path = data_set(name), locate(name)
    layout = entry.layout
    found = None
    if path is not None and (layout == "u.data" or layout == "ratings.dat"):
        found = read_people(path, layout)
    if found is None:
        raise InputError(
            f"Expected a file at --users-file, got '{PUBLISHED}', and '{name}' says nothing of its users (ml-100k and "
            "ml-1m do): name a file."
        )
    return found


def how_to_get(entry: DataSet) -> str:
    """Return the part of a sentence, up to its full stop, that says how a missing data set gets onto this machine."""
    how = f"run `recfusion data fetch {entry.name}`, or" if entry.url else f"{entry.absent}, so"
    place = f"put {entry.archive} or its unpacked folder {entry.name}/ into '{next(data_folders())}'"
    return f"{how} {place}, or into a folder that RECFUSION_DATA names."


def _holds(folder: Path, layout: Layout) -> bool:
    if not folder.is_dir():
        return False
    if layout == "netflix":
        return is_netflix_folder(folder)
    return any(name.rpartition("/")[2] == layout for name in Archive(folder).names())


def _doubts(entry: DataSet, path: Path, rows: int) -> Iterator[str]:
    """Yield a note for each way in which a local copy differs from what its publisher offers."""
    if entry.md5 is not None and path.is_file() and (got := md5_of(path)) != entry.md5:
        yield f"checksum differs from the publisher's: expected MD5 {entry.md5}, got {got} for {path.name}"
    if rows != entry.ratings:
        yield f"{rows:,} rows were read where the publisher counts {entry.ratings:,}"


def _read_embedded(folder: Path, entry: DataSet) -> RawData:
    files = (folder / f"{entry.name}-{part}.parquet" for part in ("ratings", "items"))
    rows, items = (pl.read_parquet(file, glob=False).cast({cs.integer(): pl.Int64}) for file in files)
    columns = dict(zip(("user", "item", "rating", "time"), entry.columns, strict=True))
    return RawData(entry.name, rows.cast({"rating": pl.Float32}), items, ReadReport(rows.height, columns))
